"""Runs that answer at once, in single precision, and scans that are drawn in no time."""

from collections.abc import Iterator

import pytest
import torch
from pumit.training.loop import precision
from pumit.training.run import reporter as run_reporter
from pumit.training.run import session as run_session


@pytest.fixture(scope="module", autouse=True)
def single_precision() -> Iterator[None]:
    """`auto` is the same on every processor; `test_precision.py` tests both precisions."""
    of_a_run = precision.is_half

    def is_half(device: torch.device, name: str) -> bool:
        return of_a_run(device, "fp32" if (device.type, name) == ("cpu", "auto") else name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision, "is_half", is_half)
        yield


@pytest.fixture
def swift(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run reads after every step what is requested, and often says that it lives."""
    monkeypatch.setattr(run_reporter, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(run_reporter, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(run_session, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(run_reporter, "ROOM_SECONDS", 0.01)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards and pictures are those of any run, and take longer than a few steps."""
    monkeypatch.setattr("pumit.training.model_card.write.write_card", lambda folder, best: None)
    pictures = "pumit.training.segmentation.run.OverlayPictures"
    monkeypatch.setattr(pictures, lambda *rest: lambda *answer: None)


@pytest.fixture
def small_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small generated scans for a validation."""
    monkeypatch.setattr("pumit.training.promptable.validation.SCENE_SIZE", 24)
