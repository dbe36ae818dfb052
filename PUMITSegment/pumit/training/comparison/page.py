"""The page of a comparison; its sentences are in `report/templates/comparison.html.j2`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import yaml

from pumit.evaluation.crossed_bootstrap import RESAMPLES
from pumit.models.user_index import CARD_DATA
from pumit.report.comparison_plot import PointRow, TrainingCurve, curves_svg, point_rows_svg
from pumit.report.document import Drawing, Photograph, write_template
from pumit.training.comparison.facts import FACTS
from pumit.training.comparison.recipe import Comparison
from pumit.training.comparison.results import ROWS, TrainingRow, read_rows
from pumit.training.comparison.statistics import (
    ALL,
    METRICS,
    NetworkScores,
    class_names,
    differences_of,
    network_scores,
)
from pumit.training.model_card.record import RunLog

PAGE = "index.html"
FOLDER = "FOLDER"
_SHIPPED = Path(__file__).parents[1] / "recipes"
DIGITS = {"dice": 3, "hd95_mm": 2, "assd_mm": 2}
TITLES = {"dice": "Dice", "hd95_mm": "HD95, mm", "assd_mm": "ASSD, mm"}


def write_comparison_page(output: Path, runs: Path, comparison: Comparison) -> Path | None:
    """Write the page from the folder of a comparison.

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
    scores = network_scores(rows, names)
    done = {(row.name, row.seed) for row in rows}
    source = comparison.file.source
    recipe = source.removesuffix(".yaml") if (_SHIPPED / source).is_file() else source
    content = {
        "title": comparison.recipe.title or f"{len(names)} networks compared",
        "comparison": comparison,
        "facts": facts,
        "rows": rows,
        "scores": scores,
        "differences": differences_of(scores),
        "labels": class_names(rows),
        "missing": [
            f"{name}, seed {seed}"
            for name in names
            for seed in comparison.recipe.seeds
            if (name, seed) not in done
        ],
        "is_seen": bool(set(facts["training"]) & set(facts["validation"])),
        "variations": _variations(facts["augmentation"]),
        "resamples": RESAMPLES,
        "titles": TITLES,
        "figures": _points(scores, sorted({row.seed for row in rows})),
        "curves": _curves(comparison, rows, runs),
        "worst": _worst(comparison, scores, runs) if comparison.recipe.pictures else [],
        "command": f"pumit compare {recipe} --data {FOLDER} -o OUT",
        "recipe_text": yaml.safe_dump(
            without_paths(comparison.file.keys),
            sort_keys=False,
            allow_unicode=True,
            default_flow_style=None,
            width=96,
        ),
    }
    write_template(output / PAGE, "comparison.html.j2", content)
    return output / PAGE


def _points(scores: Sequence[NetworkScores], seeds: Sequence[int]) -> list[Drawing]:
    figures = []
    for metric in METRICS:
        rows = []
        for one in scores:
            values, mean = one.values[metric, ALL], one.mean(metric)
            by_seed = dict(zip(one.seeds, values, strict=True))
            points = [
                by_seed[s][np.isfinite(by_seed[s])].tolist() if s in by_seed else [] for s in seeds
            ]
            rows.append(PointRow(one.name, points, mean.mean, mean.low, mean.high))
        means = "; ".join(
            f"{row.name} {row.mean:.{DIGITS[metric]}f}"
            for row in rows
            if row.points and row.mean is not None
        )
        alt = f"{TITLES[metric]} of every case and seed, a row for each network. Means: {means}."
        better = "to the right" if metric == "dice" else "to the left"
        caption = f"{TITLES[metric]}; better is {better}."
        if metric == METRICS[0]:
            caption += (
                " Every point is a case that was not trained on, segmented once for each seed "
                "(height and marker). The stroke is the mean, the bar its 95 % interval."
            )
        label = f"{TITLES[metric]} (a case's mean over its classes)"
        figures.append(Drawing(point_rows_svg(rows, label=label, seeds=seeds), alt, caption))
    return figures


def _curves(comparison: Comparison, rows: Sequence[TrainingRow], runs: Path) -> Drawing | None:
    unit = "processor time" if comparison.schedule["clock"] == "processor" else "time"
    curves = []
    for network in comparison.recipe.networks:
        for row in rows:
            if row.name == network.name:
                log = RunLog.read(runs / f"{network.slug}_{row.seed}")
                points = [(float(r["seconds"]) / 60, float(r["loss"])) for r in log.steps]
                curves.append(TrainingCurve(row.name, points))
    if not any(curve.points for curve in curves):
        return None
    return Drawing(
        curves_svg(curves, x_label=f"minutes of {unit}", y_label="training loss"),
        f"Training loss over {unit}, a curve for each training, one style for each network.",
        "The loss of training, each curve a training; those of one network have one style.",
    )


def _worst(comparison: Comparison, scores: Sequence[NetworkScores], runs: Path) -> list[Photograph]:
    pictures = []
    slugs = {network.name: network.slug for network in comparison.recipe.networks}
    for one in scores:
        worst = one.worst()
        if worst is None:
            continue
        row, _, dice = worst
        folder = runs / f"{slugs[one.name]}_{row.seed}"
        try:
            card = json.loads((folder / CARD_DATA).read_text(encoding="utf-8"))
            picture = card["worst"][0]
            png = (folder / picture["file"]).read_bytes()
        except (OSError, ValueError, LookupError):
            continue  # the scan could not be read any more when it was to be drawn
        title = f"{one.name}, seed {row.seed}, {picture['title']}"
        alt = f"Slices of the worst answer of {one.name}, mean Dice {dice:.2f}, with its outlines."
        pictures.append(Photograph(png, alt, title))
    return pictures


def _variations(augmentation: Mapping[str, Any]) -> list[str]:
    return [
        f"{key} {value:g}" if isinstance(value, (int, float)) else f"{key} {value}"
        for key, value in augmentation.items()
        if value and not isinstance(value, (Mapping, list))
    ]


def without_paths(value: Any) -> Any:
    """Shorten absolute paths of a recipe to their last names, and its folder to FOLDER."""
    if isinstance(value, Mapping):
        return {k: FOLDER if k == "folder" else without_paths(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_paths(part) for part in value]
    if not isinstance(value, str):
        return value
    # Windows' separators are either; of other systems' paths it knows the names too.
    is_absolute = PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()
    leads_away = value.startswith(("~", ".."))
    return PureWindowsPath(value).name if is_absolute or leads_away else value
