"""Set up the environment in a fresh clone, then run ruff, mypy and pytest.

`--fast` leaves out the tests marked as slow. Other arguments are passed to pytest, such as
`-k dicom`. Test files are distributed over one process per core, at most four; `-n 0` uses one.
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
    """Run all checks and tests; return 0 if all passed."""
    prepare("tests")
    failed = [" ".join(check) for check in CHECKS if _run(*check) != 0]
    # pytest last, so that its summary is the last line.
    status = _run("pytest", *pytest_arguments(sys.argv[1:]))
    if failed:
        print(f"Also failed: {', '.join(failed)} (reasons above the tests).")
    return status or int(bool(failed))


def pytest_arguments(given: list[str]) -> list[str]:
    """Return the arguments of pytest.

    Args:
        given: Arguments of this script.
    """
    rest = [argument for argument in given if argument != "--fast"]
    if "--fast" in given:
        rest = ["-m", "not slow", *rest]
    if not any(argument.startswith(("-n", "--numprocesses", "--pdb")) for argument in rest):
        # Each file runs in one process, which sets up Slicer's scene, workers and models once.
        # Testing/conftest.py puts the longest files first.
        processes = str(min(os.cpu_count() or 1, MOST_PROCESSES))
        rest = ["-n", processes, "--dist", "loadfile", "--no-loadscope-reorder", *rest]
    return rest


def _run(module: str, *arguments: str) -> int:
    print(f"-- {module} {' '.join(arguments)}".rstrip(), flush=True)
    command = [str(python()), "-m", module, *arguments]
    # Parallel processes with threads for all cores would slow one another down.
    environment = {"OMP_NUM_THREADS": "1", **variables()}
    # Otherwise each of some hundred programs started by tests would compile the package again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
