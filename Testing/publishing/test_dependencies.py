"""The list of dependencies with their known faults, against what is required and tested."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

# Extras of those who change PUMIT, which no one gets who uses it; `mamba` compiles for one GPU.
NOT_FOR_USERS = {"test", "test-light", "docs", "slicer-test", "mamba"}
Row = tuple[str, str, str, str, str]


@pytest.fixture(scope="module")
def rows(repository: Path) -> list[Row]:
    """Name, faults, repaired in, required, reason."""
    page = repository / "docs" / "explanation" / "dependencies.md"
    cells = re.findall(r"^\| ([^|]+) \|(.*)\|(.*)\|(.*)\|(.*)\|$", page.read_text("utf-8"), re.M)
    return [tuple(cell.strip() for cell in row) for row in cells][1:]


@pytest.fixture(scope="module")
def required(repository: Path) -> dict[str, Requirement]:
    """What users install, by name."""
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"].items()
    lines = [line for name, extra in extras if name not in NOT_FOR_USERS for line in extra]
    found = [Requirement(line) for line in (*project["dependencies"], *lines)]
    return {canonicalize_name(each.name): each for each in found if each.name != "pumit"}


@pytest.fixture(scope="module")
def tested(repository: Path) -> dict[str, Version]:
    """What the tests, the Docker image and the server's instructions install."""
    lines = (repository / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split(";")[0].strip().split("==") for line in lines if "==" in line]
    return {canonicalize_name(name): Version(version) for name, version in pins}


def lowest(requirement: Requirement) -> Version:
    (bound,) = [s.version for s in requirement.specifier if s.operator == ">="]
    return Version(bound)


def test_nothing_is_tested_that_has_a_known_fault(rows, tested):
    checked = [(name, Version(repaired)) for name, _, repaired, *_ in rows if repaired]
    assert checked
    assert not [name for name, repaired in checked if tested[name] < repaired]


def test_an_older_version_is_taken_only_with_a_reason(rows, required):
    for name, _faults, repaired, bound, reason in rows:
        if not repaired or name not in required:
            continue
        assert lowest(required[name]) == Version(bound), name
        if Version(bound) < Version(repaired):
            assert re.search(r"Slicer's own|not used|it refuses", reason), name


def test_what_is_said_not_to_be_called_is_not_called(repository):
    """The reasons on the page."""
    forbidden = re.compile(
        r"FileSet|monai\.(bundle|data|apps)|verify=False|import pickle|\btorch\.load\("
    )
    # Which asks for a PyTorch without the known faults: `test_swin_unetr_file.py`.
    one = repository / "PUMITSegment" / "pumit" / "models" / "public_weights.py"
    for folder in ("PUMITSegment", "PUMITTrain"):
        for file in set((repository / folder).rglob("*.py")) - {one}:
            assert not forbidden.search(file.read_text(encoding="utf-8")), file
