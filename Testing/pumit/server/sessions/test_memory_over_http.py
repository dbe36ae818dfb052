"""Full servers and sleeping sessions as clients meet them."""

import json
from pathlib import Path

import numpy as np
import pytest
from app_client import claim, make_client
from ball_scan import scan
from pumit.server.sessions.engine import SegmenterEngine
from pumit.wire import protocol
from pumit.wire.arrays import pack_array

GEOMETRY = {protocol.META_HEADER: json.dumps({"spacing_mm": [3, 1, 1]})}


@pytest.fixture
def engine(tiny_checkpoint: Path) -> SegmenterEngine:
    return SegmenterEngine(str(tiny_checkpoint), device="cpu")


def test_a_scan_for_which_there_is_no_room_is_refused_in_a_sentence(engine):
    volume, _ = scan()
    limit = round(2.6 * volume.array.nbytes)
    with make_client(engine, max_memory_bytes=limit) as http:

        def send(lease, array):
            return http.post(
                protocol.PATH_VOLUME, content=pack_array(array), headers=GEOMETRY | lease
            )

        leases, answers = [], []
        for n in range(4):
            leases.append(claim(http))
            answers.append(send(leases[-1], volume.array + np.int16(n)))
        statuses = [answer.status_code for answer in answers]
        count = statuses.index(503)
        assert statuses == [200] * count + [503] * (4 - count)
        assert count >= 1
        assert "Open scans fill" in answers[-1].json()["detail"]
        assert "Retry-After" in answers[-1].headers
        # An earlier scan of a session stays.
        body = {"prompts": [{"kind": "point", "point_lps": [25, 17, 18]}]}
        before = http.post(protocol.PATH_PREDICT, json=body, headers=leases[0])
        assert before.is_success
        large = send(leases[0], np.tile(volume.array, (3, 1, 1)))
        assert large.status_code == 507
        assert "crop it" in large.json()["detail"]
        after = http.post(protocol.PATH_PREDICT, json=body, headers=leases[0])
        assert after.content == before.content
        # Who leaves makes room; who brings a scan that is open already needs none.
        assert send(claim(http), volume.array).is_success
        http.post("/release", headers=leases[0])
        for lease in leases[1:count]:
            http.post("/release", headers=lease)
        assert send(leases[count], volume.array + np.int16(9)).status_code == 200
        memory = http.get("/capabilities").json()["pumit"]["memory"]
    assert memory["limit_bytes"] == limit
    assert 0 < memory["scan_bytes"] + memory["embedding_bytes"] <= limit
    assert memory["process_bytes"] is None or memory["process_bytes"] > 0
    names = {"awake", "asleep", "process_peak_bytes", "device_free_bytes", "device_total_bytes"}
    assert set(memory) >= names


def draw_and_undo(http, after_each):
    """What a viewer of another project receives, step by step."""
    volume, truth = scan()
    lease = claim(http)

    def ask(path, meta=None, **body):
        headers = lease | ({} if meta is None else {protocol.META_HEADER: json.dumps(meta)})
        answer = http.post(path, headers=headers, **body)
        assert answer.status_code == 200, answer.text
        received.append(
            (json.loads(answer.headers.get(protocol.META_HEADER, "{}")), answer.content)
        )
        after_each(lease[protocol.LEASE_HEADER])

    received = []
    spacing = {"image_properties": {"spacing": [3, 1, 1]}}
    drawn, no_run = pack_array(truth.astype(np.uint8)), {"run_prediction": False}
    point = {"coordinates": [6, 17, 25], "include_interaction": True, "run_prediction": True}
    ask("/set_image", spacing, content=pack_array(volume.array[None]))
    ask("/set_target_buffer", json={"shape": list(volume.shape), "dtype": "uint8"})
    ask("/add_initial_seg_interaction", no_run, content=drawn)
    ask("/predict", json={})
    ask("/add_point_interaction", json=point)
    ask("/undo")
    ask("/predict", json={})
    ask("/undo")
    return received


def test_a_viewer_of_another_project_sleeps_as_well(engine):
    """Buffer, prompts and undo are those of before, a drawn beginning among them."""
    with make_client(engine) as http:
        state = http.app.state.server

        def let_sleep(token):
            lease = state.leases.get(token)
            lease.active_at -= 400
            state.leases.sweep()
            state.queue.submit(token, lambda job: None).future.result(10)
            assert lease.session.is_asleep

        awake = draw_and_undo(http, lambda token: None)
        slept = draw_and_undo(http, let_sleep)
    assert slept == awake
    has_run = [meta.get("ran_prediction") for meta, _ in awake[2:]]
    assert has_run == [False, False, True, True, False, True]
