"""The page of all keys shows what the types say."""

from __future__ import annotations

import sys
from pathlib import Path


def test_the_page_is_that_of_the_types(repository: Path) -> None:
    """Otherwise run `python3 scripts/write_recipe_reference.py`."""
    sys.path.insert(0, str(repository / "scripts"))
    try:
        import write_recipe_reference as reference
    finally:
        sys.path.pop(0)
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page()
