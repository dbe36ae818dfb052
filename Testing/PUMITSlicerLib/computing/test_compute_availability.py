"""Devices and models are listed by a program, and a program that fails is one sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fake_compute import MemoryStore, wait_for
from pumit.errors import ServiceError
from PUMITSlicerLib.computing import availability as compute_offer
from PUMITSlicerLib.computing.availability import Availability, AvailableDevice, read_availability
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.computing.compute import Compute
from PUMITSlicerLib.computing.python_executable import SlicerPython


@pytest.mark.slow
def test_this_machine_offers_its_processor_and_the_model_that_ships():
    available = read_availability(SlicerPython(sys.executable))
    assert available.devices[-1] == AvailableDevice("cpu", "Processor")
    default = next(model for model in available.models if model.name == "default")
    assert (default.kind, default.isHere) == ("promptable", True)
    assert default.description


def test_titles_say_what_a_graphics_card_is(monkeypatch):
    line = (
        b'warning\n{"devices": [{"name": "cuda:1", "title": "NVIDIA X", "memory_bytes": 24e9},'
        b' {"name": "mps", "title": "", "memory_bytes": null}], "models": []}\n'
    )
    answer = subprocess.CompletedProcess([], 0, line, b"")
    monkeypatch.setattr(compute_offer.subprocess, "run", lambda *args, **options: answer)
    assert read_availability(SlicerPython(sys.executable)) == Availability(
        (
            AvailableDevice("cuda:1", "NVIDIA X, 24 GB (cuda:1)"),
            AvailableDevice("mps", "Apple GPU (mps)"),
        ),
        (),
    )


@pytest.mark.parametrize(
    ("python", "environment"),
    [("/no/such/python", None), (sys.executable, {"PYTHONHOME": "/no/such/folder"})],
)
def test_what_cannot_be_listed_is_one_sentence(python, environment):
    with pytest.raises(ServiceError, match="automatic choice still works"):
        read_availability(SlicerPython(python, environment))


def test_it_is_requested_next_to_the_gui_and_only_where_all_is_installed():
    background, reports = Background(), []
    missing, available = ["Something is missing."], Availability((), ())
    compute = Compute(
        background,
        MemoryStore(),
        whyNotInstalled=lambda mode: missing[0],
        readAvailability=lambda: available,
    )
    compute.listAvailable(reports.append, reports.append)
    assert wait_for(background, lambda: reports)
    assert str(reports[0]) == "Something is missing."
    missing[0] = ""
    compute.listAvailable(reports.append, reports.append)
    assert wait_for(background, lambda: len(reports) == 2)
    assert reports[1] is available
    background.close()
