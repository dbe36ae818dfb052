"""What is missing is said in words, and nothing that Slicer brings is ever replaced."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from PUMITSlicerLib.computing.settings import ComputeMode
from PUMITSlicerLib.installing import dependencies
from PUMITSlicerLib.installing.dependencies import Need, missing, too_old, why_not_installed

LOCAL, REMOTE = ComputeMode.LOCAL, ComputeMode.REMOTE


def having(**versions):
    """`version_of` of a Python that has everything, except what is given."""
    return lambda name: versions.get(
        name.replace("-", "_"), "0.50" if name == "uvicorn" else "9999"
    )


def test_the_requirements_name_what_the_core_is_packaged_with(repository):
    import tomllib

    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    train = project["optional-dependencies"]["train"]
    packaged = {str(Requirement(line)) for line in [*project["dependencies"], *train]}
    assert {str(line) for line in dependencies.requirements(LOCAL)} == packaged


def test_nothing_is_missing_where_everything_is_there():
    assert missing(LOCAL, having()) == []
    assert why_not_installed(LOCAL, having()) == ""


def test_what_is_absent_or_too_old_is_missing():
    needs = missing(LOCAL, having(torch=None, monai="1.0", rich=None))
    assert needs == [
        Need("torch", ">=2.4"),
        Need("monai", ">=1.4", "1.0"),
        Need("rich", ">=13"),
    ]
    assert why_not_installed(LOCAL, having(torch=None, monai="1.0", rich=None)) == (
        "To compute on this machine, torch, monai and rich must be installed into Slicer's Python."
    )


def test_a_local_or_development_version_will_do():
    assert missing(LOCAL, having(torch="2.13.0+cu128", monai="1.6.0.dev3")) == []


def test_a_server_needs_hardly_anything_here():
    assert missing(REMOTE, having(torch=None, monai=None, blosc2=None)) == [Need("blosc2", ">=2.5")]
    assert "To talk to a server, blosc2 must" in why_not_installed(REMOTE, having(blosc2=None))


def test_what_slicer_brings_too_old_is_said_and_not_replaced():
    needs = missing(LOCAL, having(pydicom="2.4.4", torch=None))
    assert too_old(needs) == [
        "This Slicer brings pydicom 2.4.4, but >=3.0 is needed, and it must not be replaced; use a "
        "newer Slicer."
    ]
    assert why_not_installed(LOCAL, having(pydicom="2.4.4", torch=None)) == too_old(needs)[0]


def test_what_slicer_brings_without_an_entry_for_pip_is_there(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    assert dependencies.installed_version("SimpleITK") == "0"
    assert dependencies.installed_version("monai") is None
    names = [need.name for need in missing(LOCAL)]
    assert "SimpleITK" not in names
    assert "monai" in names


def test_constraints_hold_everything_that_is_installed():
    lines = dependencies.constraints([]).splitlines()
    for name in ("numpy", "requests", "torch"):
        assert any(line.lower().startswith(f"{name}==") for line in lines)
    for line in lines:
        Requirement(line)


def test_constraints_free_what_is_to_be_replaced_but_nothing_of_slicers():
    text = dependencies.constraints([Need("monai", ">=9", "1"), Need("numpy", ">=9", "1")]).lower()
    assert "monai==" not in text
    assert "numpy==" in text


@pytest.mark.parametrize(("has_cuda", "least", "most"), [(False, 200, 400), (True, 2500, 3500)])
def test_the_size_depends_on_the_graphics_card(has_cuda, least, most):
    needs = [Need("torch", ">=2.4"), Need("monai", ">=1.4")]
    assert least <= dependencies.megabytes(needs, hasCuda=has_cuda) <= most


def test_looking_imports_nothing_heavy():
    code = (
        "import sys, types\n"
        "i18n = types.ModuleType('slicer.i18n')\n"
        "i18n.tr = lambda text: text\n"
        "sys.modules['slicer'] = types.ModuleType('slicer')\n"
        "sys.modules['slicer.i18n'] = i18n\n"
        "from PUMITSlicerLib.installing import dependencies\n"
        "from PUMITSlicerLib.computing.settings import ComputeMode\n"
        "dependencies.missing(ComputeMode.LOCAL)\n"
        "print(*{'torch', 'monai', 'numpy', 'SimpleITK', 'scipy', 'blosc2'} & set(sys.modules))\n"
    )
    folder = dependencies.REQUIREMENTS.parent.parent
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == ""
