"""An index of the test's own, and networks that it may name."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_index(known_networks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's folder of models, empty; no tokenizer runs."""
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"
