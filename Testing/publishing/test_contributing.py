"""What a contributor and a host of repositories find: templates, workflows, versions."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pumit
import pytest
import yaml

WORKFLOWS = ".github/workflows/tests.yml"
OTHER_WORKFLOWS = [
    f".github/workflows/{name}.yml" for name in ("audit", "nightly", "release", "scorecard")
]
GITLAB = ".gitlab-ci.yml"
TEMPLATES = ".github/ISSUE_TEMPLATE"


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", [WORKFLOWS, *OTHER_WORKFLOWS]),
        ("gitlab-ci", [GITLAB]),
        ("github-issue-forms", [f"{TEMPLATES}/fault.yml", f"{TEMPLATES}/wish.yml"]),
        ("github-issue-config", [f"{TEMPLATES}/config.yml"]),
        ("citation-file-format", ["CITATION.cff"]),
    ],
)
def test_files_for_the_host_fit_their_schema(repository, schema, files):
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema is not installed")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    run = subprocess.run(
        [*command, *files], cwd=repository, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout


def test_a_linter_finds_nothing_in_the_workflows(repository):
    installed = Path(sys.executable).parent / "zizmor"
    linter = str(installed) if installed.exists() else shutil.which("zizmor")
    if linter is None:
        pytest.skip("zizmor is not installed")
    command = [linter, "--offline", "--quiet", "."]
    run = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def test_the_version_is_the_same_everywhere(repository):
    notes = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date = re.findall(r"^## (\d+\.\d+\.\d+) \((.+)\)$", notes, re.MULTILINE)[0]
    assert version == pumit.__version__
    citation = yaml.safe_load((repository / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version
    released = citation["date-released"]
    assert f"{released.day} {released:%B} {released.year}" == date
    assert citation["license"] == "Apache-2.0"


def test_folders_and_commands_of_the_contributors_page_exist(repository):
    page = (repository / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:PUMIT[ST]|Testing|docs|scripts|deploy)[\w/.]*)`", page):
        assert (repository / name).exists() or (repository / "PUMITSegment" / name).exists(), name
    for script in re.findall(r"python3 (scripts/\w+\.py)", page):
        assert (repository / script).is_file(), script
