"""What is missing is said in words, and nothing that Slicer brings is ever replaced."""

import importlib.metadata
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import slicer
from packaging.requirements import Requirement
from pumit.errors import ServiceError
from PUMITSlicerLib.computing import dependencies
from PUMITSlicerLib.computing.dependencies import Need, missing, too_old, why_not_installed
from PUMITSlicerLib.computing.python_executable import (
    find_python,
    module_folder,
    program_environment,
)
from PUMITSlicerLib.computing.settings import ComputeMode

LOCAL, REMOTE = ComputeMode.LOCAL, ComputeMode.REMOTE


def having(**versions):
    """`version_of` of a Python that has everything, except what is given."""
    return lambda name: versions.get(
        name.replace("-", "_"), "0.50" if name == "uvicorn" else "9999"
    )


def test_nothing_is_missing_where_everything_is_there():
    assert missing(LOCAL, having()) == []
    assert why_not_installed(LOCAL, having()) == ""


def test_what_is_absent_or_too_old_is_missing():
    needs = missing(LOCAL, having(torch=None, monai="1.0", rich=None), withTorch=True)
    assert needs == [
        Need("torch", ">=2.4"),
        Need("monai", ">=1.4", "1.0"),
        Need("rich", ">=13"),
    ]
    version_of = having(torch=None, monai="1.0", rich=None)
    assert "torch, monai and rich" in why_not_installed(LOCAL, version_of, withTorch=True)


def test_clicking_needs_no_torch():
    assert missing(LOCAL, having(torch=None, monai=None, einops=None)) == []
    why = why_not_installed(LOCAL, having(torch=None, rich=None))
    assert " rich " in why
    assert "torch" not in why


def test_the_small_installation_is_as_small_as_is_said():
    """112 MB were measured, without what Slicer brings."""
    bundled = dict.fromkeys(("numpy", "scipy", "SimpleITK", "requests", "pydicom"), "9999")
    needs = missing(LOCAL, lambda name: {**bundled, "pillow": "9999"}.get(name))
    assert 100 <= dependencies.megabytes(needs, hasCuda=True) <= 125


def test_a_local_or_development_version_will_do():
    assert missing(LOCAL, having(torch="2.13.0+cu128", monai="1.6.0.dev3"), withTorch=True) == []


def test_a_server_needs_hardly_anything_here():
    none = having(torch=None, monai=None, blosc2=None, scikit_image=None)
    needs = [Need("scikit-image", ">=0.22"), Need("blosc2", ">=2.5")]
    assert sorted(missing(REMOTE, none), key=str) == sorted(needs, key=str)
    assert " blosc2 " in why_not_installed(REMOTE, having(blosc2=None))


def test_what_slicer_brings_too_old_is_said_and_not_replaced():
    needs = missing(LOCAL, having(pydicom="2.4.4", torch=None))
    (sentence,) = too_old(needs)
    assert all(word in sentence for word in ("pydicom 2.4.4", ">=3.0", "newer Slicer"))
    assert why_not_installed(LOCAL, having(pydicom="2.4.4", torch=None)) == sentence


def test_what_slicer_brings_with_known_faults_will_do_and_is_named():
    version_of = having(SimpleITK="2.5.0", pillow="11.3.0", rich="14")
    assert missing(LOCAL, version_of) == []
    first, second = dependencies.known_faults(version_of)
    assert all(word in first for word in ("SimpleITK 2.5.0", ">=2.5.7", "newer Slicer"))
    assert "pillow 11.3.0" in second
    assert dependencies.known_faults(having()) == []
    # Where it is not there at all, the repaired one is installed.
    assert missing(LOCAL, having(pillow=None)) == [Need("pillow", ">=12.3")]


def test_the_version_of_a_loaded_module_is_judged_where_pip_knows_none(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    monkeypatch.setitem(sys.modules, "SimpleITK", SimpleNamespace(__version__="2.5.0"))
    monkeypatch.setattr(dependencies.importlib.util, "find_spec", lambda name: object())
    assert "SimpleITK 2.5.0" in dependencies.known_faults()[0]


def test_what_slicer_brings_without_an_entry_for_pip_is_there(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    assert dependencies.installed_version("SimpleITK") == "0"
    assert dependencies.installed_version("monai") is None
    names = [need.name for need in missing(LOCAL, withTorch=True)]
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
        "from PUMITSlicerLib.computing import dependencies\n"
        "from PUMITSlicerLib.computing.settings import ComputeMode\n"
        "dependencies.missing(ComputeMode.LOCAL)\n"
        "print(*{'torch', 'monai', 'numpy', 'SimpleITK', 'scipy', 'blosc2'} & set(sys.modules))\n"
    )
    folder = dependencies.RESOURCES.parent
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == ""


posix_only = pytest.mark.skipif(sys.platform == "win32", reason="makes an executable file")


def make_program(folder):
    folder.mkdir(parents=True)
    program = folder / "PythonSlicer"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return str(program)


@posix_only
def test_slicers_python_is_found_on_the_path(tmp_path, monkeypatch):
    program = make_program(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_python() == program


@posix_only
def test_slicers_python_is_found_next_to_slicer(tmp_path, monkeypatch):
    program = make_program(tmp_path / "bin")
    monkeypatch.setenv("PATH", "")
    app = SimpleNamespace(slicerHome=str(tmp_path))
    monkeypatch.setattr(slicer, "app", app, raising=False)
    assert find_python() == program


def test_outside_slicer_this_python_will_do(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3.12")
    assert find_python() == "/usr/bin/python3.12"


def test_slicer_itself_is_no_python(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/opt/Slicer/bin/SlicerApp-real")
    with pytest.raises(ServiceError, match="PythonSlicer"):
        find_python()


def test_a_program_gets_slicers_paths_but_not_what_is_meant_for_its_window(monkeypatch):
    for name in ("PYTHONSTARTUP", "PYTHONINSPECT", "QT_PLUGIN_PATH", "QML2_IMPORT_PATH"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("PYTHONHOME", "kept")
    monkeypatch.setenv("LD_LIBRARY_PATH", "kept")
    environment = program_environment()
    assert environment["PYTHONHOME"] == environment["LD_LIBRARY_PATH"] == "kept"
    assert not {"PYTHONSTARTUP", "PYTHONINSPECT", "QT_PLUGIN_PATH", "QML2_IMPORT_PATH"} & set(
        environment
    )
    assert os.environ["PYTHONSTARTUP"] == "x"


def test_the_core_lies_in_the_folder_that_programs_are_given(repository):
    assert module_folder() == str(repository / "PUMITSegment")
