"""Run both modules' self-tests in the real Slicer application.

    python scripts/test_in_slicer.py PATH_TO_SLICER [--install clicks|training]

Slicer starts once per module, from this checkout, and exits by itself. `--install` first installs
the requirements of clicks on a CPU, or also of training, into Slicer's Python, so that nothing is
skipped. On Linux without a display, `xvfb-run` is used if installed. The exit status is 0 if
everything passed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("PUMITSegment", "PUMITTrain")
# Paths of the program within an installation.
_PROGRAMS = ("Slicer", "Slicer.exe", "Contents/MacOS/Slicer", "Slicer.app/Contents/MacOS/Slicer")
# Logged by a self-test if the packages for computation are missing.
SKIPPED = "Skipped the computation"
_TEST = "import slicer.testing; slicer.testing.runUnitTest([{folder!r}], {module!r})"
_INSTALL = """
import sys
sys.path.insert(0, {folder!r})
import slicer.util
from PUMITSlicerLib.computing import dependencies
from PUMITSlicerLib.computing.settings import ComputeMode
needs = dependencies.missing(ComputeMode.LOCAL, withTorch={torch})
requirements = [need.requirement for need in needs if not need.isBundled]
print('Installing', *requirements)
if requirements:
    slicer.util.pip_install(requirements)
sys.exit(0)
"""


def find_program(place: Path) -> Path | None:
    """Find Slicer's program: the path itself, or one within an installation folder."""
    if place.is_file():
        return place
    return next((place / name for name in _PROGRAMS if (place / name).is_file()), None)


def command(program: Path, code: str, *, is_headless: bool) -> list[str]:
    """Compose the command line that runs Python code in Slicer."""
    paths = [str(ROOT / module) for module in MODULES]
    line = [str(program), "--testing", "--no-splash", "--ignore-slicerrc"]
    line += ["--additional-module-paths", *paths, "--python-code", code]
    return ["xvfb-run", "-a", *line] if is_headless else line


def main(arguments: list[str] | None = None) -> int:
    """Run the self-tests; return 0 if all passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("slicer", type=Path, help="Slicer's program, or the folder it is in")
    parser.add_argument(
        "--install", choices=("clicks", "training"), help="first install what these need"
    )
    parser.add_argument(
        "--minutes", type=float, default=20, help="most minutes per step (%(default)s)"
    )
    args = parser.parse_args(arguments)
    program = find_program(args.slicer)
    if program is None:
        parser.error("no Slicer program there")
    is_headless = (
        sys.platform.startswith("linux")
        and not os.environ.get("DISPLAY")
        and shutil.which("xvfb-run") is not None
    )
    folder = str(ROOT / "PUMITSegment")
    code = _INSTALL.format(folder=folder, torch=args.install == "training")
    steps = {"installation": code} if args.install else {}
    for module in MODULES:
        steps[module] = _TEST.format(folder=str(ROOT / module), module=module)
    # Without these a self-test skips its computation.
    needed = {"PUMITSegment": ("clicks", "training"), "PUMITTrain": ("training",)}
    failed = []
    for name, code in steps.items():
        print(f"-- {name}", flush=True)
        problem = _run(command(program, code, is_headless=is_headless), args.minutes)
        if problem == SKIPPED and args.install not in needed.get(name, ()):
            print(f"{name}: passed without the computation; see --install", flush=True)
        elif problem:
            failed.append(f"{name}: {problem}")
        if problem and name == "installation":
            break
    print("Failed: " + "; ".join(failed) if failed else "Both modules passed in Slicer.")
    return int(bool(failed))


def _run(line: list[str], minutes: float) -> str:
    """Run a command and print its output; return the problem, or an empty string."""
    try:
        done = subprocess.run(
            line,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=60 * minutes,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        print(error.stdout or "")
        return f"took more than {minutes:g} minutes"
    print(done.stdout, flush=True)
    if done.returncode:
        return f"exit status {done.returncode}"
    return SKIPPED if SKIPPED in done.stdout else ""


if __name__ == "__main__":
    sys.exit(main())
