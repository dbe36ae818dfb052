"""A model for non-commercial use runs, alone or over many scans, after its user has agreed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_panel import ServedPanel
from pumit.system.consent import has_consent
from PUMITSegmentLib.automatic import labelOf
from PUMITSlicerLib.computing import compute
from PUMITSlicerLib.computing.availability import Availability, AvailableModel

LICENCE = "CC BY-NC-SA 4.0"


@pytest.fixture
def panel(
    loadModule: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[ServedPanel]:
    """A panel that knows a model of this computer to whose licence no one has agreed."""
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path))
    offered = Availability((), (AvailableModel("closed-model", "automatic", "", True, LICENCE),))
    monkeypatch.setattr(
        compute.Compute, "listAvailable", lambda self, onDone, onError: onDone(offered)
    )
    panel = ServedPanel(loadModule)
    yield panel
    panel.close()


def test_one_run_and_one_of_many_scans_ask_first(panel, monkeypatch):
    from PUMITSegmentLib.panel import automatic_section, batch_section

    questions: list[str] = []
    for module in (automatic_section, batch_section):
        monkeypatch.setattr(
            module, "confirm", lambda text: bool(questions.append(text)) or isAgreed
        )
    name = f"closed-model ({LICENCE})"  # the licence stands next to the name before any question
    panel.wait(lambda: panel.ui.automaticModelSelector.findText(name) >= 0)
    panel.chooseModel(name)
    panel.ui.batchSection.collapsed = False
    panel.process()
    for button, isAgreed in (("batch", False), ("automatic", False), ("automatic", True)):
        questions.clear()
        panel.press(getattr(panel.ui, f"{button}Button"))
        assert len(questions) == 1
        assert LICENCE in questions[0]
        assert "not for patient care" in questions[0]
        assert has_consent("closed-model", LICENCE) is isAgreed
        assert isAgreed or panel.logic.segmentationNode is None


def test_models_are_called_as_people_call_them():
    """Friction 3: "abdomen-ct (CC BY-NC-SA 4.0)"."""
    model = {"name": "abdomen-ct", "classes": ["liver", "spleen"], "licence": LICENCE}
    assert labelOf(model) == f"Abdomen, CT: 2 structures ({LICENCE})"
    assert labelOf({"name": "my-own-model", "licence": "Apache-2.0"}) == "my-own-model"
