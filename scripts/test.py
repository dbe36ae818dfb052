"""From a fresh clone to passed tests: sets everything up, then ruff, mypy and pytest.

Arguments are passed on to pytest: `python3 scripts/test.py -k dicom`.
"""

from __future__ import annotations

import subprocess
import sys

from environment import ROOT, prepare, python, variables

CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
)


def main() -> int:
    """Run every check and every test; returns 0 where all passed."""
    prepare(tests=True)
    failed = [" ".join(check) for check in CHECKS if _run(*check) != 0]
    # Last, so that its closing line is the last one printed.
    status = _run("pytest", *sys.argv[1:])
    if failed:
        print(f"Failed besides: {', '.join(failed)} (their reasons stand above the tests).")
    return status or int(bool(failed))


def _run(module: str, *arguments: str) -> int:
    print(f"-- {module} {' '.join(arguments)}".rstrip(), flush=True)
    command = [str(python()), "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, env=variables(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
