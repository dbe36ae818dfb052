"""The scripts of Testing/lab still start, and use no name that is gone."""

import ast
import importlib
import io
import runpy
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from tracked_files import tracked_files

FOLDER = Path(__file__).resolve().parent / "lab"
FILES = [file for file in tracked_files(FOLDER.parent.parent) if FOLDER in file.parents]
SCRIPTS = sorted(file for file in FILES if file.suffix == ".py")
BENCHMARKS = [file for file in SCRIPTS if "__main__" in file.read_text(encoding="utf-8")]
# Packages of this project; another project's may be absent.
OURS = ("pumit", "PUMITSlicerLib", "PUMITSegmentLib", "PUMITTrainLib")


def named(file: Path) -> str:
    return file.relative_to(FOLDER).as_posix()


def imported(script: Path) -> Iterator[tuple[str, str]]:
    """Module and name of what a script imports of ours, also within functions."""
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            yield from ((node.module or "", alias.name) for alias in node.names)


def is_there(module: str, name: str) -> bool:
    try:
        if hasattr(importlib.import_module(module), name):
            return True
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


def test_every_name_that_a_benchmark_imports_is_there():
    assert len(SCRIPTS) > 30
    uses = {(named(script), *use) for script in SCRIPTS for use in imported(script)}
    assert not [use for use in sorted(uses) if not is_there(*use[1:])]


@pytest.mark.slow
@pytest.mark.parametrize("script", BENCHMARKS, ids=named)
def test_every_benchmark_tells_how_it_is_used(script, monkeypatch):
    monkeypatch.setattr(sys, "argv", [script.name, "--help"])
    monkeypatch.setattr(sys, "path", [str(script.parent), *sys.path])
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), pytest.raises(SystemExit) as ended:
            runpy.run_path(str(script), run_name="__main__")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in OURS:
            raise
        pytest.skip(f"needs {error.name}")
    assert not ended.value.code
    assert "usage" in printed.getvalue()
