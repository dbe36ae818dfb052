"""Runs that answer at once, and scans that are drawn in no time."""

from __future__ import annotations

import pytest
from pumit.training.run import control as run_control
from pumit.training.run import reporter as run_reporter


@pytest.fixture
def swift(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run reads after every step what is requested, and often says that it lives."""
    monkeypatch.setattr(run_control, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(run_control, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(run_reporter, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(run_reporter, "ROOM_SECONDS", 0.01)


@pytest.fixture
def small_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small generated scans for a validation."""
    monkeypatch.setattr("pumit.training.promptable.validation.SCENE_SIZE", 24)
