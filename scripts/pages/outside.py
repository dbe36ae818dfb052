"""External links on all pages and in the project's metadata files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = "https://github.com/pumit/SlicerPUMIT"
# Metadata files that hosts and catalogues read, in addition to all pages.
_FILES = ("CITATION.cff", "PUMIT.json", "mkdocs.yml", "pyproject.toml", "CMakeLists.txt")
_FOLDERS = ("PUMITSegment", "PUMITTrain", "Testing", "deploy", "docs", "scripts")
_LINK = re.compile(r"https?://[^\s<>\"'`\])}|]+")


def links() -> dict[str, list[str]]:
    """Map each external URL to the files that contain it.

    Placeholders such as `https://gpu.example.org` and addresses of this machine are left out.
    """
    found: dict[str, list[str]] = {}
    for file in sorted([*_pages(ROOT), *(ROOT / name for name in _FILES)]):
        for address in sorted(set(_LINK.findall(file.read_text(encoding="utf-8")))):
            plain = address.rstrip(".,;:!?*")
            host = re.sub(r"^https?://([^/:]*).*", r"\1", plain)
            if "." in host and not re.search(r"^[\d.]+$|\bexample\b|\.invalid$", host):
                found.setdefault(plain, []).append(file.relative_to(ROOT).as_posix())
    return dict(sorted(found.items()))


def page() -> str:
    """Return the list as a page for the site."""
    lines = ["# Links to other hosts", ""]
    lines += ["All of them, with the files where they stand. `python3 scripts/check_links.py` asks"]
    lines += ["each host whether its page is there; nothing on this site loads from them.", ""]
    lines += ["| address | stands in |", "|---|---|"]
    lines += [f"| <{a}> | {', '.join(f'`{f}`' for f in files)} |" for a, files in links().items()]
    return "\n".join(lines) + "\n"


def _pages(folder: Path) -> Iterator[Path]:
    """Find the project's Markdown files, but not those that commands leave in the folder."""
    yield from folder.glob("*.md")
    for name in _FOLDERS:
        yield from (folder / name).rglob("*.md")
