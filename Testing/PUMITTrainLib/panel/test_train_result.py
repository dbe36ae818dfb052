"""Section 4: how good the model is, and what to do with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_train_logic import FakeScore, runView
from shown_panel import ShownPanel


class Answers:
    """Dialogs that answer at once."""

    def __init__(self, path: str) -> None:
        self._path = path

    def saveModel(self, name: str) -> str:
        return self._path

    def openModel(self) -> str:
        return self._path


def finished(shown: ShownPanel, tmp_path: Path) -> None:
    shown.logic.runs.show(runView(tmp_path / "liver-mr", "finished"))
    results = shown.logic.results
    results.model = "liver-mr"
    results.classScores = {"mean": 0.71, "liver": 0.85, "tumour": 0.57}
    results.scores = (
        FakeScore("case_07", {"liver": 0.8, "tumour": 0.31}),
        FakeScore("case_02", {"liver": 0.9}),
    )
    shown.refresh()


def figures(shown: ShownPanel) -> list[str]:
    """The numbers of the sentence on the result, in its order."""
    return re.findall(r"\d+(?:\.\d+)?", shown.ui.resultLabel.text)


def test_a_finished_run_opens_its_result(shown: ShownPanel, tmp_path: Path) -> None:
    finished(shown, tmp_path)
    assert not shown.ui.resultSection.collapsed
    assert shown.ui.resultSection.text == "4. Result: liver-mr, Dice 0.71"
    assert figures(shown) == ["0.71", "2", "0.85", "0.57", "1", "0"]
    table = shown.ui.scoreTable
    rows = [[shown.cell(table, row, column).text() for column in range(3)] for row in range(2)]
    assert rows == [["case_07", "0.80", "0.31"], ["case_02", "0.90", ""]]
    shown.ui.resultSection.collapsed = True
    shown.refresh()
    assert shown.ui.resultSection.collapsed


def test_one_sentence_says_what_the_run_brought(shown: ShownPanel, tmp_path: Path) -> None:
    shown.logic.runs.curves.scores["mean"] = [(50, 0.31), (148, 0.71)]
    finished(shown, tmp_path)
    # A cross-validation has no best step: the curves are those of its last fold.
    assert figures(shown) == ["0.71", "2", "0.85", "0.57", "1", "0"]
    shown.logic.runs.show(runView(tmp_path / "liver-mr", "finished", bestStep=148))
    shown.refresh()
    assert figures(shown) == ["0.71", "2", "0.85", "0.57", "50", "0.31", "1", "0"]
    # A model that was the best at its first validation is not compared with itself.
    shown.logic.runs.show(runView(tmp_path / "liver-mr", "finished", bestStep=50))
    shown.logic.runs.curves.scores["mean"] = [(50, 0.71), (148, 0.31)]
    shown.refresh()
    assert figures(shown) == ["0.71", "2", "0.85", "0.57", "1", "0"]
    # Of better clicks it is known what the model did before.
    shown.logic.results.scores = (FakeScore("case_07", {"liver": 0.8}, before={"liver": 0.62}),)
    shown.refresh()
    assert figures(shown) == ["0.71", "0.85", "0.57", "0.62", "1", "0"]
    assert "one test patient: a rough figure" in shown.ui.resultLabel.text


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ([(180, 0.71)], "It was as good after 180 steps: longer training may help little."),
        ([(0, 0.712)], "It was as good before: the training did not improve the model."),
        ([(0, 0.5)], "Before: 0.50."),
    ],
)
def test_a_gain_is_explained_to_people_who_do_not_program(
    shown: ShownPanel, first: list[tuple[int, float]], words: str
) -> None:
    """Friction 14: "0.85 ...; after 180 steps it was 0.85" said nothing."""
    from PUMITTrainLib.panel.result_section import resultInWords

    text = resultInWords("m", {"mean": 0.71, "liver": 0.71}, None, first, caseCount=3)
    assert text == (
        f"Model and labels agree by 0.71 on 3 test scans (liver 0.71). {words} "
        "1 is full agreement, 0 is none (Dice)."
    )


def test_the_picture_of_the_selected_case_has_a_caption_and_opens_in_full_size(
    shown: ShownPanel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import qt
    from Qt import QtGui

    opened: list[str] = []
    monkeypatch.setattr(
        qt.QDesktopServices, "openUrl", lambda url: opened.append(url.toLocalFile())
    )
    picture = tmp_path / "worst.png"
    QtGui.QPixmap(40, 20).save(str(picture))
    finished(shown, tmp_path)
    assert not shown.ui.worstCaptionLabel.isVisible()
    worst = FakeScore("case_07", {"liver": 0.8, "tumour": 0.31}, picture)
    shown.logic.results.scores = (worst, FakeScore("case_02", {"liver": 0.9}))
    shown.refresh()
    caption = shown.ui.worstCaptionLabel
    assert caption.isVisible()
    assert caption.text == (
        "case_07, test patient: Dice liver 0.80, tumour 0.31. Dashed: labels; solid: model."
    )
    assert "full size" in shown.ui.worstLabel.toolTip
    shown.press(shown.ui.worstLabel)
    assert opened == [str(picture)]
    shown.ui.scoreTable.selectRow(1)
    assert not shown.ui.worstLabel.isVisible()


def test_the_model_is_used_and_its_card_opened_by_one_click(
    shown: ShownPanel, tmp_path: Path
) -> None:
    finished(shown, tmp_path)
    shown.press(shown.ui.useButton)
    assert shown.logic.callsOf("use") == [()]
    assert not shown.ui.cardButton.enabled
    shown.logic.results.cardFile = tmp_path / "card.md"
    shown.refresh()
    shown.press(shown.ui.cardButton)
    assert shown.logic.callsOf("openCard") == [()]


def test_a_model_is_exported_and_imported_as_one_file(shown: ShownPanel, tmp_path: Path) -> None:
    finished(shown, tmp_path)
    file = tmp_path / "liver-mr.pumit.zip"
    shown.panel.resultSection._dialogs = Answers(str(file))
    shown.press(shown.ui.exportButton)
    shown.press(shown.ui.importButton)
    assert shown.logic.callsOf("exportModel") == [(file,)]
    assert shown.logic.callsOf("importModel") == [(file,)]
    shown.panel.resultSection._dialogs = Answers("")
    shown.press(shown.ui.exportButton)
    assert len(shown.logic.callsOf("exportModel")) == 1
    shown.logic.results.isBusy = True
    shown.refresh()
    assert not shown.ui.exportButton.enabled
    assert not shown.ui.importButton.enabled
