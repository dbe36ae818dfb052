"""Write the lists of bundled files in each module's CMakeLists.txt anew, from what is on disk.

A Slicer extension bundles exactly the files that its CMake lists name. Run this after adding,
moving or removing a file of a module; a test compares list and disk.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("PUMITSegment", "PUMITTrain")


def bundled_files(module: Path) -> tuple[list[str], list[str]]:
    """Scripts and resources of a module, relative to it and sorted."""
    files = []
    for path in module.rglob("*"):
        parts = path.relative_to(module).parts
        is_made = any(p.startswith(".") or p == "__pycache__" for p in parts)
        is_made = is_made or any(p.endswith((".egg-info", ".pyc")) for p in parts)
        if path.is_file() and not is_made and path.name != "CMakeLists.txt":
            files.append("/".join(parts))
    scripts = sorted(f for f in files if f.endswith(".py"))
    return scripts, sorted(f for f in files if not f.endswith(".py"))


def with_list(text: str, variable: str, files: list[str]) -> str:
    """CMake text in which `set(variable ...)` names exactly these files."""
    lines = "".join(f"  {file}\n" for file in files)
    replaced, count = re.subn(
        rf"set\({variable}\n.*?\)\n",
        lambda _: f"set({variable}\n{lines}  )\n",
        text,
        flags=re.DOTALL,
    )
    if count != 1:
        raise SystemExit(f"CMakeLists.txt sets {variable} {count} times; expected once.")
    return replaced


def rewrite(module: Path) -> None:
    """Rewrite the lists of one module."""
    target = module / "CMakeLists.txt"
    before = target.read_text(encoding="utf-8")
    scripts, resources = bundled_files(module)
    after = with_list(before, "MODULE_PYTHON_SCRIPTS", scripts)
    after = with_list(after, "MODULE_PYTHON_RESOURCES", resources)
    if after != before:
        target.write_text(after, encoding="utf-8")
    print(f"{module.name}: {len(scripts)} scripts, {len(resources)} resources")


def main() -> int:
    """Rewrite the lists of every module; returns the exit status."""
    for name in MODULES:
        rewrite(ROOT / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
