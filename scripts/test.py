"""From a fresh clone to passed tests: sets everything up, then ruff, mypy and pytest.

`--fast` leaves out the tests that are marked as slow. Other arguments are passed on to pytest, such
as `-k dicom`. Files of tests are shared out among as many processes as there are cores, four at
most; `-n 0` runs them one after another.
"""

from __future__ import annotations

import os
import subprocess
import sys

from environment import ROOT, prepare, python, variables

CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
)
MOST_PROCESSES = 4


def main() -> int:
    """Run every check and every test; returns 0 where all passed."""
    prepare("tests")
    failed = [" ".join(check) for check in CHECKS if _run(*check) != 0]
    # Last, so that its closing line is the last one printed.
    status = _run("pytest", *pytest_arguments(sys.argv[1:]))
    if failed:
        print(f"Failed besides: {', '.join(failed)} (their reasons stand above the tests).")
    return status or int(bool(failed))


def pytest_arguments(given: list[str]) -> list[str]:
    """Return what pytest is called with.

    Args:
        given: Arguments of this script.
    """
    rest = [argument for argument in given if argument != "--fast"]
    if "--fast" in given:
        rest = ["-m", "not slow", *rest]
    if not any(argument.startswith(("-n", "--numprocesses", "--pdb")) for argument in rest):
        # A file stays in one process, which starts Slicer's scene, workers and models once for it;
        # the longest come first, by Testing/conftest.py.
        processes = str(min(os.cpu_count() or 1, MOST_PROCESSES))
        rest = ["-n", processes, "--dist", "loadfile", "--no-loadscope-reorder", *rest]
    return rest


def _run(module: str, *arguments: str) -> int:
    print(f"-- {module} {' '.join(arguments)}".rstrip(), flush=True)
    command = [str(python()), "-m", module, *arguments]
    # Processes at the same time, each with threads for all cores, would wait for one another.
    environment = {"OMP_NUM_THREADS": "1", **variables()}
    # Some hundred programs that tests start would compile the core again, each for itself.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
