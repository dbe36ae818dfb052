"""Means and differences are right, and the page tells them with all that limits them."""

import html
import json
import re
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_comparison import RECIPE, row, score, written
from pumit.training.comparison.page import (
    ALL,
    differences_of,
    network_scores,
    with_short_paths,
    write_comparison_page,
)
from pumit.training.comparison.plan import read_comparison
from pumit.training.comparison.results import ROWS, TrainingRow, read_rows, write_rows

ROWS_MADE = [
    row("U-Net", 0, [0.8, 0.9, 0.7]),
    row("U-Net", 5, [0.82, 0.92, 0.72], steps=90),
    row("wide", 0, [0.7, 0.8, 0.6], parameters=6_000_000),
    row("wide", 5, [0.71, 0.81, 0.61], parameters=6_000_000),
]
FACTS: dict[str, Any] = {
    "training": ["case_9"],
    "validation": ["case_0", "case_1", "case_2"],
    "classes": [{"name": "a", "value": 1}, {"name": "b", "value": 2}],
    "channels": 1,
    "plan": {"spacing_mm": [2.0, 1, 1], "patch_size": [16, 32, 32], "batch_size": 2},
    "shapes": {"least": [14, 30, 28], "most": [15, 30, 28]},
    "seeds": [0, 5],
    "schedule": {
        "seconds": 30.0, "steps": 10, "clock": "processor", "shape": "cosine",
        "optimizer": "adamw", "average": 0.99,
    },
    "augmentation": {"rotation": 0.2, "flips": "auto"},
    "threads": 1,
    "processes": 2,
    "machine": {
        "hardware": "2 CPU cores", "processor": "A 9000", "device": "cpu", "system": "Linux",
        "python": "3.11", "torch": "2.9", "pumit": "0.1",
    },
}  # fmt: skip


def made(folder: Path, rows: list[TrainingRow], **changes: Any) -> str:
    """The page of some rows."""
    (folder / "comparison.json").write_text(json.dumps(FACTS))
    write_rows(folder / ROWS, rows)
    data = {**RECIPE["data"], "folder": str(folder / "secret")}
    comparison = read_comparison(written(folder, **{"data": data, **changes}))
    path = write_comparison_page(folder, folder / "runs", comparison)
    return path.read_text(encoding="utf-8")


def text_of(page: str) -> str:
    """Its words, without styles and charts."""
    words = re.sub(r"(?s)<(style|svg).*?</\1>|<[^>]*>", " ", page)
    return " ".join(html.unescape(words).split())


def test_means_and_differences_are_those_of_the_values():
    first, second = network_scores(ROWS_MADE, ["U-Net", "wide", "absent"])
    np.testing.assert_allclose(
        first.values["dice", ALL], [[0.8, 0.9, 0.7], [0.82, 0.92, 0.72]], atol=1e-12
    )
    assert first.mean("dice").mean == pytest.approx(0.81)
    (difference,) = differences_of([first, second])
    found = difference.by_metric["dice"]
    assert found.mean == pytest.approx(-0.105)
    # Seeds differ by 0.01 and cases not at all: the interval is that of the seeds.
    assert (found.low, found.high) == (pytest.approx(-0.11), pytest.approx(-0.10))
    assert found.values == 6
    # Over the seeds that both have.
    few = [r for r in ROWS_MADE if (r.name, r.seed) != ("wide", 0)]
    (difference,) = differences_of(network_scores(few, ["U-Net", "wide"]))
    assert difference.seeds == 1
    assert difference.by_metric["dice"].mean == pytest.approx(-0.11)


def test_what_was_not_found_has_no_distance_and_does_not_flatter():
    cases = (
        score("case_0", "a", 0.9, 2.0),
        score("case_0", "b", 0.0, None),  # there, and not found
        score("case_1", "a", 0.8, 4.0),
        score("case_1", "b", None, None),  # neither there nor found
    )
    (found,) = network_scores([replace(ROWS_MADE[0], cases=cases)], ["U-Net"])
    np.testing.assert_allclose(found.values["dice", ALL], [[0.45, 0.8]])
    np.testing.assert_allclose(found.values["hd95_mm", ALL], [[np.nan, 4.0]])
    assert (found.undefined("hd95_mm"), found.undefined("hd95_mm", "b")) == (1, 1)
    worst = found.worst()
    assert worst[1:] == ("case_0", pytest.approx(0.45))


def test_the_page_tells_figures_and_limits_and_no_place(tmp_path):
    empty = replace(ROWS_MADE[3], cases=(score("case_1", "a", 0.0, None), *ROWS_MADE[3].cases[:2]))
    rows = [*ROWS_MADE[:3], empty]
    page = made(
        tmp_path,
        rows,
        networks=[
            {**RECIPE["networks"][0], "tuning": "the better of two rates."},
            {**RECIPE["networks"][1], "initial": str(tmp_path / "deep" / "first.safetensors")},
        ],
    )
    assert read_rows(tmp_path / ROWS) == rows
    text = text_of(page)
    for said in (
        "2 networks were each trained 2 times with different seeds, for 30 seconds of processor",
        "Nothing was chosen by these cases",
        "0.810",
        "1 of 5 undefined",
        "Results without distances: wide 1.",
        "90 to 100",
        "6.00 M",
        "It is one data set: 1 case for training and 3 for validation, which are few.",
        "U-Net: the better of two rates.",
        "how sizes and rates of wide were chosen",
        "wide starts from weights of an earlier training",
        "first.safetensors",
        "pumit compare compare.yaml --data FOLDER -o OUT",
        "A 9000",
    ):
        assert said in text, said
    secrets = (str(tmp_path), "secret", "case_1", "deep", socket.gethostname() + "\n", "<script")
    for secret in secrets:
        assert secret not in page
    assert len(re.findall("<svg", page)) == 3  # no logs, so no curves
    assert all('aria-label="' in svg for svg in re.findall("<svg[^>]*>", page))
    # One seed and one network make a page, too.
    page = made(tmp_path, ROWS_MADE[:1], seeds=[0], networks=RECIPE["networks"][:1])
    assert "With one seed" in text_of(page)
    assert "Differences from" not in text_of(page)


@pytest.mark.skipif(sys.platform == "win32", reason="paths are written otherwise")
def test_pictures_are_shown_where_the_recipe_allows_it(tmp_path):
    run = tmp_path / "runs" / "U-Net_0"
    (run / "pictures").mkdir(parents=True)
    (run / "pictures" / "worst_1.png").write_bytes(b"\x89PNG content")
    picture = {"file": "pictures/worst_1.png", "title": "case 2, mean Dice 0.70: planes."}
    (run / "card.json").write_text(json.dumps({"worst": [picture]}))
    (run / "log.jsonl").write_text('{"step": 1, "loss": 0.5, "seconds": 3.0}\n')
    assert "data:image/png" not in made(tmp_path, ROWS_MADE[:1])
    page = made(tmp_path, ROWS_MADE[:1], pictures=True)
    assert "data:image/png" in page
    assert "U-Net, seed 0, case 2, mean Dice 0.70: planes." in page
    assert len(re.findall("<svg", page)) == 4  # with the curve
    ids = re.findall(r'\sid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    links = re.findall(r'\s(?:xlink:)?(?:href|src)="([^"]*)"', page)
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    inner = {link[1:] for link in links if link.startswith("#")}
    assert inner | set(re.findall(r"url\(#([^)]*)\)", page)) <= set(ids)
    # The only addresses are the names of the formats.
    assert set(re.findall(r"https?://[^\s\"')]*", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_paths_of_a_recipe_are_but_names():
    given = {"cases": [{"image": "/a/b.nii.gz"}], "images": "i/*", "folder": "/mnt/me"}
    kept = {"cases": [{"image": "b.nii.gz"}], "images": "i/*", "folder": "FOLDER"}
    assert with_short_paths(given) == kept
    assert with_short_paths(["~/x.pt", "..\\up", "C:\\me\\y.nii", 3]) == ["x.pt", "up", "y.nii", 3]
