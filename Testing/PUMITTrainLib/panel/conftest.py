"""The panel of PUMITTrain alone, and the module with programs that a test plays."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

RESOURCES = Path(__file__).resolve().parents[3] / "PUMITTrain" / "Resources"


@pytest.fixture
def shown(slicerApp: Any, background: Any) -> Iterator[Any]:
    """The panel on the screen; see `ShownPanel`."""
    from fake_train_logic import FakeTrainLogic
    from shown_panel import ShownPanel

    panel = ShownPanel(str(RESOURCES), FakeTrainLogic(background))
    yield panel
    panel.close()


@pytest.fixture
def module(loadModule: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, shown; see `TrainModule`."""
    from train_module import TrainModule

    made = TrainModule(tmp_path / "runs", loadModule, monkeypatch)
    yield made
    made.close()
