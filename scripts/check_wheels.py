"""Ask pip whether everything that users install has a wheel for Slicer's Python on four systems.

The dependencies, and what these need in turn, until nothing new is named. pip's own resolver
chooses only among wheels (`pip install --dry-run`); nothing is installed. Writes its answer
between the marks of docs/explanation/systems.md. Needs the network, and `packaging`.

Each round asks without dependencies, and the next one for those that the chosen wheels name: pip
reads markers such as `sys_platform` for the system that it runs on, so that on Linux it would ask
for Linux's packages everywhere. PyTorch is left out, since pip would fetch whole builds of it,
nor are NVIDIA's libraries that it asks for on Linux.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "explanation" / "systems.md"
PYTHON = "3.12"
MACOS = ("11_0", "12_0", "13_0", "14_0")
# Tags of wheels that a system takes, and what markers see there.
SYSTEMS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "Linux x86-64": (
        ("manylinux2014_x86_64", "manylinux_2_27_x86_64", "manylinux_2_28_x86_64"),
        {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
    ),
    "Windows x86-64": (
        ("win_amd64",),
        {"sys_platform": "win32", "platform_system": "Windows", "platform_machine": "AMD64"},
    ),
    "macOS arm64": (
        tuple(f"macosx_{version}_{kind}" for version in MACOS for kind in ("arm64", "universal2")),
        {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
    ),
    "macOS x86-64": (
        tuple(
            f"macosx_{version}_{kind}"
            for version in ("10_9", "10_12", "10_13", "10_15", *MACOS)
            for kind in ("x86_64", "universal2")
        ),
        {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "x86_64"},
    ),
}
# Optional parts of the package that users do not install, or that only one GPU needs.
LEFT_OUT_EXTRAS = ("test", "fuzz", "docs", "slicer-test", "mamba")
LEFT_OUT = "torch"


def dependencies() -> list[str]:
    """Return what the core needs, and what each optional part that users install adds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    users = [r for name in extras if name not in LEFT_OUT_EXTRAS for r in extras[name]]
    return sorted({*project["dependencies"], *users})


def chosen(system: str) -> dict[str, str]:
    """Name: version of every wheel that is installed on a system.

    Raises:
        SystemExit: If something has no wheel there.
    """
    platforms, machine = SYSTEMS[system]
    markers = {
        **machine,
        "os_name": "nt" if machine["sys_platform"] == "win32" else "posix",
        "python_version": PYTHON,
        "python_full_version": f"{PYTHON}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    specifiers: dict[str, set[str]] = {}
    pending = [Requirement(line) for line in dependencies()]
    found: dict[str, dict[str, Any]] = {}
    while pending:
        # 1. New requirements, with everybody's bounds on them.
        for each in pending:
            name = canonicalize_name(each.name)
            if name != LEFT_OUT and not name.startswith("nvidia-"):
                specifiers.setdefault(name, set()).add(str(each.specifier))
        requirements = [
            f"{name}{bound}" for name, bounds in specifiers.items() for bound in sorted(bounds)
        ]
        # 2. Wheels for all of it, which agree with the bounds.
        last, found = found, _report(requirements, platforms)
        # 3. What the wheels that were not seen before need there.
        pending = [
            requirement
            for name, wheel in found.items()
            if last.get(name) != wheel
            for requirement in _needed(wheel.get("requires_dist", []), markers)
        ]
        if not last:
            pending += _needed(_requirements_of_torch(), markers)
    return {name: wheel["version"] for name, wheel in sorted(found.items())}


def _needed(lines: list[str], markers: dict[str, str]) -> list[Requirement]:
    requirements = [Requirement(line) for line in lines]
    return [r for r in requirements if not r.marker or r.marker.evaluate({**markers, "extra": ""})]


def _requirements_of_torch() -> list[str]:
    try:
        return requires(LEFT_OUT) or []
    except PackageNotFoundError:
        return []


def _report(requirements: list[str], platforms: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    command += ["--no-deps", "--only-binary=:all:", "--python-version", PYTHON]
    command += ["--implementation", "cp"]
    for platform in platforms:
        command += ["--platform", platform]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command += ["--target", folder, "--report", str(report), *requirements]
        if subprocess.run(command, check=False).returncode != 0:
            raise SystemExit(f"pip found no wheels for {platforms[0]}; it says why above.")
        pip_report = json.loads(report.read_text(encoding="utf-8"))
    return {canonicalize_name(i["metadata"]["name"]): i["metadata"] for i in pip_report["install"]}


def main() -> int:
    """Write the table; returns the exit status."""
    found = {system: chosen(system) for system in SYSTEMS}
    direct = {canonicalize_name(Requirement(line).name) for line in dependencies()}
    lines = [f"| package | {' | '.join(found)} |", "|---" * (len(found) + 1) + "|"]
    for name in sorted({name for versions in found.values() for name in versions}):
        shown = f"**{name}**" if name in direct else name
        versions = [versions.get(name, "") for versions in found.values()]
        lines.append(f"| {shown} | {' | '.join(versions)} |")
    table = "\n".join(lines)
    begin, end = "<!-- wheels: begin -->", "<!-- wheels: end -->"
    text = re.sub(
        f"{begin}.*?{end}",
        lambda _: f"{begin}\n{table}\n{end}",
        PAGE.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    PAGE.write_text(text, encoding="utf-8")
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
