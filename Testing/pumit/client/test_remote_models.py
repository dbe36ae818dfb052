"""Automatic labels, structures found by name and reconstructions over a real server on loopback."""

import math
import struct
from typing import Any

import numpy as np
import pytest
from fake_engine import FakeEngine
from pumit.client.remote_session import RemoteSession
from pumit.errors import (
    Cancelled,
    CheckpointError,
    ConsentNeeded,
    OtherModality,
    ServiceError,
    StructureError,
    UnfamiliarScan,
    UnknownModality,
)
from pumit.system.watch import Watch
from pumit.volume import Volume
from pumit.wire.arrays import pack_bundle, unpack_bundle
from pumit.wire.protocol import ArrayError


def direct(volume: Volume, **options: Any) -> Any:
    engine = FakeEngine()
    fake = engine.open_session()
    fake.set_volume(volume)
    return engine.segment_automatically(fake, "organs", **options)


def test_capabilities_name_the_models_and_no_path(server):
    with server.client() as client:
        listed = client.capabilities()["models"]
    kinds = {model["name"]: model["kind"] for model in listed}
    assert kinds["fake"] == "promptable"
    assert kinds["organs"] == "automatic"
    assert kinds["tokens"] == "tokenizer"
    organs = next(model for model in listed if model["name"] == "organs")
    assert organs["classes"] == ["liver", "spot"]
    assert organs["version"] == "2"
    assert organs["description"] == "Two thresholds."
    shown = {"name", "kind", "version", "description", "classes", "licence", "modality"}
    assert set(organs) == shown


def test_labels_equal_those_of_the_library(session, volume):
    seen: list[float] = []
    answer = session.segment_automatically("organs", watch=Watch(progress=seen.append))
    np.testing.assert_array_equal(answer.found.labels, direct(volume).labels)
    assert seen[-1] == 1.0
    assert (answer.model, answer.version) == ("organs", "2")
    liver, spot = answer.found.classes
    assert liver.name == "liver"
    assert "SCT^10200004^Liver" in liver.terminology
    assert spot.color_rgb == (0.5, 0.25, 1.0)
    # Regions in each other travel whole.
    found = session.segment_automatically("nested").found
    flat = direct(volume).labels
    np.testing.assert_array_equal(found.labels, flat)
    np.testing.assert_array_equal(found.mask(1), flat > 0)
    np.testing.assert_array_equal(found.mask(2), flat > 1)
    assert 0 < found.mask(2).sum() < found.mask(1).sum()


def test_a_region_travels_by_its_eight_corners(session, volume):
    index = [(d, h, w) for d in (2, 5) for h in (3, 12) for w in (4, 20)]
    corners = volume.index_to_world(index)
    answer = session.segment_automatically("organs", corners)
    np.testing.assert_array_equal(
        answer.found.labels, direct(volume, roi_corners_lps=corners.tolist()).labels
    )
    inside = answer.found.labels[2:6, 3:13, 4:21]
    assert inside.any()
    assert inside.astype(bool).sum() == answer.found.labels.astype(bool).sum()
    # To find nothing is an answer.
    far = volume.index_to_world([(d, h, w) for d in (50, 60) for h in (3, 12) for w in (4, 20)])
    answer = session.segment_automatically("organs", far)
    assert answer.found.labels.shape == volume.shape
    assert not answer.found.labels.any()
    assert len(answer.found.classes) == 2


def test_a_reconstruction_arrives_on_the_grid(session, volume):
    answer = session.reconstruct()
    np.testing.assert_allclose(answer.image, volume.array / 2)
    np.testing.assert_allclose(answer.difference, -volume.array / 2)
    assert answer.image.dtype == np.float32
    assert answer.psnr_db == 12.5
    assert answer.ssim is None
    assert answer.use.shares.sum() == pytest.approx(1)
    assert answer.use.mean_cell_kl == pytest.approx(math.log(16) - 0.5)
    assert answer.sentence == "The model knows this image half."
    assert answer.familiarity.score == 50
    assert [(part.name, part.cost) for part in answer.familiarity.parts] == [("slice_step", 0.5)]
    assert answer.usual_shares.tolist() == [1 / 16] * 16


def bent(session: RemoteSession, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Have the server's answers changed on their way."""
    ask = session._client.ask

    def bend(path: str, **options: Any) -> bytes:
        meta, arrays = unpack_bundle(ask(path, **options), max_bytes=1 << 20)
        change(meta, arrays)
        return pack_bundle(meta, arrays)

    monkeypatch.setattr(session._client, "ask", bend)


def test_a_server_without_a_score_is_understood(session, monkeypatch):
    bent(session, monkeypatch, lambda meta, arrays: (meta.pop("familiarity"), arrays.popitem()))
    answer = session.reconstruct()
    assert answer.familiarity is None
    assert answer.usual_shares is None
    assert answer.sentence == "The model knows this image half."


@pytest.mark.parametrize("name", ["nobody", "../../etc/passwd", "/tmp/x.safetensors", "tokens"])
def test_an_unknown_model_is_answered_in_a_sentence(session, name):
    with pytest.raises(CheckpointError, match="offers no model"):
        session.segment_automatically(name)
    with pytest.raises(CheckpointError, match="offers no model"):
        session.reconstruct("organs" if name == "tokens" else name)


def test_a_newer_volume_ends_it(session, asking, volume):
    older = asking(lambda: session.segment_automatically("slow"))
    session.set_volume(volume)
    assert older.error(5) is Cancelled


@pytest.mark.parametrize(
    ("ask", "change"),
    [
        ("labels", lambda meta, arrays: arrays.clear()),
        ("labels", lambda meta, arrays: meta.update(bbox=[[0, 1], [0, 1], [0, 1]])),
        ("labels", lambda meta, arrays: meta.update(classes=[])),
        ("labels", lambda meta, arrays: meta.update(classes=[{"name": "x"}, {"name": "y"}])),
        ("reconstruction", lambda meta, arrays: meta.update(familiarity={"score": 300})),
        ("reconstruction", lambda meta, arrays: meta.update(familiarity="high")),
        ("reconstruction", lambda meta, arrays: arrays.update(usual_shares=np.ones(3))),
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(session, monkeypatch, ask, change):
    bent(session, monkeypatch, change)
    asked = {
        "labels": lambda: session.segment_automatically("organs"),
        "reconstruction": session.reconstruct,
    }
    with pytest.raises(ServiceError, match="cannot be read"):
        asked[ask]()


def test_a_bundle_round_trips_and_every_truncation_is_noticed():
    arrays = {"a": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "b": np.ones(3)}
    body = pack_bundle({"x": [1, None, "é"]}, arrays)
    meta, got = unpack_bundle(body, max_bytes=1000)
    assert meta == {"x": [1, None, "é"]}
    for name, array in arrays.items():
        np.testing.assert_array_equal(got[name], array)
        assert got[name].dtype == array.dtype
    for length in range(len(body)):
        with pytest.raises(ArrayError):
            unpack_bundle(body[:length], max_bytes=1000)
    with pytest.raises(ArrayError):
        unpack_bundle(body, max_bytes=90)
    for text in (b"[]", b"{}", b'{"arrays": 3}', b'{"arrays": ["a"]}'):
        with pytest.raises(ArrayError):
            unpack_bundle(struct.pack("<I", len(text)) + text, max_bytes=90)


def test_a_structure_is_one_mask(session, volume):
    seen: list[float] = []
    answer = session.find_structure("liver", model="organs", watch=Watch(progress=seen.append))
    np.testing.assert_array_equal(answer.found.labels, direct(volume).labels == 1)
    assert (answer.model, answer.version) == ("organs", "2")
    assert answer.facts.structure == "liver"
    assert answer.facts.remarks == ()
    assert "10200004" in answer.found.classes[0].terminology
    assert seen[-1] == 1.0


def test_everything_keeps_its_classes(session, volume):
    answer = session.find_structure("everything", model="organs")
    np.testing.assert_array_equal(answer.found.labels, direct(volume).labels)
    assert [label.name for label in answer.found.classes] == ["liver", "spot"]


def test_what_will_run_is_reported_before_it_runs(session):
    with pytest.raises(UnfamiliarScan, match="odd"):
        session.check_structure("liver", modality="MR")
    facts = session.check_structure("liver", modality="MR", anyway=True)
    assert facts.model == "organs"
    assert not session.find_structure(
        "liver", model="organs", modality="MR", anyway=True
    ).facts.remarks


def test_refusals_keep_their_kind(session):
    with pytest.raises(StructureError, match="near it: liver") as caught:
        session.find_structure("livr")
    assert caught.value.near == ("liver",)
    with pytest.raises(OtherModality, match="ultrasound"):
        session.check_structure("liver", modality="US")
    with pytest.raises(UnknownModality, match="CT or MR"):
        session.check_structure("spot")
    with pytest.raises(ConsentNeeded, match="accept"):
        session.find_structure("closed")
    assert session.find_structure("spot", model="organs").found.classes[0].name == "spot"
