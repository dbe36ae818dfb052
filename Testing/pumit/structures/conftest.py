"""An index of the test's own, and networks that it may name."""

from pathlib import Path

import pytest
from absent import NO_TORCH


@pytest.fixture(autouse=True)
def own_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's folder of models, empty; no tokenizer runs."""
    pytest.importorskip("torch", reason=NO_TORCH)
    from known_networks import know_networks

    know_networks(monkeypatch)
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"
