"""SECURITY.md, sentence by sentence: each has its tests, or the reason why no test can hold it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from tracked_files import tracked_files

REASONS = {"advice", "others", "absent", "measured", "leads"}


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "SECURITY.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def claims() -> list[tuple[str, list[str] | str]]:
    """Beginning of a sentence, and its tests or the reason."""
    text = Path(__file__).with_name("security_claims.yaml").read_text(encoding="utf-8")
    return [pair for row in yaml.safe_load(text) for pair in row.items()]


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


def sentences(page: str) -> list[str]:
    """Sentences and rows of tables, in their order; the list of tests is no claim itself."""
    found: list[str] = []
    text = page.partition("## Which test holds which claim")[0]
    for block in map(str.strip, re.split(r"\n\s*\n", text)):
        if block.startswith("|"):
            found += block.splitlines()[2:]
        elif block and not block.startswith("#"):
            for item in re.split(r"\n(?=- |\d+\. )", block):
                line = " ".join(re.sub(r"^(- |\d+\. )", "", item).split())
                found += re.split(r"(?<=[.:])\s+(?=[A-Z*`])", line)
    return found


def test_every_sentence_has_its_tests_or_says_why_none(
    page: str, claims: list[tuple[str, list[str] | str]]
) -> None:
    stated = sentences(page)
    for sentence, (beginning, _held) in zip(stated, claims, strict=False):
        assert sentence.startswith(beginning), f"{sentence!r} is not in security_claims.yaml"
    assert len(stated) == len(claims)


def test_every_named_test_exists(
    claims: list[tuple[str, list[str] | str]], tests: set[str]
) -> None:
    held = [each for _, each in claims if isinstance(each, list)]
    assert len(held) > 80
    assert not {name for names in held for name in names} - tests
    assert {each for _, each in claims if isinstance(each, str)} <= REASONS


def test_the_table_on_the_page_names_tests_that_exist(page: str, tests: set[str]) -> None:
    table = page.partition("## Which test holds which claim")[2].partition("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ") and "`test_" in row]
    assert len(rows) > 15
    assert not set(re.findall(r"`(test_\w+)`", table)) - tests
    threats = page.partition("## Threat model, in ten lines")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\d+\. ", threats, re.MULTILINE)) == 10
