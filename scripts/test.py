"""Set up the environment in a fresh clone, then run ruff, mypy and pytest.

`--fast` leaves out the tests marked as slow. `--light` installs no PyTorch, and runs ruff and the
fast tests of what needs none: reading and writing files, prompts, servers' clients, reports. Other
arguments are passed to pytest, such as `-k dicom`. Test files are distributed over one process more
than there are cores, at most four; `-n 0` uses one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from environment import ROOT, prepare, python, variables

CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
)
MOST_PROCESSES = 4
# Below Testing/pumit: what needs no PyTorch, or is skipped without it.
LIGHT = (
    "batch",
    "client",
    "export",
    "gestures",
    "io",
    "itksnap",
    "report",
    "wire",
    "test_prompts.py",
)


def main() -> int:
    """Run all checks and tests; return 0 if all passed."""
    is_light = "--light" in sys.argv
    prepare("light" if is_light else "tests")
    failed = [" ".join(check) for check in CHECKS if _start(*check).wait() != 0]
    # mypy takes a minute of one core: beside the tests. If it finds nothing, the summary of pytest
    # is the last line.
    types = None if is_light else _start("mypy", stdout=subprocess.PIPE, text=True)
    status = _start("pytest", *pytest_arguments(sys.argv[1:])).wait()
    if types is not None:
        found, _ = types.communicate()
        if types.returncode:
            print(found)
            failed.append("mypy")
    if failed:
        print(f"Also failed: {', '.join(failed)}.")
    return status or int(bool(failed))


def pytest_arguments(given: list[str]) -> list[str]:
    """Return the arguments of pytest.

    Args:
        given: Arguments of this script.
    """
    rest = [argument for argument in given if argument not in ("--fast", "--light")]
    if "--fast" in given or "--light" in given:
        rest = ["-m", "not slow", *rest]
    if "--light" in given and not any("Testing" in argument for argument in rest):
        rest += [f"Testing/pumit/{folder}" for folder in LIGHT]
    if not any(argument.startswith(("-n", "--numprocesses", "--pdb")) for argument in rest):
        # Each file runs in one process, which sets up Slicer's scene, workers and models once.
        # Testing/conftest.py puts the longest files first.
        # One more than there are cores, as tests also wait: for workers, browsers and trainings.
        processes = str(min((os.cpu_count() or 1) + 1, MOST_PROCESSES))
        rest = ["-n", processes, "--dist", "loadfile", "--no-loadscope-reorder", *rest]
    return rest


def _start(module: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    print(f"-- {module} {' '.join(arguments)}".rstrip(), flush=True)
    command = [str(python()), "-m", module, *arguments]
    # Parallel processes with threads for all cores would slow one another down.
    environment = {"OMP_NUM_THREADS": "1", **variables()}
    # Otherwise each of some hundred programs started by tests would compile the package again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.Popen(command, cwd=ROOT, env=environment, **options)


if __name__ == "__main__":
    sys.exit(main())
