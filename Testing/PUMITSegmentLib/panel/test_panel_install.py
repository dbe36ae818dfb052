"""The first run: what is missing is explained, and installed only when the user says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import slicer
from panel_scene import Panel
from PUMITSlicerLib.computing import settings

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


@pytest.fixture
def first(loadModule: Any) -> Iterator[FirstRun]:
    first = FirstRun(loadModule)
    yield first
    first.close()


def test_what_is_missing_is_explained_and_installed_with_a_log_by_one_press(
    first: FirstRun,
) -> None:
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


def test_installing_can_be_cancelled_and_tried_again_after_a_failure(first: FirstRun) -> None:
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


def test_an_empty_wheel_folder_says_what_it_lacks(first: FirstRun, tmp_path: Any) -> None:
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


def test_without_the_pytorch_extension_it_says_so_and_asks(first: FirstRun) -> None:
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


@pytest.fixture
def small(loadModule: Any) -> Iterator[SmallRun]:
    small = SmallRun(loadModule)
    yield small
    small.close()


@pytest.mark.parametrize("has_driver", [True, False])
def test_torch_is_offered_first_where_a_cuda_gpu_is(
    loadModule: Any, monkeypatch: pytest.MonkeyPatch, has_driver: bool
) -> None:
    monkeypatch.setattr(settings, "has_cuda_driver", lambda: has_driver)
    panel = Panel(loadModule)
    assert panel.ui.withTorchCheckBox.checked is has_driver
    panel.close()


def test_the_small_installation_has_no_torch_and_makes_it_ready(small: SmallRun) -> None:
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


def test_torch_can_be_added_later_while_clicks_go_on(small: SmallRun) -> None:
    small.installed = True
    small.logic.compute.checkInstalled()
    small.settle()
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
    assert small.names == ["light-the-torch", "torch", "2 packages"]
    assert not small.ui.installButton.enabled
