"""Write the generated pages of `docs/reference`.

Run `python scripts/write_reference.py` in the test environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "pages"))


def pages() -> dict[Path, str]:
    """Return the file and Markdown of each page."""
    import command_line
    import python_calls

    folder = ROOT / "docs" / "reference"
    return {
        folder / "command_line.md": command_line.page(),
        folder / "python_calls.md": python_calls.page(),
    }


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")
