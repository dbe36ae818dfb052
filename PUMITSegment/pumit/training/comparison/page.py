"""The page of a comparison: what was compared, what came out, and what that does not show."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pumit.evaluation.crossed_bootstrap import CrossedMean
from pumit.models.user_index import CARD_DATA
from pumit.report.comparison_plot import PointRow, TrainingCurve, curves_svg, point_rows_svg
from pumit.report.document import (
    Block,
    Drawing,
    Heading,
    Paragraph,
    Photograph,
    Points,
    Table,
    TableCell,
    write_page,
)
from pumit.system.wording import duration
from pumit.training.comparison.facts import FACTS
from pumit.training.comparison.limits import comparison_limits
from pumit.training.comparison.recipe import Comparison
from pumit.training.comparison.results import ROWS, TrainingRow, read_rows
from pumit.training.comparison.statistics import (
    ALL,
    METRICS,
    Difference,
    NetworkScores,
    class_names,
    differences_of,
    network_scores,
)
from pumit.training.comparison.wording import (
    NOTHING,
    about_data,
    about_networks,
    bootstrap_words,
    interval_words,
    introduction,
    number_words,
    recipe_words,
)
from pumit.training.model_card.record import RunLog

PAGE = "index.html"
DIGITS = {"dice": 3, "hd95_mm": 2, "assd_mm": 2}
TITLES = {"dice": "Dice", "hd95_mm": "HD95, mm", "assd_mm": "ASSD, mm"}


@dataclass(frozen=True)
class PageData:
    """Content of the page.

    Attributes:
        facts: Facts that the trainings have in common.
        rows: Rows of the finished trainings.
        scores: Scores of each network with a finished one.
    """

    comparison: Comparison
    facts: Mapping[str, Any]
    rows: Sequence[TrainingRow]
    scores: Sequence[NetworkScores]
    runs: Path


def write_comparison_page(output: Path, runs: Path, comparison: Comparison) -> Path | None:
    """Write the page from what lies in the folder of a comparison.

    Returns:
        The page; None where no training is finished yet.

    Raises:
        TrainingError: If the rows cannot be read.
        ExportError: If the page cannot be written.
    """
    names = [network.name for network in comparison.recipe.networks]
    rows = [row for row in read_rows(output / ROWS) if row.name in names]
    if not rows:
        return None
    facts = json.loads((output / FACTS).read_text(encoding="utf-8"))
    found = PageData(comparison, facts, rows, network_scores(rows, names), runs)
    title = comparison.recipe.title or f"{len(names)} networks compared"
    write_page(output / PAGE, title, page_blocks(found))
    return output / PAGE


def page_blocks(found: PageData) -> list[Block]:
    """The page from top to bottom."""
    blocks: list[Block] = [Paragraph(text) for text in introduction(found.comparison, found.facts)]
    blocks += _unfinished(found)
    blocks += [Heading("How well they segment"), _quality(found), *_quality_notes(found)]
    blocks += _points(found)
    blocks += _differences(found)
    blocks += [Heading("What they take"), _costs(found), *_curves(found)]
    blocks += _worst(found)
    blocks += [Heading("What this does not show")]
    blocks += [Points(comparison_limits(found.comparison, found.facts, found.rows))]
    blocks += [Heading("What was compared"), about_data(found.facts)]
    blocks += [about_networks(found.comparison), Heading("How to make it again")]
    blocks += recipe_words(found.comparison)
    return blocks


def _unfinished(found: PageData) -> list[Block]:
    done = {(row.name, row.seed) for row in found.rows}
    missing = [
        f"{network.name}, seed {seed}"
        for network in found.comparison.recipe.networks
        for seed in found.comparison.recipe.seeds
        if (network.name, seed) not in done
    ]
    if not missing:
        return []
    return [Paragraph(f"Not finished, and not on this page: {'; '.join(missing)}.")]


def _quality(found: PageData) -> Table:
    labels = class_names(found.rows)
    several = labels if len(labels) > 1 else []
    head = ["Network", "Dice", *(f"Dice, {label}" for label in several)]
    head += [TITLES["hd95_mm"], TITLES["assd_mm"]]
    rows = []
    for one in found.scores:
        places: list[TableCell | str] = [one.name, _mean_cell(one.mean("dice"), 3)]
        places += [_mean_cell(one.mean("dice", label), 3) for label in several]
        for metric in ("hd95_mm", "assd_mm"):
            places.append(_mean_cell(one.mean(metric), 2, without=one.undefined(metric)))
        rows.append(places)
    cases = len(found.facts["validation"])
    return Table(f"Means over {cases} cases and all seeds, with 95 % intervals.", head, rows)


def _mean_cell(mean: CrossedMean, digits: int, *, without: int = 0) -> TableCell:
    below = interval_words(mean, digits)
    if without:
        below.append(f"{without} of {mean.values + without} undefined")
    return TableCell(number_words(mean.mean, digits), below)


def _quality_notes(found: PageData) -> list[Block]:
    blocks: list[Block] = [
        Paragraph(bootstrap_words(len(found.comparison.recipe.seeds)), is_note=True)
    ]
    lacking = [f"{one.name} {count}" for one in found.scores if (count := one.undefined("hd95_mm"))]
    about = (
        "HD95 and ASSD do not exist where a class that is there was not found at all, or one was "
        "found that is not there; such an answer has Dice 0 in that class, and is left out of the "
        "distances, which look better for it. "
    )
    sentence = f"Answers without distances: {', '.join(lacking)}." if lacking else "There was none."
    return [*blocks, Paragraph(about + sentence, is_note=True)]


def _points(found: PageData) -> list[Block]:
    seeds = sorted({row.seed for row in found.rows})
    blocks: list[Block] = []
    for metric in METRICS:
        rows = []
        for one in found.scores:
            values, mean = one.values[metric, ALL], one.mean(metric)
            by_seed = dict(zip(one.seeds, values, strict=True))
            points = [
                by_seed[s][np.isfinite(by_seed[s])].tolist() if s in by_seed else [] for s in seeds
            ]
            rows.append(PointRow(one.name, points, mean.mean, mean.low, mean.high))
        label = f"{TITLES[metric]} (a case's mean over its classes)"
        means = "; ".join(
            f"{row.name} {number_words(row.mean, DIGITS[metric])}" for row in rows if row.points
        )
        alt = f"{TITLES[metric]} of every case and seed, a row for each network. Means: {means}."
        better = "to the right" if metric == "dice" else "to the left"
        caption = f"{TITLES[metric]}; better is {better}."
        if metric == METRICS[0]:
            caption += (
                " Every point is a case that nobody trained on, segmented once for each seed "
                "(height and marker). The stroke is the mean, the bar its 95 % interval."
            )
        svg = point_rows_svg(rows, label=label, seeds=seeds)
        blocks.append(Drawing(svg, alt, caption))
    return blocks


def _differences(found: PageData) -> list[Block]:
    if len(found.scores) < 2:
        return []
    first = found.scores[0].name
    head = ["Network", "Seeds", *(TITLES[metric] for metric in METRICS)]
    rows: list[list[TableCell | str]] = []
    for difference in differences_of(found.scores):
        places: list[TableCell | str] = [difference.name, str(difference.seeds)]
        places += [_difference_cell(difference, metric) for metric in METRICS]
        rows.append(places)
    return [
        Heading(f"Differences to {first}"),
        Table(
            f"Each network minus {first}, on the same cases with the same seed: mean and 95 % "
            "interval.",
            head,
            rows,
        ),
        Paragraph(
            "Told apart are those whose interval does not hold 0. Of networks that are alike, one "
            "interval in twenty would not hold it by chance; nothing was adjusted for there being "
            "several networks and measures.",
            is_note=True,
        ),
    ]


def _difference_cell(difference: Difference, metric: str) -> TableCell:
    mean, digits = difference.by_metric[metric], DIGITS[metric]
    if mean.mean is None:
        return TableCell(NOTHING)
    verdict = ""
    if mean.low is not None and mean.high is not None:
        is_higher = mean.low > 0
        is_apart = is_higher or mean.high < 0
        better = is_higher if metric == "dice" else not is_higher
        verdict = ("better" if better else "worse") if is_apart else "not told apart"
    below = [*interval_words(mean, digits, signed=True), *filter(None, [verdict])]
    return TableCell(f"{mean.mean:+.{digits}f}", below)


def _costs(found: PageData) -> Table:
    is_processor = found.comparison.schedule["clock"] == "processor"
    head = ["Network", "Parameters", "Trainings", "Steps", "Time", "Processor time", "Memory, GiB"]
    head += ["Processor seconds a case" if is_processor else "Seconds a case"]
    rows = []
    for one in found.scores:
        memory = [r.peak_memory_gib for r in one.rows if r.peak_memory_gib is not None]
        seconds = [
            r.prediction_processor_seconds if is_processor else r.prediction_seconds
            for r in one.rows
        ]
        rows.append(
            [
                one.name,
                f"{one.rows[0].parameters / 1e6:.2f} M",
                str(len(one.rows)),
                _range([r.steps for r in one.rows]),
                duration(float(np.mean([r.seconds for r in one.rows]))),
                duration(float(np.mean([r.processor_seconds for r in one.rows]))),
                f"{max(memory):.2f}" if memory else NOTHING,
                f"{np.mean(seconds):.2f}",
            ]
        )
    count = found.facts["processes"]
    others = f"{count} trainings shared the machine" if count > 1 else "One training ran at a time"
    return Table(
        "Of a training (least to most steps, means of times, the most memory that a training "
        f"process held) and of segmenting one case. {others}.",
        head,
        rows,
    )


def _range(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _curves(found: PageData) -> list[Block]:
    unit = "processor time" if found.comparison.schedule["clock"] == "processor" else "time"
    curves = []
    for network in found.comparison.recipe.networks:
        for row in found.rows:
            if row.name == network.name:
                log = RunLog.read(found.runs / f"{network.slug}_{row.seed}")
                points = [(float(r["seconds"]) / 60, float(r["loss"])) for r in log.steps]
                curves.append(TrainingCurve(row.name, points))
    if not any(curve.points for curve in curves):
        return []
    svg = curves_svg(curves, x_label=f"minutes of {unit}", y_label="training loss")
    alt = f"Training loss over {unit}, a curve for each training, one look for each network."
    caption = "The loss of training, each curve a training; those of one network look alike."
    return [Drawing(svg, alt, caption)]


def _worst(found: PageData) -> list[Block]:
    if not found.comparison.recipe.pictures:
        return []
    blocks: list[Block] = []
    slugs = {network.name: network.slug for network in found.comparison.recipe.networks}
    for one in found.scores:
        worst = one.worst()
        if worst is None:
            continue
        row, _, dice = worst
        folder = found.runs / f"{slugs[one.name]}_{row.seed}"
        try:
            card = json.loads((folder / CARD_DATA).read_text(encoding="utf-8"))
            picture = card["worst"][0]
            png = (folder / picture["file"]).read_bytes()
        except (OSError, ValueError, LookupError):
            continue  # the scan could not be read any more when it was to be drawn
        title = f"{one.name}, seed {row.seed}, {picture['title']}"
        alt = f"Slices of the worst answer of {one.name}, mean Dice {dice:.2f}, with its outlines."
        blocks.append(Photograph(png, alt, title))
    return [Heading("The worst answer of each"), *blocks] if blocks else []
