"""The repository keeps its own word: files, lists and versions agree with each other."""

import ast
import fnmatch
import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pumit.cli.main import COMMANDS
from tracked_files import tracked_files

MIB = 1 << 20
# Where an import's name is not its package's.
PACKAGES = {"PIL": "pillow", "yaml": "pyyaml", "skimage": "scikit-image"}


@pytest.fixture
def project(repository: Path) -> dict:
    return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))


MODULES = ("PUMITSegment", "PUMITTrain")


def bundle_of(repository: Path, name: str) -> list[str]:
    """Every file that the extension must bring, relative to its module."""
    module = repository / name
    files = [f for f in tracked_files(repository) if f.is_relative_to(module)]
    names = [f.relative_to(module).as_posix() for f in files]
    return [name for name in names if name != "CMakeLists.txt"]


@pytest.fixture
def bundle(repository: Path) -> list[str]:
    """What the module brings that has the core."""
    return bundle_of(repository, "PUMITSegment")


# Only as much of Slicer as its extensions call, so that CMake itself reads our files.
SLICER_CONFIG = """
file(WRITE "${CMAKE_CURRENT_LIST_DIR}/use.cmake" [=[
macro(slicerMacroBuildScriptedModule)
  cmake_parse_arguments(MODULE "WITH_GENERIC_TESTS" "NAME" "SCRIPTS;RESOURCES" ${ARGN})
  if(MODULE_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "unknown: ${MODULE_UNPARSED_ARGUMENTS}")
  endif()
  message(STATUS "MODULE ${MODULE_NAME}")
  foreach(kind SCRIPTS RESOURCES)
    message(STATUS "${MODULE_NAME} ${kind} ${MODULE_${kind}}")
  endforeach()
endmacro()
macro(slicer_add_python_unittest)
  message(STATUS "UNITTEST ${ARGN}")
endmacro()
]=])
file(WRITE "${CMAKE_CURRENT_LIST_DIR}/end.cmake" "message(STATUS \\"END ${PROJECT_NAME}\\")\\n")
set(Slicer_USE_FILE "${CMAKE_CURRENT_LIST_DIR}/use.cmake")
set(Slicer_EXTENSION_GENERATE_CONFIG "${CMAKE_CURRENT_LIST_DIR}/end.cmake")
set(Slicer_EXTENSION_CPACK "${CMAKE_CURRENT_LIST_DIR}/end.cmake")
"""


def test_cmake_configures_the_extension_with_every_file(repository, tmp_path):
    if shutil.which("cmake") is None or shutil.which("c++") is None:
        pytest.skip("cmake or a C++ compiler is absent")
    slicer, sources = tmp_path / "slicer", tmp_path / "sources"
    slicer.mkdir()
    (slicer / "SlicerConfig.cmake").write_text(SLICER_CONFIG)
    names = ["CMakeLists.txt"]
    for module in MODULES:
        names += [f"{module}/{name}" for name in ("CMakeLists.txt", *bundle_of(repository, module))]
    # What Python, editors and installations leave there.
    left = [
        f"PUMITSegment/{n}" for n in (".x.swp", "a/__pycache__/b.pyc", "p.egg-info/SOURCES.txt")
    ]
    for name in (*names, *left):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        is_made = not name.endswith("CMakeLists.txt")
        (sources / name).touch() if is_made else shutil.copy(repository / name, sources / name)
    command = ["cmake", "-S", str(sources), "-B", str(tmp_path / "build")]
    command += [f"-DSlicer_DIR={slicer}", "-DBUILD_TESTING=ON"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    for module in MODULES:
        assert f"MODULE {module}" in run.stdout
        assert f"UNITTEST SCRIPT;{module}.py" in run.stdout
        bundled = {"SCRIPTS": set[str](), "RESOURCES": set[str]()}
        for name in bundle_of(repository, module):
            bundled["SCRIPTS" if name.endswith(".py") else "RESOURCES"].add(name)
        for kind, expected in bundled.items():
            (found,) = re.findall(rf"{module} {kind} (.*)", run.stdout)
            assert set(found.split(";")) == expected
    assert run.stdout.count("END PUMIT") == 2


def test_package_brings_every_file_that_is_not_python(project, bundle):
    patterns = project["tool"]["setuptools"]["package-data"]["pumit"]
    data = [n.removeprefix("pumit/") for n in bundle if n.startswith("pumit/")]
    data = [n for n in data if not n.endswith(".py")]
    assert data
    assert not [n for n in data if not any(fnmatch.fnmatch(n, p) for p in patterns)]


def test_every_library_that_is_imported_is_declared(repository, project):
    table = project["project"]
    extras = table["optional-dependencies"]
    names = ("train", "sam", "mamba", "server", "dask", "completion")
    optional = [req for name in names for req in extras[name]]
    required = [*table["dependencies"], *optional]
    declared = {canonicalize_name(Requirement(requirement).name) for requirement in required}
    imported = set()
    for file in (repository / "PUMITSegment" / "pumit").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    imported -= set(sys.stdlib_module_names) | {"pumit"}
    needed = {canonicalize_name(PACKAGES.get(name, name)) for name in imported}
    assert needed <= declared


def test_slicer_is_requested_the_same_versions(repository, project):
    required = {}
    for name in ("requirements.txt", "requirements-train.txt"):
        text = (repository / "PUMITSegment" / "Resources" / name).read_text()
        required[name] = sorted(line for line in text.splitlines() if not line.startswith("#"))
    assert required["requirements.txt"] == sorted(project["project"]["dependencies"])
    # torch comes through Slicer's PyTorch extension, which picks the build for the GPU.
    train = project["project"]["optional-dependencies"]["train"]
    assert required["requirements-train.txt"] == sorted(r for r in train if "torch" not in r)


def test_constraints_hold_a_version_of_everything_that_is_requested(repository, project):
    lines = (repository / ".ci" / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    versions = {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in pins}
    assert len(versions) == len(pins)
    extras = project["project"]["optional-dependencies"]
    tested = [r for name in extras if name != "mamba" for r in extras[name]]  # that needs a GPU
    tested.remove("pumit[test-light]")  # an extra that another one holds
    required = [*project["project"]["dependencies"], *tested]
    for requirement in map(Requirement, required):
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_licence_is_the_whole_apache_licence(repository, project):
    text = (repository / "LICENSE").read_bytes()
    # The text that apache.org publishes.
    published = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    assert hashlib.sha256(text).hexdigest() == published
    assert (repository / "LICENSES" / "Apache-2.0.txt").read_bytes() == text
    assert project["project"]["license"] == (
        "Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND CC-BY-NC-SA-4.0 AND ISC AND MIT"
    )


def test_continuous_integration_calls_the_readmes_test_command(repository):
    last = (repository / ".ci" / "run").read_text().rstrip().splitlines()[-1]
    assert last == "exec python3 scripts/test.py"


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/command_line.md"])
def test_commands_of_pages_exist_with_their_options(repository, page):
    import argparse

    text = (repository / page).read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL))
    lines = blocks.replace("\\\n", " ").splitlines()
    shown = [line.split("#")[0].split() for line in lines if line.startswith("pumit ")]
    assert {words[1] for words in shown} >= {"segment", "train" if page == "README.md" else "serve"}
    for words in shown:
        parser = argparse.ArgumentParser()
        import_module(COMMANDS[words[1]][0]).add_arguments(parser)
        known = {option for action in parser._actions for option in action.option_strings}
        used = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert used <= known, words


def test_no_file_names_a_machines_folders(repository):
    machine = re.compile(r"(^|[^A-Za-z0-9_.])/(work|root|farm|home/[a-z]+)/|/tmp/w/", re.MULTILINE)
    itself = Path(__file__).resolve()
    for file in tracked_files(repository):
        if file.suffix not in {".png", ".gif", ".gz", ".mrb", ".safetensors"} and file != itself:
            assert not machine.search(file.read_text(encoding="utf-8")), file


def test_tree_holds_no_scans_and_nothing_large(repository):
    scans = (".nii", ".nii.gz", ".dcm", ".nrrd", ".mha", ".npz")
    files = tracked_files(repository)
    assert not [file for file in files if file.name.endswith(scans)]
    weights = [file for file in files if file.suffix == ".safetensors"]
    for file in weights:
        assert file.stat().st_size <= (24 if file.stem == "default" else 12) * MIB
    assert sum(file.stat().st_size for file in weights) <= 40 * MIB
    others = [file for file in files if file not in weights]
    assert not [file for file in others if file.stat().st_size > 2 * MIB]
