"""The first run: what is missing is explained, and installed only when the user says so."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import slicer
from panel_scene import Panel, opened
from PUMITSlicerLib.computing import settings
from PUMITSlicerLib.installing.downloaded import findDownloaded, removeDownloaded

TORCH_IS_MISSING = "PyTorch is not installed yet."


class FakeRunner:
    """Installs by saying so."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.ran: list[Any] = []
        self.finish: Callable[[], None] = lambda: None

    def run(
        self, step: Any, onLine: Callable[[str], None], onDone: Callable[[int], None]
    ) -> Callable[[], None]:
        self.ran.append(step)
        onLine(f"Collecting {step.name}")
        self.finish = lambda: onDone(self.status)
        return lambda: onDone(1)


class FirstRun(Panel):
    """A panel on a computer with a CUDA GPU, where torch is missing."""

    def __init__(self, loadModule: Any) -> None:
        super().__init__(loadModule)
        self.settle()  # checks that opening the panel starts
        slicer.modules.pytorchutils = object()
        self.installed = False
        self.runner = FakeRunner()
        installer = self.panel.installSection.installer
        installer._runner = self.runner
        installer._versionOf = self.version
        self.ui.withTorchCheckBox.checked = True
        self.logic.compute._whyNotInstalled = lambda mode: (
            "" if self.installed else (TORCH_IS_MISSING)
        )
        self.logic.compute.checkInstalled()
        self.settle()

    def version(self, name: str) -> str | None:
        if name == "uvicorn":  # the one with an upper bound
            return "0.50"
        return "9999" if self.installed or name not in ("torch", "light-the-torch") else None

    def settle(self) -> None:
        assert self.logic.background.drain(30)
        self.process()

    def close(self) -> None:
        del slicer.modules.pytorchutils
        super().close()


first = opened(FirstRun, ("loadModule",))


def test_what_is_missing_is_explained_and_installed_with_a_log_by_one_press(first):
    assert first.ui.setupFrame.isVisible()
    assert "torch" in first.ui.setupLabel.text
    assert "MB" in first.ui.setupLabel.text
    assert first.runner.ran == []
    assert first.ui.setupInstallButton.enabled
    first.press(first.ui.setupInstallButton)
    assert [step.name for step in first.runner.ran] == ["light-the-torch"]
    assert not first.ui.setupFrame.isVisible()
    assert "Installing" in first.ui.statusLabel.text
    first.runner.finish()
    assert "torch" in first.runner.ran[-1].name
    first.installed = True
    first.runner.finish()
    first.settle()
    assert "Collecting torch" in first.ui.logView.toPlainText()
    assert "Installed" in first.ui.statusLabel.text
    assert not first.ui.setupFrame.isVisible()


def test_installing_can_be_cancelled_and_tried_again_after_a_failure(first):
    first.press(first.ui.setupInstallButton)
    first.logic.cancel()
    first.settle()
    assert "cancelled" in first.ui.statusLabel.text
    assert len(first.runner.ran) == 1
    first.runner.status = 1
    first.press(first.ui.setupInstallButton)
    first.runner.finish()
    first.settle()
    assert "failed" in first.ui.statusLabel.text
    assert not first.ui.computeSection.collapsed
    assert first.ui.setupInstallButton.enabled


def test_an_empty_wheel_folder_says_what_it_lacks(first, tmp_path):
    first.press(first.ui.setupDetailsButton)
    assert not first.ui.computeSection.collapsed
    first.ui.wheelFolderEdit.currentPath = str(tmp_path)
    first.settle()
    assert not first.ui.installButton.enabled
    assert "torch" in first.ui.installLabel.text
    assert first.logic.compute.settings.wheelFolder == str(tmp_path)
    first.ui.wheelFolderEdit.currentPath = ""
    first.settle()
    assert first.ui.installButton.enabled


def test_without_the_pytorch_extension_it_says_so_and_asks(first):
    del slicer.modules.pytorchutils
    first.panel.installSection._planned = ()
    first.panel.installSection.refresh()
    first.settle()
    first.ui.computeSection.collapsed = False
    assert "extension" in first.ui.installLabel.text
    assert not first.ui.installButton.enabled
    first.press(first.ui.torchFromIndexCheckBox)
    first.settle()
    assert first.ui.installButton.enabled
    slicer.modules.pytorchutils = object()


class SmallRun(FirstRun):
    """A panel on a computer without a CUDA GPU, where openvino is missing."""

    def __init__(self, loadModule: Any) -> None:
        super().__init__(loadModule)
        self.ui.withTorchCheckBox.checked = False
        self.settle()

    def version(self, name: str) -> str | None:
        if name in ("torch", "monai", "einops", "light-the-torch"):
            return "9999" if "torch" in self.names else None
        if name == "openvino":
            return "9999" if self.installed else None
        return super().version(name)

    @property
    def names(self) -> list[str]:
        return [step.name for step in self.runner.ran]


small = opened(SmallRun, ("loadModule",))


@pytest.mark.parametrize("has_driver", [True, False])
def test_torch_is_offered_first_where_a_cuda_gpu_is(loadModule, monkeypatch, has_driver):
    monkeypatch.setattr(settings, "has_cuda_driver", lambda: has_driver)
    panel = Panel(loadModule)
    assert panel.ui.withTorchCheckBox.checked is has_driver
    panel.close()


def test_the_small_installation_has_no_torch_and_makes_it_ready(small):
    said = small.ui.setupLabel.text
    assert "openvino will be installed" in said
    assert "a minute" in said
    assert "59 MB" in said
    small.press(small.ui.setupInstallButton)
    small.installed = True
    small.runner.finish()
    small.settle()
    assert small.names == ["openvino"]
    assert not small.ui.setupFrame.isVisible()
    assert "Installed" in small.ui.statusLabel.text
    # PyTorch can be added later, while clicks continue.
    small.ui.computeSection.collapsed = False
    assert not small.ui.installButton.enabled
    small.ui.withTorchCheckBox.checked = True
    small.settle()
    assert not small.ui.setupFrame.isVisible()
    assert "torch" in small.ui.installLabel.text
    assert "GB for an NVIDIA card" in small.ui.installLabel.text
    small.press(small.ui.installButton)
    small.runner.finish()
    small.runner.finish()
    small.runner.finish()
    small.settle()
    assert small.names == ["openvino", "light-the-torch", "torch", "2 packages"]
    assert not small.ui.installButton.enabled


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

    def look() -> list:
        assert threading.current_thread() is not threading.main_thread()  # it may take seconds
        return find()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compute_section, "confirm", confirm)
        panel.panel.downloadedData.find = look
        panel.ui.tokenizerSection.collapsed = False
        panel.process()
        panel.press(panel.ui.removeDownloadedButton)
        assert panel.logic.background.drain(30)
    return questions


def test_only_a_yes_removes_downloads_and_nothing_else(panel, computer, find):
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


def test_what_is_in_use_is_said(panel, computer, find, monkeypatch):
    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
    press(panel, find, True)
    assert "4.0 MB could not be removed" in panel.ui.statusLabel.text
    assert not computer["fetched"].exists()


def test_a_model_for_research_is_chosen_after_its_licence_was_accepted(
    panel, monkeypatch, tmp_path
):
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


def test_compiled_models_are_found_and_removed(computer, find):
    graph = write(computer["own"].parent.parent / "graphs" / "a.graph", 22_000)
    (compiled,) = (each for each in find() if each.paths == (graph,))
    assert compiled.byteCount == 22_000
    assert removeDownloaded([compiled]) == 22_000
    assert not graph.exists()
    assert computer["own"].exists()
