"""The self-test that a user runs in Slicer passes here too, with and without what computes."""

import logging
import sys
import unittest
from collections.abc import Iterator
from typing import Any

import pytest
import slicer
from panel_scene import MODULE


@pytest.fixture
def module(loadModule: Any) -> Iterator[Any]:
    loaded = loadModule(MODULE)
    loaded.widgetRepresentation()
    slicer.util.getModuleWidget("PUMITSegment").enter()
    yield loaded
    slicer.util.getModuleWidget("PUMITSegment").exit()


@pytest.mark.slow
@pytest.mark.usefixtures("module")
def test_the_self_test_passes_with_the_shipped_model():
    pytest.importorskip("torch")
    slicer.modules.PUMITSegmentInstance.runTest(msec=0)


@pytest.mark.usefixtures("module")
def test_each_check_passes_by_itself():
    """Slicer's own runner loads the class and runs its methods one by one."""
    compute = slicer.util.getModuleWidget("PUMITSegment").logic.compute
    compute._whyNotInstalled = lambda mode: "PyTorch is missing."
    tests = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["PUMITSegment"])
    result = unittest.TestResult()
    tests.run(result)
    assert result.testsRun >= 4
    assert not result.errors + result.failures


@pytest.mark.usefixtures("module")
def test_the_self_test_says_what_it_skips_where_nothing_is_installed(caplog):
    compute = slicer.util.getModuleWidget("PUMITSegment").logic.compute
    compute._whyNotInstalled = lambda mode: "PyTorch is missing."
    with caplog.at_level(logging.INFO):
        slicer.modules.PUMITSegmentInstance.runTest(msec=0)
    assert "PyTorch is missing" in caplog.text
