"""What the two commands of the README and the site's install: `scripts/environment.py`."""

import re
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import pytest
from packaging.specifiers import SpecifierSet
from repository_scripts import script


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[ModuleType]:
    """With its own folder for `.venv`, and a Python there that runs."""
    with pytest.MonkeyPatch.context() as patch:
        module = script("environment")
        patch.setattr(module, "VENV", tmp_path)
        patch.setattr(module, "_runs", lambda executable: True)
        yield module


@pytest.fixture
def requirements(environment: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Requirements that pip is given, in their order."""
    found: list[str] = []
    monkeypatch.setattr(environment, "_pip", lambda *given: found.append(given[-1]) or True)
    return found


@pytest.mark.parametrize(
    ("purpose", "extras"), [("demo", ""), ("docs", "[docs]"), ("light", "[test-light]")]
)
def test_only_all_tests_need_torch(repository, environment, requirements, purpose, extras):
    environment.prepare(purpose)
    assert requirements == [f"{repository}{extras}"]
    environment.prepare(purpose)
    assert len(requirements) == 1


def test_torch_comes_first_and_by_its_version(environment, requirements):
    environment.prepare("tests")
    assert requirements[0].startswith("torch==")
    assert "[train,test,docs" in requirements[1]


def test_what_the_tests_need_is_enough_for_the_site(environment, requirements):
    environment.prepare("tests")
    requirements.clear()
    environment.prepare("docs")
    environment.prepare("demo")
    environment.prepare("light")
    assert requirements == []


def test_pinned_versions_install_on_the_oldest_python_that_is_named(repository):
    readme = (repository / "README.md").read_text(encoding="utf-8")
    (minor,) = re.findall(r"Python (3\.\d+) or newer", readme)
    project = (repository / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={minor}"' in project
    lines = (repository / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {line.split("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    too_new = {}
    for found in distributions():
        # A newer importlib_metadata raises for a field that is not there.
        needs = found.metadata.get("Requires-Python")
        name = found.metadata["Name"].lower().replace("_", "-")
        # Debian 12 has 3.11.2.
        if name in pins and needs and not SpecifierSet(needs).contains(f"{minor}.2"):
            too_new[name] = needs
    assert not too_new
