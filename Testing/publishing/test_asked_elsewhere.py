"""Pages that name the tests which hold their claims name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tracked_files import tracked_files


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    file = repository / "docs" / "explanation" / "asked_elsewhere.md"
    return file.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tests(repository: Path) -> set[str]:
    """The names of all tests."""
    files = [f for f in tracked_files(repository) if f.name.startswith("test_")]
    return {
        name
        for file in files
        if file.suffix == ".py"
        for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))
    }


def test_twenty_wishes_say_where_they_were_asked_and_what_holds_the_answer(page: str) -> None:
    wishes = re.split(r"^## (?=\d+\. )", page, flags=re.MULTILINE)[1:]
    assert [int(wish.split(".")[0]) for wish in wishes] == list(range(1, 21))
    for wish in wishes:
        (asked,) = re.findall(r"(?<!\*)\*(?!\*)([^*]*#\d+[^*]*)\*", wish)[:1]
        linked = re.findall(r"\[#(\d+)\]\(https://github\.com/[\w-]+/[\w-]+/issues/(\d+)\)", asked)
        assert len(linked) == asked.count("[#") > 0, wish[:60]
        assert all(shown == led for shown, led in linked), wish[:60]
        assert re.search(r"\*\*(Yes|In part|Not shown|No)\b", wish), wish[:60]
        assert re.search(r"`test_\w+`", wish), wish[:60]


def test_every_named_test_exists(page: str, tests: set[str]) -> None:
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > 40
    assert not named - tests


def test_every_claim_on_security_names_tests_that_exist(repository: Path, tests: set[str]) -> None:
    text = (repository / "SECURITY.md").read_text(encoding="utf-8")
    table = text.partition("## Which test holds which claim")[2].partition("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ") and "`test_" in row]
    assert len(rows) > 15
    assert not set(re.findall(r"`(test_\w+)`", table)) - tests
    threats = text.partition("## Threat model, in ten lines")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\d+\. ", threats, re.MULTILINE)) == 10
