"""The page on the architecture shows what the code is."""

import re
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def drawing(repository: Path):
    """The script that draws the picture and writes the table."""
    sys.path.insert(0, str(repository / "scripts"))
    try:
        import draw_architecture
    finally:
        sys.path.pop(0)
    return draw_architecture


def test_picture_and_table_are_those_of_the_code(drawing):
    """Otherwise run `python3 scripts/draw_architecture.py`."""
    assert drawing.PICTURE.read_text(encoding="utf-8") == drawing.drawn()
    assert drawing.PAGE.read_text(encoding="utf-8") == drawing.page()


def test_every_file_that_the_page_names_exists(repository):
    text = (repository / "ARCHITECTURE.md").read_text(encoding="utf-8")
    roots = [repository, repository / "PUMITSegment", repository / "PUMITSegment" / "pumit"]
    roots.append(repository / "PUMITTrain")
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", text))
    assert len(named) > 10
    assert not [name for name in named if not any((root / name).exists() for root in roots)]
