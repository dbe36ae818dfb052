"""A release: the same bytes from the same commit, a list of its parts, and true licences."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from repository_scripts import script
from tracked_files import tracked_files

MODELS = "PUMITSegment/pumit/models"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed")
    return script("release")


def licence_of(name: str, table: list[dict[str, Any]]) -> str:
    """A file's licence by the table: the last match counts."""
    found = ""
    for row in table:
        paths = [row["path"]] if isinstance(row["path"], str) else row["path"]
        if any(fnmatch(name, path) for path in paths):
            found = row["SPDX-License-Identifier"]
    return found


@pytest.fixture(scope="module")
def table(repository: Path) -> list[dict[str, Any]]:
    return tomllib.loads((repository / "REUSE.toml").read_text("utf-8"))["annotations"]


def test_every_model_has_the_licence_that_the_index_says(repository, release, table):
    index = yaml.safe_load((repository / MODELS / "index.yaml").read_text("utf-8"))["models"]
    assert len(index) >= 7
    for row in index:
        assert licence_of(f"{MODELS}/{row['file']}", table) == release.spdx_of(row["licence"])


def test_every_licence_of_a_file_has_its_text(repository, table):
    names = [file.relative_to(repository).as_posix() for file in tracked_files(repository)]
    used = {part for n in names for part in licence_of(n, table).split(" AND ")}
    texts = {path.stem for path in (repository / "LICENSES").glob("*.txt")}
    assert used == texts
    for row in table:
        paths = [row["path"]] if isinstance(row["path"], str) else row["path"]
        assert all(any(fnmatch(name, path) for name in names) for path in paths), row["path"]


def test_the_package_states_the_licences_of_all_that_is_in_it(repository, table):
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    core = repository / "PUMITSegment" / "pumit"
    inside = [f for f in tracked_files(repository) if f.is_relative_to(core)]
    names = [f.relative_to(repository).as_posix() for f in inside]
    used = {part for name in names for part in licence_of(name, table).split(" AND ")}
    assert set(project["license"].split(" AND ")) == used
    for licence in used:
        assert f"LICENSES/{licence}.txt" in project["license-files"]
    recipe = yaml.safe_load((repository / "deploy" / "conda" / "recipe.yaml").read_text())
    assert recipe["about"]["license"] == project["license"]


@pytest.mark.slow
def test_a_commit_gives_the_same_bytes_twice(repository, release, tmp_path):
    """From another folder, at another time, under another umask and in another time zone."""
    clone = tmp_path / "elsewhere" / "clone"
    command = ["git", "clone", "--quiet", "--depth", "1", repository.as_uri(), str(clone)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no git repository to clone")
    (tmp_path / "one").mkdir()
    wheel = release.build_wheel(repository, tmp_path / "one")
    # Remains of other builds are not taken along.
    (clone / "PUMITSegment" / "pumit" / "rest.py").write_text("")
    command = [sys.executable, "scripts/release.py", str(tmp_path / "other")]
    changed = {"umask": 0o077} if os.name == "posix" else {}
    environment = {**os.environ, "TZ": "Asia/Tokyo"}
    subprocess.run(command, cwd=clone, env=environment, check=True, capture_output=True, **changed)
    assert (tmp_path / "other" / wheel.name).read_bytes() == wheel.read_bytes()
    # 2. The list of parts.
    parts = release.bill_of_materials(wheel, release.commit_time(repository))
    named = {canonicalize_name(c["name"]): c for c in parts["components"]}
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    for requirement in map(Requirement, project["dependencies"]):
        name = canonicalize_name(requirement.name)
        assert named[name]["version"] == version(name)
        assert named[name]["licenses"], name
    assert [c["name"] for c in named["simpleitk"]["components"]] == ["ITK", "GDCM"]
    index = yaml.safe_load((repository / MODELS / "index.yaml").read_text("utf-8"))["models"]
    for row in index:
        model = named[row["name"]]
        assert model["type"] == "machine-learning-model"
        assert model["hashes"] == [{"alg": "SHA-256", "content": row["sha256"]}]
    refs = {c["bom-ref"] for c in (*parts["components"], parts["metadata"]["component"])}
    for row in parts["dependencies"]:
        assert {row["ref"], *row["dependsOn"]} <= refs
    (licence,) = parts["metadata"]["component"]["licenses"]
    assert licence == {"expression": project["license"]}
    # 3. The texts of the licences are in the wheel.
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for file in project["license-files"]:
        assert any(name.endswith(f".dist-info/licenses/{file}") for name in names), file


def test_every_action_is_named_by_its_commit(repository):
    for workflow in (repository / ".github" / "workflows").glob("*.yml"):
        uses = re.findall(r"uses: (.+)$", workflow.read_text("utf-8"), re.MULTILINE)
        assert uses, workflow.name
        for action in uses:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action
