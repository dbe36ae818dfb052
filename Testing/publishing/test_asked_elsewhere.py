"""Pages that name the tests which hold their claims name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tracked_files import tracked_files

LINK = re.compile(r"\[#(\d+)\]\(https://github\.com/[\w-]+/[\w-]+/(?:issues|pull)/(\d+)\)")
# Each owner was looked up in an index of public repositories or their threads, in November 2026.
TRACKERS = {
    *("CCI-Bonn/OHIF-AI", "KitwareMedical/SlicerNNUnet", "MIC-DKFZ/VoxTell"),
    *("MIC-DKFZ/napari-nninteractive", "MIC-DKFZ/nnInteractive", "Project-MONAI/MONAILabel"),
    *("Slicer/light-the-torch", "bingogome/samm", "bowang-lab/MedSAMSlicer"),
    *("coendevente/SlicerNNInteractive", "computational-cell-analytics/micro-sam"),
    *("fedesemeraro/SlicerTomoSAM", "gaudot/SlicerDentalSegmentator"),
    *("lassoan/SlicerMONAIAuto3DSeg", "lassoan/SlicerTotalSegmentator"),
    *("mazurowski-lab/SlicerSegmentWithSAM", "wasserth/TotalSegmentator"),
}


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    file = repository / "docs" / "explanation" / "asked_elsewhere.md"
    return file.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tests(repository: Path) -> dict[str, set[str]]:
    """The names of all tests, with the files that have them."""
    found: dict[str, set[str]] = {}
    for file in tracked_files(repository):
        if file.name.startswith("test_") and file.suffix == ".py":
            for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8")):
                found.setdefault(name, set()).add(file.relative_to(repository).as_posix())
    return found


def test_twenty_wishes_say_where_they_were_asked_and_what_holds_the_answer(page: str) -> None:
    wishes = re.split(r"^## (?=\d+\. )", page, flags=re.MULTILINE)[1:]
    assert [int(wish.split(".")[0]) for wish in wishes] == list(range(1, 21))
    for wish in wishes:
        (request,) = re.findall(r"(?<!\*)\*(?!\*)([^*]*#\d+[^*]*)\*", wish)[:1]
        linked = re.findall(LINK, request)
        assert len(linked) == request.count("[#") > 0, wish[:60]
        assert all(shown == led for shown, led in linked), wish[:60]
        assert re.search(r"\*\*(Yes|In part|Not shown|No)\b", wish), wish[:60]
        assert re.search(r"`test_\w+`", wish), wish[:60]


def test_wishes_are_linked_to_trackers_that_were_looked_up(page: str) -> None:
    request = r"https://github\.com/([\w-]+/[\w-]+)/(?:issues|pull)/\d+"
    assert set(re.findall(request, page)) == TRACKERS


def test_every_named_test_exists_where_its_link_leads(
    page: str, tests: dict[str, set[str]]
) -> None:
    linked = re.findall(r"\[`(test_\w+)`\]\(\.\./\.\./([\w/.]+)\)", page)
    assert len(linked) == len(re.findall(r"`test_\w+`", page)) > 40
    assert not [(name, file) for name, file in linked if file not in tests.get(name, ())]
