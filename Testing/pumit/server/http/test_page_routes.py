"""The page's files, the scan of `pumit view`, and masks as files."""

import hashlib
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pumit.server
import pytest
from app_client import AUTH, GEOMETRY, claim, make_client, refused
from loopback_server import TOKEN
from pumit.export.dicom_series import write_dicom_series
from pumit.io.labels.label_file import read_label_file
from pumit.prompts import MaskPrompt
from pumit.server.http.page_routes import PAGE, PAGE_PATHS
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.arrays import pack_array
from pumit.wire.prompt_answer import pack_mask

GREY = (0.5, 0.5, 0.5)


@pytest.fixture
def masks(volume):
    """Two masks that share a voxel."""
    first, second = np.zeros((2, *volume.shape), dtype=bool)
    first[2:5, 3:9, 4:9] = second[4:6, 8:12, 8:20] = True
    return {"liver": first, "odd spot": second}


def opened(http):
    """Headers of a session on the server's own scan, and the answer."""
    lease = http.post(protocol.PATH_CLAIM).json()["lease_token"]
    headers = {**AUTH, protocol.LEASE_HEADER: lease}
    return headers, http.post(protocol.PATH_SCAN, headers=headers)


def exported(http, headers, masks, file_format, **more):
    segments = []
    for name, mask in masks.items():
        box, body = pack_mask(mask)
        meta = {protocol.META_HEADER: json.dumps({"bbox": box})}
        sent = http.post(protocol.PATH_MASK_PRIOR, content=body, headers={**headers, **meta})
        segments.append({"name": name, "sha256": sent.json()["sha256"], "color_rgb": GREY})
    body = {"format": file_format, "segments": segments, **more}
    return http.post(protocol.PATH_EXPORT, json=body, headers=headers)


def test_the_page_needs_no_token_and_nothing_of_another_host():
    with make_client() as http:
        for path in PAGE_PATHS:
            answer = http.get(path, headers={"Authorization": ""})
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert not re.search(r"unsafe|https?:|\*", policy)
            if "niivue" not in path:
                assert not re.search(r"https?://|\son\w+=|\sstyle=", answer.text), path
            assert TOKEN not in answer.text
            known = http.get(path, headers={"Accept-Encoding": "identity"})
            assert known.content == answer.content


def test_the_address_is_found_without_its_last_slash():
    with make_client() as http:
        answer = http.get(PAGE.rstrip("/"), headers={"Authorization": ""}, follow_redirects=False)
        assert answer.is_redirect
        assert answer.headers["location"] == PAGE


def test_niivue_is_the_published_file():
    with make_client() as http:
        content = http.get(f"{PAGE}niivue.umd.js").content
    folder = Path(pumit.server.__file__).parent / "page"
    notice = (folder / "niivue.LICENSE.txt").read_text("utf-8")
    assert hashlib.sha256(content).hexdigest() in notice


def test_a_form_hands_the_token_to_the_page_and_to_nobody_else():
    with make_client() as http:
        form = {"token": '"><script>alert(1)</script>'}
        answer = http.post(PAGE, data=form, headers={"Authorization": ""})
        assert '<meta name="pumit-token" content="&quot;&gt;&lt;script&gt;' in answer.text
        assert answer.headers["cache-control"] == "no-store"
        assert "pumit-token" not in http.get(PAGE).text
        refused(http.post(PAGE, data={"token": "x" * 5000}), 413)


def test_a_session_opens_the_servers_own_scan(volume, tmp_path):
    with make_client(scan=volume) as http:
        _, answer = opened(http)
        meta = json.loads(answer.headers[protocol.META_HEADER])
        assert meta["is_dicom"] is False
        assert np.array_equal(meta["direction"], volume.direction)
        (tmp_path / "scan.nii").write_bytes(answer.content)
        found = Volume.read(tmp_path / "scan.nii")
        assert np.array_equal(found.array, volume.array)
        assert np.allclose(found.origin_lps, volume.origin_lps, atol=1e-4)


def test_a_server_without_a_scan_says_so():
    with make_client() as http:
        refused(opened(http)[1], 400, "offers no scan")


def about(scan_id):
    return {protocol.SCAN_HEADER: scan_id}


def test_a_page_that_shows_another_scan_cannot_open_the_servers_own(volume):
    other = replace(volume, origin_lps=(1.0, 2.0, 3.0))
    with make_client(scan=volume) as http:
        shown = opened(http)[1].headers[protocol.SCAN_HEADER]
    with make_client(scan=volume) as http:
        headers, again = opened(http)
        assert again.headers[protocol.SCAN_HEADER] == shown
        assert http.post(protocol.PATH_SCAN, headers=headers | about(shown)).status_code == 200
    with make_client(scan=other) as http:
        lease = claim(http)
        answer = http.post(protocol.PATH_SCAN, headers=lease | about(shown))
        refused(answer, 412, "shows another scan than the one that is open; reload it.")
        point = {"kind": "point", "point_lps": [0, 0, 0]}
        refused(http.post(protocol.PATH_PREDICT, json={"prompts": [point]}, headers=lease), 400)


@pytest.mark.parametrize(
    "path", ["PREDICT", "FIND", "SEGMENT_AUTOMATICALLY", "EXPORT", "MASK_PRIOR"]
)
def test_a_request_about_another_scan_changes_nothing(volume, masks, path):
    with make_client(scan=volume) as http:
        headers, answer = opened(http)
        kept = exported(http, headers, masks, "seg.nrrd").content
        box, bits = pack_mask(masks["liver"])
        segment = {"sha256": MaskPrompt(masks["liver"]).sha256, "name": "a", "color_rgb": GREY}
        body = {
            "PREDICT": {"prompts": [{"kind": "mask", "sha256": segment["sha256"]}]},
            "FIND": {"structure": "liver"},
            "SEGMENT_AUTOMATICALLY": {"model": "organs"},
            "EXPORT": {"format": "nii.gz", "segments": [segment]},
        }.get(path)
        sent = {"json": body} if body else {"content": bits}
        meta = {} if body else {protocol.META_HEADER: json.dumps({"bbox": box})}
        where = getattr(protocol, f"PATH_{path}")
        headers |= meta
        refused(http.post(where, **sent, headers=headers | about("0" * 64)), 412, "reload it")
        shown = about(answer.headers[protocol.SCAN_HEADER])
        assert http.post(where, **sent, headers=headers | shown).status_code == 200
        assert http.post(where, **sent, headers=headers).status_code == 200
        assert exported(http, headers, masks, "seg.nrrd").content == kept


def test_a_click_that_waits_behind_another_scan_is_not_answered_on_it(volume):
    with make_client(scan=volume) as http:
        headers, answer = opened(http)
        state, may_go = http.app.state.server, threading.Event()
        token = headers[protocol.LEASE_HEADER]
        state.queue.submit(token, lambda job: may_go.wait(20), kind="volume")
        point = {"kind": "point", "point_lps": volume.index_to_world((5, 6, 7)).tolist()}
        shown = about(answer.headers[protocol.SCAN_HEADER])
        with ThreadPoolExecutor(2) as threads:
            body = pack_array(volume.array[::-1].copy())
            sent = threads.submit(
                http.post, protocol.PATH_VOLUME, content=body, headers=headers | GEOMETRY
            )
            while len(state.queue.jobs_of(token)) < 2:
                time.sleep(0.01)
            clicked = threads.submit(
                http.post, protocol.PATH_PREDICT, json={"prompts": [point]}, headers=headers | shown
            )
            while len(state.queue.jobs_of(token)) < 3:
                time.sleep(0.01)
            may_go.set()
            refused(clicked.result(), 412, "reload it")
        assert sent.result().headers[protocol.SCAN_HEADER] not in ("", *shown.values())


def test_segments_are_exported_as_seg_nrrd_with_names_and_overlap(volume, masks):
    with make_client(scan=volume) as http:
        headers, _ = opened(http)
        made = exported(http, headers, masks, "seg.nrrd")
        assert b"Segment0_Name:=liver" in made.content
        assert b"SCT^10200004^Liver" in made.content
        assert b"sizes: 2 " in made.content
        refused(exported(http, headers, masks, "nii.gz"), 400, "overlap")


def test_a_segment_is_exported_as_a_label_map_that_tells_who_made_it(volume, masks, tmp_path):
    one = {"liver": masks["liver"]}
    by_hand, by_model = tmp_path / "hand.nii.gz", tmp_path / "model.nii.gz"
    with make_client(scan=volume) as http:
        headers, _ = opened(http)
        by_hand.write_bytes(exported(http, headers, one, "nii.gz").content)
        by_model.write_bytes(exported(http, headers, one, "nii.gz", model="organs").content)
    found = Volume.read(by_hand)
    assert np.array_equal(found.array > 0, masks["liver"])
    assert np.allclose(found.index_to_world((5, 6, 7)), volume.index_to_world((5, 6, 7)), atol=1e-4)
    assert not read_label_file(by_hand).unreviewed
    assert read_label_file(by_model).unreviewed == "made by PUMIT organs, not reviewed"


def test_dicom_seg_references_the_scan_and_names_the_model(volume, masks, tmp_path):
    import pydicom

    (tmp_path / "scan").mkdir()
    write_dicom_series(volume, tmp_path / "scan", patient_id="GENERATED")
    scan = Volume.read(tmp_path / "scan")
    with make_client(scan=scan) as http:
        headers, answer = opened(http)
        assert json.loads(answer.headers[protocol.META_HEADER])["is_dicom"] is True
        made = exported(http, headers, masks, "dcm")
        found = exported(http, headers, masks, "dcm", model="organs")
    (tmp_path / "seg.dcm").write_bytes(made.content)
    seg = pydicom.dcmread(tmp_path / "seg.dcm")
    assert [s.SegmentLabel for s in seg.SegmentSequence] == list(masks)
    assert seg.SegmentSequence[0].SegmentAlgorithmType == "SEMIAUTOMATIC"
    (tmp_path / "found.dcm").write_bytes(found.content)
    found = pydicom.dcmread(tmp_path / "found.dcm").SegmentSequence[0]
    assert (found.SegmentAlgorithmType, found.SegmentAlgorithmName) == ("AUTOMATIC", "PUMIT organs")


def test_dicom_seg_of_a_scan_that_was_sent_is_refused_in_a_sentence(volume, masks):
    with make_client(scan=volume) as http:
        headers, _ = opened(http)
        refused(exported(http, headers, masks, "dcm"), 400, "DICOM")
        unknown = {"sha256": "0" * 64, "name": "a", "color_rgb": GREY}
        body = {"format": "nii.gz", "segments": [unknown]}
        refused(http.post(protocol.PATH_EXPORT, json=body, headers=headers), 424, "send it")


@pytest.mark.parametrize(("frames", "shown"), [(5, (3, 8, 9)), (3, (3, 3, 8, 9))])
def test_a_cine_is_shown_as_its_first_frame_and_colours_as_colours(tmp_path, frames, shown):
    array = np.random.default_rng(0).integers(0, 255, (frames, 3, 8, 9), dtype=np.uint8)
    with make_client(scan=Volume(array)) as http:
        (tmp_path / "scan.nii").write_bytes(opened(http)[1].content)
    found = Volume.read(tmp_path / "scan.nii").array
    assert found.shape == shown
    assert np.array_equal(found, array[0] if frames == 5 else array)
