"""What was downloaded is removed by one button, after a question with sizes; nothing else is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from panel_scene import Panel
from PUMITSlicerLib.installing.downloaded import findDownloaded, removeDownloaded


def write(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


@pytest.fixture
def computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A computer with downloads, and with things that are none."""
    models = tmp_path / "models"
    monkeypatch.setenv("PUMIT_MODELS", str(models))
    files = {
        "fetched": write(models / "fetched.safetensors", 2_000_000),
        "own": write(models / "own" / "own.safetensors", 500),
        "old": write(models / "old.safetensors", 500),  # of one's own, from an earlier version
        "consent": write(models / "accepted_licences.json", 50),
        "wheel": write(tmp_path / "pip" / "http-v2" / "a" / "b", 3_000_000),
        "other": write(tmp_path / "pip" / "notes.txt", 10),
        "left": write(tmp_path / "tmp" / "pumit-install-1" / "torch.whl", 1_000_000),
        "scan": write(tmp_path / "tmp" / "scan.nrrd", 10),
    }
    (models / "index.yaml").write_text("models:\n- {name: old, file: old.safetensors}\n")
    return files


@pytest.fixture
def find(tmp_path: Path) -> Callable[[], list]:
    environment = {"PIP_CACHE_DIR": str(tmp_path / "pip")}
    return lambda: findDownloaded(environment, tmp_path / "tmp")


def press(panel: Panel, find: Callable[[], list], answer: bool) -> list[str]:
    """Press the button with an answer to its question; returns the questions."""
    from PUMITSegmentLib.panel import compute_section

    questions: list[str] = []

    def confirm(question: str) -> bool:
        questions.append(question)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compute_section, "confirm", confirm)
        panel.panel.downloadedData.find = find
        panel.ui.tokenizerSection.collapsed = False
        panel.process()
        panel.press(panel.ui.removeDownloadedButton)
    return questions


def test_only_a_yes_removes_downloads_and_nothing_else(
    panel: Panel, computer: dict[str, Path], find: Callable[[], list]
) -> None:
    (question,) = press(panel, find, False)
    assert question.startswith("Remove 6.0 MB of downloaded data?")
    for words in ("downloaded models: 2.0 MB", "pip's cache", "3.0 MB", "1.0 MB", "stay"):
        assert words in question
    assert all(path.exists() for path in computer.values())
    press(panel, find, True)
    left = {name for name, path in computer.items() if path.exists()}
    assert left == {"own", "old", "consent", "other", "scan"}
    assert "6.0 MB" in panel.ui.statusLabel.text
    # No question comes where there is nothing to remove.
    assert press(panel, find, True) == []
    assert "no downloaded data" in panel.ui.statusLabel.text


def test_what_is_in_use_is_said(
    panel: Panel,
    computer: dict[str, Path],
    find: Callable[[], list],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
    press(panel, find, True)
    assert "4.0 MB could not be removed" in panel.ui.statusLabel.text
    assert not computer["fetched"].exists()


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


def test_compiled_models_are_found_and_removed(
    computer: dict[str, Path], find: Callable[[], list]
) -> None:
    graph = write(computer["own"].parent.parent / "graphs" / "a.graph", 22_000)
    (compiled,) = (each for each in find() if each.paths == (graph,))
    assert compiled.byteCount == 22_000
    assert removeDownloaded([compiled]) == 22_000
    assert not graph.exists()
    assert computer["own"].exists()
