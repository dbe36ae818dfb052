"""The page on daily use: each story has its test and its picture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tracked_files import tracked_files

POINTS = {f"1.{n}" for n in range(1, 9)} | {f"2.{n}" for n in range(1, 5)}


@pytest.fixture(scope="module")
def rows(repository: Path) -> list[tuple[str, str, str]]:
    """Point, test and picture of each story."""
    page = repository / "docs" / "explanation" / "daily_use.md"
    row = r"^\| (\d\.\d) \| [^|]+ \| `(test_\w+)` \| \[picture\]\(([^)]+)\) \|$"
    return re.findall(row, page.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_point_has_a_story(rows: list[tuple[str, str, str]]) -> None:
    assert {point for point, _test, _picture in rows} == POINTS
    assert len(rows) > 25


@pytest.fixture(scope="module")
def tests(repository: Path) -> str:
    """The text of all tests."""
    return "\n".join(
        file.read_text(encoding="utf-8")
        for file in tracked_files(repository)
        if file.name.startswith("test_") and file.suffix == ".py"
    )


def test_every_test_that_the_page_names_is_there(repository: Path, tests: str) -> None:
    page = (repository / "docs" / "explanation" / "daily_use.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+)`", page)
    assert len(named) > 60
    assert [name for name in named if f"def {name}(" not in tests] == []


def test_the_first_dicom_seg_is_counted_right(repository: Path) -> None:
    """The sum over the steps, of which a test with real clicks counts the last."""
    page = (repository / "docs" / "explanation" / "daily_use.md").read_text(encoding="utf-8")
    part = page.partition("## From the README to a first DICOM-SEG")[2].partition("\n## ")[0]
    steps = [int(n) for n in re.findall(r"^\| [^|]+ \| [^|]*?(\d+) presses", part, re.MULTILINE)]
    (stated,) = re.findall(r"^(\d+) presses, 1 drag", part, re.MULTILINE)
    assert len(steps) == 4
    assert sum(steps) == int(stated)
    readme = (repository / "README.md").read_text(encoding="utf-8")
    for word in ("Application Settings", "PUMITSegment", "**Install**", "scripts/demo.py"):
        assert word in readme


def test_every_story_has_its_picture(repository: Path, rows: list[tuple[str, str, str]]) -> None:
    page = repository / "docs" / "explanation" / "daily_use.md"
    for _point, _test, picture in rows:
        assert (page.parent / picture).resolve().is_file(), picture
