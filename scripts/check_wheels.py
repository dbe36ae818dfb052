"""Check that all of users' dependencies have wheels for Slicer's Python on four systems.

pip resolves the direct and transitive dependencies from wheels only (`pip install --dry-run`), and
installs nothing. The table is written between the marks in docs/explanation/systems.md. Needs the
network and `packaging`.

Each round resolves without dependencies; the next adds those that the chosen wheels name. pip
itself evaluates markers such as `sys_platform` for the system it runs on, so on Linux it would
request Linux packages for every system. PyTorch and its NVIDIA libraries are left out, since pip
would download whole builds.
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
# Platform tags of each system's wheels, and the values of environment markers.
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
# Extras that users do not install, or that need a particular GPU.
LEFT_OUT_EXTRAS = ("test", "test-light", "fuzz", "docs", "slicer-test", "mamba")
LEFT_OUT = "torch"


def dependencies() -> list[str]:
    """Return the requirements of the package and of the extras that users install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    users = [r for name in extras if name not in LEFT_OUT_EXTRAS for r in extras[name]]
    return sorted({*project["dependencies"], *users})


def chosen(system: str) -> dict[str, str]:
    """Return name and version of every wheel that would be installed on a system.

    Raises:
        SystemExit: If a requirement has no wheel there.
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
        # 1. Add new requirements; collect all version bounds of each package.
        for each in pending:
            name = canonicalize_name(each.name)
            if name != LEFT_OUT and not name.startswith("nvidia-"):
                specifiers.setdefault(name, set()).add(str(each.specifier))
        requirements = [
            f"{name}{bound}" for name, bounds in specifiers.items() for bound in sorted(bounds)
        ]
        # 2. Resolve wheels within the bounds.
        last, found = found, _report(requirements, platforms)
        # 3. Collect the requirements of new or changed wheels.
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
    """Write the table; return the exit status."""
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
