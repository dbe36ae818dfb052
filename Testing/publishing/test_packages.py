"""The wheel and the source archive: what is in them, and that the wheel works by itself."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pumit
import pytest
import yaml
from absent_torch import WITHOUT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from tracked_files import tracked_files

MIB = 1 << 20
REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = ("PUMITSegment", "README.md", "LICENSE", "LICENSES", "REUSE.toml", "pyproject.toml")
_BUILD = "import sys; from setuptools import build_meta as b; print(b.build_{kind}(sys.argv[1]))"


@pytest.fixture(scope="module")
def sources(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is tracked, so that building leaves nothing next to it."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed")
    folder = tmp_path_factory.mktemp("sources")
    for file in tracked_files(repository):
        name = file.relative_to(repository)
        if name.parts[0] in SOURCES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / name)
    return folder


def built(sources: Path, kind: str, out: Path) -> Path:
    command = [sys.executable, "-c", _BUILD.format(kind=kind), str(out)]
    run = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return out / run.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(sources, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_wheel_holds_the_core_whole_and_nothing_else(repository, wheel):
    core = repository / "PUMITSegment"
    inside = {
        file.relative_to(core).as_posix()
        for file in tracked_files(repository)
        if file.is_relative_to(core / "pumit")
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == inside
    assert wheel.name == f"pumit-{pumit.__version__}-py3-none-any.whl"
    assert wheel.stat().st_size < 40 * MIB


@pytest.mark.slow
def test_source_archive_builds_the_same_wheel(sources, wheel, tmp_path):
    archive = built(sources, "sdist", tmp_path)
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    (folder,) = (tmp_path / "unpacked").iterdir()
    again = built(folder, "wheel", tmp_path)
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


@pytest.mark.slow
def test_wheel_builds_from_what_the_dockerfile_copies(repository, wheel, tmp_path):
    """The first stage of the image, without Docker, which nothing here has run."""
    dockerfile = (repository / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    stage = dockerfile.rpartition("\nFROM ")[0]
    assert "pip wheel --no-cache-dir --no-deps -w /wheels ." in stage
    for line in re.findall(r"^COPY (.+)$", stage, re.MULTILINE):
        *copied, target = line.split()
        for name in copied:
            source = repository / name
            place = tmp_path / "src" / (target if source.is_dir() else Path(name).name)
            (shutil.copytree if source.is_dir() else _copy)(source, place)
    again = built(tmp_path / "src", "wheel", tmp_path)
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        names = [
            {name for name in archive.namelist() if "__pycache__" not in name}
            for archive in (one, other)
        ]
    assert names[0] == names[1]


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def test_a_linter_finds_nothing_in_the_dockerfile(repository, tmp_path):
    own_linter = Path(sys.executable).parent / "hadolint"
    linter = str(own_linter) if own_linter.exists() else shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed")
    dockerfile = repository / "deploy" / "Dockerfile"
    run = subprocess.run([linter, dockerfile], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    # It does look: an image without a version, and a relative folder, are faults.
    text = dockerfile.read_text(encoding="utf-8").replace("WORKDIR /src", "WORKDIR src")
    (tmp_path / "Dockerfile").write_text(text.replace(":3.12-slim", "", 1))
    worse = [linter, tmp_path / "Dockerfile"]
    found = subprocess.run(worse, capture_output=True, text=True, check=False)
    assert {"DL3000", "DL3006"} <= set(re.findall(r"DL\d+", found.stdout))


# Packages that conda-forge calls otherwise, and what an environment has anyway.
ON_CONDA = {"blosc2": "python-blosc2", "matplotlib": "matplotlib-base"}


def test_conda_recipe_is_one_for_its_builder(repository):
    """rattler-build's own parser reads and renders it; an unknown key is an error."""
    builder = pytest.importorskip("rattler_build", reason="py-rattler-build is not installed")
    recipe = repository / "deploy" / "conda" / "recipe.yaml"
    (rendered,) = builder.Stage0Recipe.from_file(str(recipe)).render()
    rendered_recipe = rendered.recipe.to_dict()
    assert rendered_recipe["package"] == {"name": "pumit", "version": pumit.__version__}
    assert rendered_recipe["build"]["noarch"] == "python"
    with pytest.raises(builder.RattlerBuildError):
        builder.Stage0Recipe.from_yaml(recipe.read_text().replace("\nbuild:", "\nbuilt:"))


def test_conda_recipe_asks_for_what_the_wheel_asks_for(repository):
    recipe = yaml.safe_load((repository / "deploy" / "conda" / "recipe.yaml").read_text())
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    lines = text.partition("\ndependencies = [")[2].partition("\n]")[0].splitlines()
    required = [Requirement(line.strip(' ",')) for line in lines if line.strip().startswith('"')]
    expected = {(ON_CONDA.get(r.name.lower(), r.name.lower()), str(r.specifier)) for r in required}
    given = [line.split(" ") for line in recipe["requirements"]["run"]]
    found = {(name, str(SpecifierSet(bounds))) for name, bounds in given if name != "python"}
    assert found == expected
    (python,) = [bounds for name, bounds in given if name == "python"]
    assert f'requires-python = "{python}"' in text


def required_by_the_wheel() -> set[str]:
    """Names of the distributions that an empty environment would get with it."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = set[tuple[str, str]]()
    waiting = [(line, "") for line in project["dependencies"]]
    while waiting:
        line, extra = waiting.pop()
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in {("", name), *((each, name) for each in requirement.extras)} - found:
            found.add(wanted)
            waiting += [(each, wanted[0]) for each in requires(name) or []]
    return {name for _extra, name in found}


@pytest.mark.slow
def test_wheel_alone_segments_with_no_more_than_it_asks_for(wheel, tmp_path):
    """Of this environment only what an empty one would get: no PyTorch."""
    needed = required_by_the_wheel()
    absent = {
        module
        for module, names in packages_distributions().items()
        if not {canonicalize_name(name) for name in names} & needed
    }
    assert {"torch", "monai"} <= absent
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    code = f"{WITHOUT}\nABSENT |= {absent - {'pumit'}!r}\n" + (
        f"import pumit\nassert pumit.__file__.startswith({str(tmp_path)!r})\n"
        "from pumit.cli.main import main\nsys.exit(main())"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    demo = subprocess.run(
        [sys.executable, "-c", code, "demo", "-o", "out", "--json"],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert demo.returncode == 0, demo.stderr[-2000:]
    assert json.loads(demo.stdout)["dice_after_one_click"]["liver"] > 0.5
    assert (tmp_path / "out" / "segmentation.dcm").is_file()
