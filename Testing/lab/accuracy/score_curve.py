"""Plot of scores over training time, from the results of `pumit evaluate -o`.

Run by hand: `python Testing/lab/accuracy/score_curve.py points.csv -o curve.png`.
points.csv has a line for each evaluated checkpoint, in the order of training:

    label,core_hours,checkpoint,rows
    0.1,3.5,old/default.safetensors,rows_01.json

`core_hours` are hours of training so far times the number of cores. `checkpoint` may be empty; then
its number of parameters is not shown. Paths are relative to the CSV file. Writes the picture and,
next to it, the table as Markdown. Means have equal weight per case.
"""

import argparse
import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pumit.evaluation.click_scores import means, means_of_groups
from safetensors import safe_open

MEASURES = ("box", "dice@1", "dice@3", "dice@5")
NAMES = {"box": "from a box", "dice@1": "1 click", "dice@3": "3 clicks", "dice@5": "5 clicks"}


@dataclass(frozen=True)
class Point:
    """One checkpoint: training time, and means over all cases and by group."""

    label: str
    core_hours: float
    parameters: int | None
    whole: dict[str, float]
    groups: dict[str, dict[str, float]]


def parameters_of(checkpoint: Path) -> int:
    with safe_open(checkpoint, framework="np") as file:
        names = file.keys()
        return sum(math.prod(file.get_slice(name).get_shape()) for name in names)


def read_points(path: Path) -> list[Point]:
    points = []
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            rows = json.loads((path.parent / line["rows"]).read_text())["rows"]
            checkpoint = line["checkpoint"]
            points.append(
                Point(
                    line["label"],
                    float(line["core_hours"]),
                    parameters_of(path.parent / checkpoint) if checkpoint else None,
                    means(rows),
                    means_of_groups(rows),
                )
            )
    return points


def table(points: list[Point]) -> str:
    """Return Markdown: a row per checkpoint for all cases, and one for each group."""
    heads = ["weights", "core hours", "parameters", "cases", *NAMES.values()]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for point in points:
        size = "" if point.parameters is None else f"{point.parameters / 1e6:.2f} M"
        for name, mean in ({"": point.whole} | point.groups).items():
            cells = ["", "", ""] if name else ["", f"{point.core_hours:g}", size]
            cells[0] = name or f"**{point.label}**"
            scores = [f"{mean[m]:.3f}" for m in MEASURES]
            lines.append(f"| {' | '.join([*cells, str(mean['cases']), *scores])} |")
    return "\n".join(lines) + "\n"


def draw(points: list[Point], path: Path) -> None:
    """Plot all cases on the left, and Dice after five clicks by group on the right."""
    figure = Figure(figsize=(11, 4.2), dpi=130)
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    hours = [p.core_hours for p in points]
    for measure in MEASURES:
        left.plot(hours, [p.whole[measure] for p in points], "o-", label=NAMES[measure])
    for group in sorted({name for p in points for name in p.groups}):
        known = [p for p in points if group in p.groups]
        scores = [p.groups[group]["dice@5"] for p in known]
        right.plot([p.core_hours for p in known], scores, "o-", label=group)
    for point in points:
        left.annotate(
            point.label, (point.core_hours, 0.98), rotation=90, ha="right", va="top", fontsize=7
        )
    left.set_title(f"all {points[-1].whole['cases']} cases", fontsize=10)
    right.set_title("by group, 5 clicks", fontsize=10)
    for axes in (left, right):
        axes.set(xlabel="training, core hours", ylim=(0, 1), xlim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="lower right")
    left.set_ylabel("Dice")
    figure.tight_layout()
    figure.savefig(path, format="png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("points", type=Path, help="CSV: label,core_hours,checkpoint,rows")
    parser.add_argument("-o", "--output", type=Path, required=True, help="picture, .png")
    args = parser.parse_args()
    points = read_points(args.points)
    draw(points, args.output)
    args.output.with_suffix(".md").write_text(table(points))
    print(table(points))


if __name__ == "__main__":
    main()
