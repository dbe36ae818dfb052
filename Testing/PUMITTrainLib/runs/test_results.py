"""What a run made: scores, card, its use in PUMITSegment, export and import."""

import json
from typing import Any

import pytest
import slicer
from pumit.runs import RunStatus, write_status


@pytest.fixture
def finished(train: Any) -> Any:
    """A run that has ended well is shown."""
    folder = train.root / "run"
    folder.mkdir(parents=True)
    write_status(
        folder,
        RunStatus("finished", name="hearts", model="hearts.safetensors", registered="hearts-2"),
    )
    train.folder = folder
    train.show(folder)
    return train


def again(train: Any, **changes: Any) -> None:
    given = {"name": "hearts", "model": "hearts.safetensors", "registered": "hearts-2"}
    write_status(train.folder, RunStatus("finished", **{**given, **changes}))
    train.poll()


def selectedModules(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Modules that Slicer opens from now on."""
    selected: list[str] = []
    monkeypatch.setattr(slicer.util, "selectModule", selected.append, raising=False)
    return selected


def test_scores_are_read_worst_first_with_pictures(finished):
    rows = [
        {"case": "a", "label": "liver", "dice": 0.9},
        {"case": "a", "label": "spleen", "dice": 0.7},
        {"case": "b", "label": "liver", "dice": 0.5},
        {"case": "b", "label": "spleen", "dice": None},
    ]
    results = finished.logic.results
    assert (results.scores, results.classScores) == ((), {})
    (finished.folder / "validation.json").write_text(json.dumps({"rows": rows}))
    (finished.folder / "pictures").mkdir()
    picture = finished.folder / "pictures" / "worst_1.png"
    picture.touch()
    assert [(s.case, s.picture) for s in results.scores] == [("b", picture), ("a", None)]
    assert results.classScores == pytest.approx({"mean": 0.65, "liver": 0.7, "spleen": 0.7})
    (finished.folder / "validation.json").write_text("{")
    assert results.scores == ()


def test_scores_of_clicks_are_those_of_the_first(finished):
    rows = [{"case": "a", "label": "liver", "clicks": [0.6, 0.7, 0.8], "before": [0.4, 0.5, 0.6]}]
    (finished.folder / "validation.json").write_text(json.dumps({"rows": rows}))
    assert finished.logic.results.classScores == {"mean": 0.6, "liver": 0.6}
    (score,) = finished.logic.results.scores
    assert score.before == {"liver": 0.4}


def test_card_and_its_pictures(finished):
    results = finished.logic.results
    assert results.cardFile is None
    (finished.folder / "curves.png").touch()
    text = "# hearts\n![Curves](curves.png)\n![Gone](gone.png)\n"
    (finished.folder / "card.md").write_text(text)
    assert results.cardText == text
    assert results.pictures == (finished.folder / "curves.png",)


def test_card_of_a_cross_validation_is_that_of_its_model(finished):
    for place in (finished.folder, finished.folder / "final"):
        place.mkdir(exist_ok=True)
        (place / "card.md").write_text(place.name)
    again(finished, model="hearts-folds.safetensors")
    assert finished.logic.results.cardFile == finished.folder / "card.md"
    again(finished, model="final/hearts.safetensors")
    assert finished.logic.results.cardText == "final"


@pytest.mark.parametrize(
    ("task", "words"), [("classification", "pumit predict"), ("pretraining", "initial")]
)
def test_model_that_segments_nothing_is_not_used(finished, monkeypatch, task, words):
    selected = selectedModules(monkeypatch)
    again(finished, task=task)
    finished.logic.results.use()
    assert not selected
    assert finished.status.startswith("hearts-2 ")
    assert words in finished.status


def test_model_that_is_not_there_is_not_used(finished, monkeypatch):
    selected = selectedModules(monkeypatch)
    again(finished, registered=None)
    finished.logic.results.use()
    again(finished, model=None, registered=None)
    finished.logic.results.use()
    assert not selected
    assert "no finished model" in finished.status


def test_a_damaged_index_is_not_taken_for_a_deleted_model(finished):
    finished.logic.results.use()
    finished.programs.last.end(2, "The model index index.yaml is damaged; repair it.")
    assert finished.status == "The model index index.yaml is damaged; repair it."


def test_export_and_import_are_processes(finished, tmp_path):
    results = finished.logic.results
    results.exportModel(tmp_path / "mine")
    call = finished.programs.last
    target = str(tmp_path / "mine.pumit.zip")
    assert call.arguments == ["models", "export", "hearts-2", "-o", target]
    assert results.isBusy
    results.importModel(tmp_path / "other.pumit.zip")
    assert finished.programs.last is call
    call.end()
    assert "mine.pumit.zip" in finished.status
    results.importModel(tmp_path / "other.pumit.zip")
    finished.programs.last.end(2, "other.pumit.zip is damaged; fetch it again.")
    assert finished.status == "other.pumit.zip is damaged; fetch it again."
    assert not results.isBusy


def test_imported_model_whose_name_is_taken_gets_a_number(finished):
    finished.logic.results.importModel("x.pumit.zip")
    for name in ("hearts", "hearts-2"):
        said = f"There is a model {name!r} already; choose another --name."
        finished.programs.last.end(2, said)
    assert finished.programs.last.arguments[-2:] == ["--name", "hearts-3"]
    assert finished.logic.results.isBusy
    finished.programs.last.end()
    assert not finished.logic.results.isBusy
    assert "imported" in finished.status


def test_model_out_of_the_index_is_exported_by_its_file(finished, tmp_path):
    again(finished, registered=None)
    finished.logic.results.exportModel(tmp_path / "mine.pumit.zip")
    assert finished.programs.last.arguments[2] == str(finished.folder / "hearts.safetensors")
    finished.logic.cancel()
    assert finished.programs.last.isCancelled
    assert not finished.logic.results.isBusy
