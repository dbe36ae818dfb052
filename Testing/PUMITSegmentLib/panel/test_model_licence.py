"""A model whose licence forbids some uses is chosen after its user has agreed."""

from __future__ import annotations

from pathlib import Path

import pytest
from panel_scene import Panel


def test_a_model_for_research_is_chosen_after_its_licence_was_accepted(
    panel: Panel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from PUMITSegmentLib.panel import compute_section

    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path))
    questions: list[str] = []
    replies = iter([False, True])

    def answer(question: str) -> bool:
        questions.append(question)
        return next(replies)

    monkeypatch.setattr(compute_section, "confirm", answer)
    ui = panel.ui
    ui.computeSection.collapsed = False
    assert panel.logic.background.drain(30)
    chosen = ui.modelSelector.findData("for-research")
    assert "CC BY-NC-SA 4.0" in ui.modelSelector.itemText(chosen)
    ui.modelSelector.currentIndex = chosen
    assert panel.logic.compute.settings.model == "default"
    assert ui.modelSelector.itemData(ui.modelSelector.currentIndex) == "default"
    for _ in range(2):  # and the question does not come again
        ui.modelSelector.currentIndex = chosen
        assert panel.logic.compute.settings.model == "for-research"
        ui.modelSelector.currentIndex = 0
    assert len(questions) == 2
    assert "https://creativecommons.org/licenses/by-nc-sa/4.0/" in questions[0]
