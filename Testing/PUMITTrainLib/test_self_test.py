"""The self-test that a user runs in Slicer passes here too, with and without what computes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import slicer

MODULES = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def module(loadModule: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("PUMIT_RUNS", str(tmp_path / "runs"))
    loaded = loadModule(MODULES / "PUMITTrain" / "PUMITTrain.py")
    loaded.widgetRepresentation()
    slicer.util.getModuleWidget("PUMITTrain").enter()
    yield loaded
    slicer.util.getModuleWidget("PUMITTrain").exit()


@pytest.mark.slow
@pytest.mark.usefixtures("module")
def test_the_self_test_passes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    slicer.modules.PUMITTrainInstance.runTest(msec=0)


@pytest.mark.usefixtures("module")
def test_the_self_test_says_what_it_skips_where_nothing_is_installed(
    caplog: Any,
) -> None:
    logic = slicer.util.getModuleWidget("PUMITTrain").logic
    object.__setattr__(logic._parts, "whyNotInstalled", lambda: "PyTorch is missing.")
    with caplog.at_level(logging.INFO):
        slicer.modules.PUMITTrainInstance.runTest(msec=0)
    assert "PyTorch is missing" in caplog.text
