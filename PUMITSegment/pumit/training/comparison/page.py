"""Page of a comparison, with means, intervals and paired differences to the first network."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import yaml

from pumit.evaluation.crossed_bootstrap import RESAMPLES, CrossedMean, Values, crossed_mean
from pumit.models.user_index import CARD_DATA
from pumit.report.document import Drawing, Photograph, write_template
from pumit.report.line_chart import Line, PointRow, curves_svg, point_rows_svg
from pumit.runs import COMPARISON
from pumit.training.comparison.plan import Comparison
from pumit.training.comparison.results import ROWS, TrainingRow, read_rows
from pumit.training.model_card.record import RunLog, data_settings_of

METRICS = ("dice", "hd95_mm", "assd_mm")
ALL = "all classes"  # mean over the classes of a case
PAGE = "index.html"
FOLDER = "FOLDER"
_SHIPPED = Path(__file__).parents[1] / "recipes"
DIGITS = {"dice": 3, "hd95_mm": 2, "assd_mm": 2}
TITLES = {"dice": "Dice", "hd95_mm": "HD95, mm", "assd_mm": "ASSD, mm"}


@dataclass(frozen=True)
class NetworkScores:
    """All measured values of a network.

    Attributes:
        values: Metric and class, or `ALL`, to values (seeds, cases); NaN for undefined values.
    """

    name: str
    rows: tuple[TrainingRow, ...]
    values: dict[tuple[str, str], Values]

    @property
    def seeds(self) -> list[int]:
        """Seeds of its trainings, in the order of the values."""
        return [row.seed for row in self.rows]

    def mean(self, metric: str, label: str = ALL) -> CrossedMean:
        """Return the mean over seeds and cases."""
        return crossed_mean(self.values[metric, label])

    def undefined(self, metric: str, label: str = ALL) -> int:
        """Return the number of predictions with a Dice but without the given metric."""
        dice = self.values["dice", label]
        return int((np.isfinite(dice) & ~np.isfinite(self.values[metric, label])).sum())

    def worst(self) -> tuple[TrainingRow, str, float] | None:
        """Return training, case and Dice of the prediction with the lowest mean Dice."""
        dice = self.values["dice", ALL]
        if not np.isfinite(dice).any():
            return None
        seed, case = np.unravel_index(int(np.nanargmin(dice)), dice.shape)
        row = self.rows[int(seed)]
        return row, case_names([row])[int(case)], float(dice[seed, case])


@dataclass(frozen=True)
class Difference:
    """Paired differences of a network's values to the first network's, by seed and case.

    Attributes:
        seeds: Number of seeds that both were trained with.
    """

    name: str
    seeds: int
    by_metric: dict[str, CrossedMean]


def case_names(rows: Sequence[TrainingRow]) -> list[str]:
    """Return the cases of some trainings, sorted."""
    return sorted({score.case for row in rows for score in row.cases})


def class_names(rows: Sequence[TrainingRow]) -> list[str]:
    """Return the classes of some trainings, in order of appearance."""
    return list(dict.fromkeys(score.label for row in rows for score in row.cases))


def network_scores(rows: Sequence[TrainingRow], names: Sequence[str]) -> list[NetworkScores]:
    """Return the values of each network with a finished training.

    The mean over the classes of a case excludes classes that are in neither ground truth nor
    prediction. If the distance of another class is undefined, because one of both is empty, the
    mean distance is undefined too: otherwise the worst predictions would improve it.
    """
    cases, labels = case_names(rows), class_names(rows)
    found = []
    for name in names:
        mine = tuple(sorted((r for r in rows if r.name == name), key=lambda row: row.seed))
        if not mine:
            continue
        values: dict[tuple[str, str], Values] = {}
        for metric in METRICS:
            for label in labels:
                values[metric, label] = _values(mine, cases, metric, [label])
            values[metric, ALL] = _values(mine, cases, metric, labels)
        found.append(NetworkScores(name, mine, values))
    return found


def differences_of(scores: Sequence[NetworkScores]) -> list[Difference]:
    """Return the differences of all other networks to the first, over their common seeds."""
    found = []
    for other in scores[1:]:
        first = scores[0]
        seeds = [seed for seed in other.seeds if seed in first.seeds]
        ours = [other.seeds.index(seed) for seed in seeds]
        theirs = [first.seeds.index(seed) for seed in seeds]
        by_metric = {
            metric: crossed_mean(
                other.values[metric, ALL][ours] - first.values[metric, ALL][theirs]
            )
            for metric in METRICS
        }
        found.append(Difference(other.name, len(seeds), by_metric))
    return found


def _values(
    rows: Sequence[TrainingRow],
    cases: Sequence[str],
    metric: str,
    labels: Sequence[str],
) -> Values:
    """Return values (seeds, cases), averaged over the given classes."""
    table = np.full((len(rows), len(cases)), np.nan)
    for i, row in enumerate(rows):
        of_case: dict[str, list[float]] = {}
        for score in row.cases:
            if score.label in labels and score.dice is not None:
                value = getattr(score, metric)
                of_case.setdefault(score.case, []).append(np.nan if value is None else value)
        for case, values in of_case.items():
            table[i, cases.index(case)] = float(np.mean(values))
    return table


def write_comparison_page(output: Path, runs: Path, comparison: Comparison) -> Path | None:
    """Write the page from the folder of a comparison; None if no training is finished yet.

    Raises:
        TrainingError: If the rows cannot be read.
        ExportError: If the page cannot be written.
    """
    names = [network.name for network in comparison.recipe.networks]
    rows = [row for row in read_rows(output / ROWS) if row.name in names]
    if not rows:
        return None
    facts = json.loads((output / COMPARISON).read_text(encoding="utf-8"))
    scores = network_scores(rows, names)
    done = {(row.name, row.seed) for row in rows}
    source = comparison.file.source
    recipe = source.removesuffix(".yaml") if (_SHIPPED / source).is_file() else source
    keys = comparison.file.keys
    shown = {**keys, "data": {"folder": FOLDER, **data_settings_of(keys["data"])}}
    content = {
        "title": comparison.recipe.title or f"{len(names)} networks compared",
        "comparison": comparison,
        "facts": facts,
        "rows": rows,
        "scores": scores,
        "differences": differences_of(scores),
        "labels": class_names(rows),
        "lacking": [f"{one.name} {n}" for one in scores if (n := one.undefined("hd95_mm"))],
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
            with_short_paths(shown),
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
                curves.append(Line(row.name, points))
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
            continue  # no picture, as the scan could not be read any more
        title = f"{one.name}, seed {row.seed}, {picture['title']}"
        alt = f"Slices of the worst result of {one.name}, mean Dice {dice:.2f}, with its outlines."
        pictures.append(Photograph(png, alt, title))
    return pictures


def _variations(augmentation: Mapping[str, Any]) -> list[str]:
    return [
        f"{key} {value:g}" if isinstance(value, (int, float)) else f"{key} {value}"
        for key, value in augmentation.items()
        if value and not isinstance(value, (Mapping, list))
    ]


def with_short_paths(value: Any) -> Any:
    """Shorten absolute paths of a recipe to their last part, and replace its folder by FOLDER."""
    if isinstance(value, Mapping):
        return {k: FOLDER if k == "folder" else with_short_paths(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_short_paths(part) for part in value]
    if not isinstance(value, str):
        return value
    # Windows accepts both separators, so PureWindowsPath also gives the name of POSIX paths.
    is_absolute = PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()
    leads_away = value.startswith(("~", ".."))
    return PureWindowsPath(value).name if is_absolute or leads_away else value
