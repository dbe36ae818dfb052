"""The README's table: figures of the weights that ship are those of their cards."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import safetensors

# Names of the models for clicks, whose rows the table has.
CLICKS = {"default": "Dice after", "research": "`research`"}
AUTOMATIC = {
    "heart-mr": "0.895",
    "hippocampus-mr": "0.883",
    "abdomen-ct": "0.715",
    "abdomen-mr": "0.888",
}


@pytest.fixture(scope="module")
def readme(repository: Path) -> str:
    return (repository / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def rows(readme: str) -> list[list[str]]:
    """Measurement and value of each row."""
    table = readme.partition("## How well, how fast")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def card(repository: Path, model: str) -> str:
    file = repository / "PUMITSegment" / "pumit" / "models" / f"{model}.md"
    return file.read_text(encoding="utf-8")


def all_cases(text: str) -> list[str]:
    """The row of a card on all cases together: Dice from a box, after 1 to 5 clicks, NSD."""
    (row,) = re.findall(r"^\| \*\*all 20 cases\*\* \|(.*)\|$", text, re.MULTILINE)
    return [cell.strip() for cell in row.split("|")]


@pytest.mark.parametrize("model", CLICKS)
def test_figures_of_clicks_are_those_of_the_card(
    repository: Path, rows: list[list[str]], model: str
) -> None:
    stated = [
        number
        for what, value in rows
        if what.startswith(CLICKS[model])
        for number in re.findall(r"0\.\d{3}", value)
    ]
    assert stated == all_cases(card(repository, model))[:6]
    benchmarks = (repository / "docs" / "reference" / "benchmarks.md").read_text(encoding="utf-8")
    assert f"{stated[0]}; {', '.join(stated[1:])}" in benchmarks


@pytest.mark.parametrize("model", AUTOMATIC)
def test_figures_of_automatic_models_are_those_of_their_cards(
    repository: Path, readme: str, model: str
) -> None:
    assert AUTOMATIC[model] in readme
    assert AUTOMATIC[model] in card(repository, model)


@pytest.mark.parametrize("model", CLICKS)
def test_the_table_is_of_the_versions_that_ship(repository: Path, model: str) -> None:
    file = repository / "PUMITSegment" / "pumit" / "models" / f"{model}.safetensors"
    with safetensors.safe_open(file, framework="np") as weights:
        recipe = json.loads(weights.metadata()["recipe"])
    assert re.search(rf"\b{model} {recipe['version']}\b", card(repository, "research"))
