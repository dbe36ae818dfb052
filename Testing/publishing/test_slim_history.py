"""The history as it is published: without the weights and pictures that others replaced."""

import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from repository_scripts import script


@pytest.fixture
def slim_history() -> Iterator[ModuleType]:
    """`scripts/slim_history.py`, and someone who commits."""
    if importlib.util.find_spec("git_filter_repo") is None:
        pytest.skip("git-filter-repo is not installed")
    with pytest.MonkeyPatch.context() as patch:
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "Somebody")
            patch.setenv(f"GIT_{role}_EMAIL", "somebody@example.org")
        yield script("slim_history")


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_replaced_weights_go_and_pages_name_the_same_commits(slim_history, tmp_path):
    source = tmp_path / "source"
    git(tmp_path, "init", "--quiet", str(source))
    for version in ("first", "second"):
        (source / "a.safetensors").write_bytes(version.encode() + os.urandom(50_000))
        git(source, "add", "--all")
        git(source, "commit", "--quiet", "-m", version)
    measured = git(source, "rev-parse", "HEAD")
    (source / "README.md").write_text(f"Measured at `{measured[:7]}`, not at `abcdef0`.\n")
    git(source, "add", "--all")
    git(source, "commit", "--quiet", "-m", "third")
    before = git(source, "rev-parse", "HEAD")

    weighs = slim_history.slim(source, tmp_path / "slim")

    slim = tmp_path / "slim"
    history = git(slim, "log", "--format=%s").splitlines()
    assert history == [slim_history.MESSAGE, "third", "second", "first"]
    blobs = git(slim, "rev-list", "--objects", "--all").splitlines()
    assert len([line for line in blobs if line.endswith(".safetensors")]) == 1
    page = (slim / "README.md").read_text()
    (named,) = re.findall(r"Measured at `(\w{7})`, not at `abcdef0`", page)
    assert git(slim, "log", "-1", "--format=%s", named) == "second"
    assert (slim / "a.safetensors").read_bytes() == (source / "a.safetensors").read_bytes()
    assert weighs < 180_000
    assert git(source, "rev-parse", "HEAD") == before
