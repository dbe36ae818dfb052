"""Structures found by name over a real server on loopback."""

from __future__ import annotations

import numpy as np
import pytest
from fake_engine import FakeEngine
from pumit.client.remote_session import RemoteSession
from pumit.errors import (
    ConsentNeeded,
    OtherModality,
    StructureError,
    UnfamiliarScan,
    UnknownModality,
)
from pumit.system.watch import Watch
from pumit.volume import Volume


def direct(volume: Volume) -> np.ndarray:
    engine = FakeEngine()
    fake = engine.open_session()
    fake.set_volume(volume)
    return engine.segment_automatically(fake, "organs").labels


def test_a_structure_is_one_mask(session: RemoteSession, volume: Volume) -> None:
    seen: list[float] = []
    answer = session.find_structure("liver", model="organs", watch=Watch(progress=seen.append))
    np.testing.assert_array_equal(answer.found.labels, direct(volume) == 1)
    assert (answer.model, answer.version) == ("organs", "2")
    assert answer.facts.structure == "liver"
    assert answer.facts.remarks == ()
    assert "10200004" in answer.found.classes[0].terminology
    assert seen[-1] == 1.0


def test_everything_keeps_its_classes(session: RemoteSession, volume: Volume) -> None:
    answer = session.find_structure("everything", model="organs")
    np.testing.assert_array_equal(answer.found.labels, direct(volume))
    assert [label.name for label in answer.found.classes] == ["liver", "spot"]


def test_what_will_run_is_reported_before_it_runs(session: RemoteSession) -> None:
    with pytest.raises(UnfamiliarScan, match="odd"):
        session.check_structure("liver", modality="MR")
    facts = session.check_structure("liver", modality="MR", anyway=True)
    assert facts.model == "organs"
    assert not session.find_structure(
        "liver", model="organs", modality="MR", anyway=True
    ).facts.remarks


def test_refusals_keep_their_kind(session: RemoteSession) -> None:
    with pytest.raises(StructureError, match="near it: liver"):
        session.find_structure("livr")
    with pytest.raises(OtherModality, match="ultrasound"):
        session.check_structure("liver", modality="US")
    with pytest.raises(UnknownModality, match="CT or MR"):
        session.check_structure("spot")
    with pytest.raises(ConsentNeeded, match="accept"):
        session.find_structure("closed")
    assert session.find_structure("spot", model="organs").found.classes[0].name == "spot"
