"""What is known of Windows and macOS without them."""

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository_scripts import script

# Modules of the standard library that only some systems have.
ELSEWHERE_ABSENT = {
    *("fcntl", "grp", "nis", "posix", "pty", "pwd", "resource", "spwd", "syslog", "termios", "tty"),
    *("crypt", "curses", "readline", "ossaudiodev", "multiprocessing.popen_fork"),
    *("msvcrt", "winreg", "winsound", "_winapi", "nt"),
}


def at_file_scope(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements that run whenever a module is imported: not those below `try` or `if`."""
    yield from tree.body
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from node.body


def imported(statement: ast.AST) -> set[str]:
    if isinstance(statement, ast.Import):
        return {alias.name for alias in statement.names}
    if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        return {statement.module}
    return set()


def test_no_module_imports_at_file_scope_what_one_system_alone_has(repository):
    files = [
        f
        for name in ("PUMITSegment", "PUMITTrain", "scripts")
        for f in (repository / name).rglob("*.py")
    ]
    assert len(files) > 400
    for file in files:
        for statement in at_file_scope(ast.parse(file.read_text(encoding="utf-8"))):
            names = {name for full in imported(statement) for name in (full, full.split(".")[0])}
            assert not names & ELSEWHERE_ABSENT, file


def test_no_path_is_put_together_with_slashes(repository):
    """`os.path.join` and `pathlib` know the separator; a formatted string does not."""
    for file in (repository / "PUMITSegment").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("open", "Path"):
                texts = [a for a in node.args if isinstance(a, ast.JoinedStr)]
                parts = [p.value for t in texts for p in t.values if isinstance(p, ast.Constant)]
                assert not [p for p in parts if "/" in str(p)], file


def test_names_of_files_can_be_had_on_windows(repository):
    """Without what Windows forbids, and apart from each other without regard to case."""
    done = subprocess.run(
        ["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("no git repository")
    names = done.stdout.splitlines()
    assert not [name for name in names if set(name) & set('<>:"\\|?*')]
    assert len({name.lower() for name in names}) == len(names)
    assert max(map(len, names)) < 140


def test_every_dependency_was_found_as_a_wheel_on_each_system(repository):
    """`scripts/check_wheels.py` asks pip, also for what dependencies need in turn."""
    page = (repository / "docs" / "explanation" / "systems.md").read_text(encoding="utf-8")
    table = page.partition("<!-- wheels: begin -->")[2].partition("<!-- wheels: end -->")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    head, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    pytest.importorskip("tomllib", reason="check_wheels.py needs Python 3.11")
    check_wheels = script("check_wheels")
    assert head == ["package", *check_wheels.SYSTEMS]
    direct = {row[0].strip("*"): row[1:] for row in rows if row[0].startswith("**")}
    checked = {re.split(r"[<>=;\[ ]", line)[0].lower() for line in check_wheels.dependencies()}
    assert set(direct) == checked - {check_wheels.LEFT_OUT}, "run: python3 scripts/check_wheels.py"
    assert all(version for versions in direct.values() for version in versions)
    assert len(rows) > 2 * len(direct)  # what they need in turn


# Modules of the standard library of which systems have different parts.
DIFFERENT = {
    *("asyncio", "ctypes", "errno", "fcntl", "mmap", "msvcrt", "multiprocessing", "os", "resource"),
    *("select", "shutil", "signal", "socket", "stat", "subprocess", "winreg"),
}
# What is imported from elsewhere is checked by the whole run of mypy; it takes half a minute.
_CONFIGURATION = """
[mypy]
follow_imports = skip
ignore_missing_imports = True
check_untyped_defs = True
[mypy-numpy.*]
follow_imports = skip
follow_imports_for_stubs = True
"""


def mypy_elsewhere(system: str, folder: Path, files: list[Path]) -> str:
    """What mypy finds in files where it takes this machine for another system; "" for nothing."""
    configuration = folder / "mypy.ini"
    configuration.write_text(_CONFIGURATION)
    options = ["--config-file", str(configuration), "--cache-dir", str(folder / "cache")]
    command = [sys.executable, "-m", "mypy", "--platform", system, *options, *map(str, files)]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return run.stdout if run.returncode else ""


@pytest.mark.slow
@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_types_know_every_function_on_other_systems(repository, tmp_path, system):
    """The stubs of the standard library leave out what a system lacks, such as `os.killpg`."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    files = []
    for file in (repository / "PUMITSegment" / "pumit").rglob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        names = {name.split(".")[0] for node in nodes for name in imported(node)}
        if names & DIFFERENT:
            files.append(file)
    assert len(files) > 40
    assert not mypy_elsewhere(system, tmp_path, files)
