"""Tables and size curve of the ablation, from the results of `ablate_promptable.py`.

Intervals are 95 % bootstrap intervals over validation fields; differences to the first row are
paired by field. They describe these weights on other fields of the kind, not another training.
A difference is therefore bold only if its interval excludes zero, with the same sign, against both
trainings of the full network: the first row and the one with other initial weights.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from ablation_fields import CLICKS, KINDS, _answers, generated_fields
from ablation_rows import BASE, ROWS, build, fields_seen

Scores = dict[str, list[float]]
RESAMPLES = 4000
SHOWN = {"1 click": 0, "3 clicks": 2, "5 clicks": 4, "box": CLICKS}
GROUPS = {
    "generated": tuple(KINDS),
    **{kind: (kind,) for kind in KINDS},
    "real": ("real isotropic", "real thick slices"),
    "real thick slices": ("real thick slices",),
}


def of_group(scores: Scores, group: str) -> npt.NDArray[np.float64]:
    """Return Dice of the fields of a group, (fields, CLICKS + 1)."""
    rows = [row for name, row in scores.items() if name.split("/")[0] in GROUPS[group]]
    return np.array(rows).reshape(-1, CLICKS + 1)


def interval(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean over fields and its 95 % bootstrap interval."""
    rng = np.random.default_rng(0)
    picks = rng.integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.percentile(values[picks].mean(1), (2.5, 97.5))
    return float(values.mean()), float(low), float(high)


def cell(values: npt.NDArray[np.float64]) -> str:
    mean, low, high = interval(values)
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def sign(values: npt.NDArray[np.float64]) -> int:
    """Return 1 or -1 if the interval excludes zero, else 0."""
    _, low, high = interval(values)
    return int(low > 0) - int(high < 0)


def difference(*values: npt.NDArray[np.float64]) -> str:
    """Format the difference to the first reference, bold if it holds against every one."""
    mean, low, high = interval(values[0])
    text = f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"
    return f"**{text}**" if abs(sum(map(sign, values))) == len(values) else text


def table(head: list[str], rows: list[list[str]]) -> None:
    for row in (head, ["---"] * len(head), *rows):
        print("| " + " | ".join(row) + " |")
    print()


def last_measured(known: dict[str, dict]) -> str:
    """Return the largest number of steps for which every row has scores."""
    turns = [
        {int(k) for k, turn in content["turns"].items() if "scores" in turn}
        for content in known.values()
    ]
    return str(max(set.intersection(*turns)))


def print_scores(known: dict[str, dict], steps: str) -> None:
    for group in GROUPS:
        whole = [
            of_group(known[key]["turns"][steps]["scores"], group)
            for key in ("all", "again")
            if key in known
        ]
        first = whole[0]
        if not len(first):
            continue
        print(f"### {group.capitalize() if group != '2D' else group}: {len(first)} fields\n")
        rows = []
        for key, content in known.items():
            own = of_group(content["turns"][steps]["scores"], group)
            cells = [
                cell(own[:, i])
                if key == "all"
                else difference(*(own[:, i] - w[:, i] for w in whole))
                for i in SHOWN.values()
            ]
            rows.append([content["title"], *cells])
        table(["", *SHOWN], rows)


def print_cost(known: dict[str, dict], steps: str) -> None:
    rows = []
    for content in known.values():
        turn = content["turns"][steps]
        rows.append([content["title"], f"{content['parameters']:,}", f"{turn['cpu_seconds']:.0f}"])
    table(["", "parameters", f"CPU seconds of {steps} steps"], rows)


def print_larger(known: dict[str, dict], steps: str) -> None:
    """Print scores with and without BA-SAM, by field size."""
    with_terms, without = (
        known.get(key, {}).get("larger", {}).get(steps, {}) for key in ("all", "no_ba")
    )
    rows = []
    for size in with_terms.keys() & without.keys():
        for group in ("generated", "real"):
            a, b = of_group(with_terms[size], group), of_group(without[size], group)
            if not len(a):
                continue
            for shown in ("1 click", "5 clicks", "box"):
                i = SHOWN[shown]
                values = [cell(a[:, i]), cell(b[:, i]), difference(a[:, i] - b[:, i])]
                rows.append([size, f"{group}, {len(a)}", shown, *values])
    rows.sort(key=lambda row: int(row[0]))
    table(["field size", "fields", "prompts", "with", "without", "with less without"], rows)


def curve(content: dict) -> list[tuple[int, float, float]]:
    """Return steps, CPU seconds and Dice (mean over all fields and prompts) per turn."""
    points = []
    for steps, turn in sorted(content["turns"].items(), key=lambda item: int(item[0])):
        if "scores" in turn:
            dice = float(np.mean(list(turn["scores"].values())))
            points.append((int(steps), turn["cpu_seconds"], dice))
    return points


def print_sizes(known: dict[str, dict], picture: Path | None) -> None:
    """Print Dice of the three widths per turn, and draw the curve."""
    keys = [key for key in ("half", "all", "twice") if key in known]
    rows = []
    for key in keys:
        content = known[key]
        for steps, seconds, dice in curve(content):
            count = f"{content['parameters']:,}"
            rows.append([content["title"], count, str(steps), f"{seconds:.0f}", f"{dice:.3f}"])
    table(["", "parameters", "steps", "CPU seconds", "Dice"], rows)
    if picture is None:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
    for key in keys:
        points = curve(known[key])
        label = f"{known[key]['parameters'] / 1e6:.2f} M parameters"
        for axis, column in zip(axes, (0, 1), strict=True):
            axis.plot([p[column] for p in points], [p[2] for p in points], marker="o", label=label)
    axes[0].set(xlabel="steps", ylabel="Dice, mean of all answers")
    axes[1].set(xlabel="CPU seconds of training")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(picture, dpi=110)


def print_speed(repeats: int = 7) -> None:
    """Print milliseconds per field (embedding and six predictions), adaptive and plain."""
    networks = {row.key: build(row).eval() for row in ROWS if row.key in ("all", "plain")}
    names = {0: "isotropic", 1: "degree 1", 2: "degree 2", 3: "degree 3", 4: "degree 4", 5: "2D"}
    rows = []
    for da0, name in names.items():
        fields = [
            f
            for f in generated_fields(BASE["field_size"], 4)  # one of each degree, at least
            if f.da0 == da0
        ]
        spent: dict[str, list[float]] = {key: [] for key in networks}
        for turn in range(repeats + 1):
            for key, network in networks.items():
                started = time.process_time()
                with torch.no_grad():
                    _answers(network, fields[:1])
                if turn:  # the first turn warms up
                    spent[key].append(time.process_time() - started)
        medians = [statistics.median(spent[key]) * 1e3 for key in ("all", "plain")]
        ratio = f"{medians[1] / medians[0]:.1f}"
        rows.append([name, "x".join(map(str, fields[0].target.shape))])
        rows[-1] += [f"{m:.0f}" for m in medians] + [ratio]
    table(["", "field", "adaptive, ms", "plain, ms", "ratio"], rows)


def print_tables(args: argparse.Namespace) -> None:
    """Print all tables as Markdown."""
    paths = {row.key: args.output / row.key / "result.json" for row in ROWS}
    known = {key: json.loads(path.read_text()) for key, path in paths.items() if path.exists()}
    known = {
        key: content
        for key, content in known.items()
        if any("scores" in turn for turn in content["turns"].values())
    }
    missing = [row.title for row in ROWS if row.key not in known]
    steps = last_measured(known)
    print(f"## After {steps} steps of {fields_seen(int(steps), args.batch)} fields in all\n")
    if missing:
        print(f"Partial: not measured yet are {'; '.join(missing)}.\n")
    print_cost(known, steps)
    print_scores(known, steps)
    print("## Fields larger than those of training\n")
    print_larger(known, steps)
    print("## Size\n")
    print_sizes(known, args.picture)
    print("## Time\n")
    print_speed()
