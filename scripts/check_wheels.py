"""Ask pip whether every dependency has a wheel for Slicer's Python on three systems.

pip's own resolver chooses, with wheels alone; nothing is installed. Writes its answer between the
marks of docs/explanation/systems.md. Needs the network. Each dependency is asked for without what
it needs in turn: markers such as `sys_platform` are read for the system that this runs on, so that
on Linux torch would ask for CUDA everywhere.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "explanation" / "systems.md"
PYTHON = "3.12"
SYSTEMS = {
    "Linux x86-64": ("manylinux2014_x86_64", "manylinux_2_27_x86_64", "manylinux_2_28_x86_64"),
    "Windows x86-64": ("win_amd64",),
    "macOS arm64": ("macosx_11_0_arm64", "macosx_12_0_arm64", "macosx_14_0_arm64"),
}


def dependencies() -> list[str]:
    """What the core needs, and what each optional part that users install adds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    users = [
        r
        for name in extras
        if name not in ("test", "docs", "slicer-test", "mamba")
        for r in extras[name]
    ]
    return sorted({*project["dependencies"], *(r for r in users if not r.startswith("pumit"))})


def chosen(requirements: list[str], platforms: tuple[str, ...]) -> dict[str, str]:
    """Name: version of every wheel that pip would install.

    Raises:
        SystemExit: If something has no wheel there.
    """
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    command += [
        "--no-deps",
        "--only-binary=:all:",
        "--python-version",
        PYTHON,
        "--implementation",
        "cp",
    ]
    for platform in platforms:
        command += ["--platform", platform]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command += ["--target", folder, "--report", str(report), *requirements]
        if subprocess.run(command, check=False).returncode != 0:
            raise SystemExit(f"pip found no wheels for {platforms[0]}; it says why above.")
        told = json.loads(report.read_text(encoding="utf-8"))
    items = [item["metadata"] for item in told["install"]]
    return {re.sub(r"[-_.]+", "-", m["name"]).lower(): m["version"] for m in items}


def main() -> int:
    """Write the table; returns the exit status."""
    requirements = dependencies()
    found = {name: chosen(requirements, platforms) for name, platforms in SYSTEMS.items()}
    asked = {re.sub(r"[-_.]+", "-", re.split(r"[<>=;\[ ]", r)[0]).lower() for r in requirements}
    lines = [f"| dependency | {' | '.join(found)} |", "|---" * (len(found) + 1) + "|"]
    for name in sorted(asked):
        lines.append(
            f"| {name} | " + " | ".join(v.get(name, "**none**") for v in found.values()) + " |"
        )
    text = PAGE.read_text(encoding="utf-8")
    table = "\n".join(lines)
    begin, end = "<!-- wheels: begin -->", "<!-- wheels: end -->"
    text = re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n{table}\n{end}", text, flags=re.DOTALL)
    PAGE.write_text(text, encoding="utf-8")
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
