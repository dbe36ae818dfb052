"""What the page of a comparison says of it in words and numbers: no path, no machine's name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import yaml

from pumit.evaluation.crossed_bootstrap import RESAMPLES, CrossedMean
from pumit.report.document import Block, Code, Paragraph, Table
from pumit.system.wording import count_of, duration, times
from pumit.training.comparison.recipe import Comparison

FOLDER = "FOLDER"
_SHIPPED = Path(__file__).parents[1] / "recipes"
NOTHING = "\N{EN DASH}"  # where there is no number


def budget_words(schedule: Mapping[str, Any]) -> str:
    """How long each training is."""
    seconds, steps = schedule.get("seconds"), schedule["steps"]
    if seconds is None:
        return f"{steps:,} steps"
    of = " of processor time" if schedule["clock"] == "processor" else ""
    return f"{duration(seconds)}{of}"


def introduction(comparison: Comparison, facts: Mapping[str, Any]) -> list[str]:
    """Return what was done, for a reader of nothing else."""
    networks, seeds = len(comparison.recipe.networks), len(comparison.recipe.seeds)
    training, validation = len(facts["training"]), len(facts["validation"])
    again = "once" if seeds == 1 else f"{seeds} times with different seeds"
    first = (
        f"{count_of(networks, 'network')} {'was' if networks == 1 else 'were each'} trained "
        f"{again}, for {budget_words(comparison.schedule)} a training, on the same "
        f"{count_of(training, 'case')} with the same patches, variations and losses, and judged by "
        f"{count_of(validation, 'case')} that nobody trained on."
    )
    second = (
        "The weights at the end of a training are judged, whatever they are: nothing was chosen by "
        "these cases while a network trained, and each training was judged by them once."
    )
    return [first, second]


def about_data(facts: Mapping[str, Any]) -> Table:
    """Data, plan, budget and machine."""
    plan, machine, schedule = facts["plan"], facts["machine"], facts["schedule"]
    classes = [str(row["name"]) for row in facts["classes"]]
    least, most = facts["shapes"]["least"], facts["shapes"]["most"]
    rate = "" if schedule["shape"] == "steps" else f", {schedule['shape']} rate"
    rows: list[tuple[str, str]] = [
        ("Cases", f"{len(facts['training'])} to train on, {len(facts['validation'])} to judge by"),
        ("Classes", ", ".join(classes)),
        ("Image channels", str(facts["channels"])),
        ("Scans", f"{times(least)} to {times(most)} voxels"),
        ("Voxels seen", f"{times(plan['spacing_mm'])} mm"),
        ("Patch", f"{times(plan['patch_size'])} voxels, {plan['batch_size']} a step"),
        ("Variations", _variations(facts["augmentation"])),
        ("Budget", f"{budget_words(schedule)} a training{rate}"),
        ("Optimiser", f"{schedule['optimizer']}, weights averaged with {schedule['average']:g}"),
        ("Seeds", ", ".join(map(str, facts["seeds"]))),
        ("Machine", _machine(facts)),
        ("Software", f"PUMIT {machine['pumit']}, PyTorch {machine['torch']}, Python "
         f"{machine['python']}, {machine['system']}"),
    ]  # fmt: skip
    return Table("Alike for all networks.", ("", ""), rows, is_words=True)


def about_networks(comparison: Comparison) -> Table:
    """Return a table of how the networks differ."""
    rows = []
    for network in comparison.recipe.networks:
        own = [f"{key} {value}" for key, value in network.schedule.named().items()]
        if network.initial is not None:
            own.append("begins with an earlier model")
        if network.share is not None:
            own.append(f"learns from {network.share:.0%} of the cases")
        sizes = ", ".join(f"{key} {value}" for key, value in network.network_sizes.items())
        rows.append((network.name, network.network, sizes or "as built in", ", ".join(own)))
    head = ("Network", "Name in recipes", "Sizes changed", "Of its own")
    return Table("What differs.", head, rows, is_words=True)


def bootstrap_words(seeds: int) -> str:
    """How the intervals were made."""
    if seeds == 1:
        return (
            f"The intervals are the middle 95 % of {RESAMPLES:,} bootstrap resamples over cases. "
            "With one seed they do not know how much a second training would differ."
        )
    return (
        f"The intervals are the middle 95 % of {RESAMPLES:,} bootstrap resamples: each draws seeds "
        "with replacement, then cases with replacement, and takes every drawn case with every "
        "drawn seed, so that both the choice of cases and the chance of training count. The mean "
        "of a case is over its classes."
    )


def number_words(value: float | None, digits: int) -> str:
    """A number, or a dash where there is none."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def interval_words(mean: CrossedMean, digits: int, *, signed: bool = False) -> list[str]:
    """An interval as a line, or none where there is none."""
    if mean.low is None or mean.high is None:
        return []
    sign = "+" if signed else ""
    return [f"{mean.low:{sign}.{digits}f} to {mean.high:{sign}.{digits}f}"]


def recipe_words(comparison: Comparison) -> list[Block]:
    """The command and the whole recipe, without paths."""
    source = comparison.source
    name = source.removesuffix(".yaml") if (_SHIPPED / source).is_file() else source
    command = f"pumit compare {name} --data {FOLDER} -o OUT"
    text = yaml.safe_dump(
        without_paths(comparison.keys),
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=96,
    )
    about = (
        f"{FOLDER} is the folder of the scans. The recipe is as it was given; what it leaves out "
        "is in the table above. `pumit train` with a recipe in OUT/recipes makes one training."
    )
    return [Code(command), Paragraph(about.replace("`", ""), is_note=True), Code(text)]


def without_paths(value: Any) -> Any:
    """A recipe whose absolute paths are but their last names, and whose data lie in FOLDER."""
    if isinstance(value, Mapping):
        return {k: FOLDER if k == "folder" else without_paths(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_paths(part) for part in value]
    return _without_path(value) if isinstance(value, str) else value


def _without_path(text: str) -> str:
    # Windows' separators are either; of other systems' paths it knows the names too.
    is_absolute = PurePosixPath(text).is_absolute() or PureWindowsPath(text).is_absolute()
    leads_away = text.startswith(("~", ".."))
    return PureWindowsPath(text).name if is_absolute or leads_away else text


def _machine(facts: Mapping[str, Any]) -> str:
    machine, threads, count = facts["machine"], facts["threads"], facts["processes"]
    processor = f" ({machine['processor']})" if machine.get("processor") else ""
    return (
        f"{machine['hardware']}{processor}; {count_of(threads, 'CPU thread')} a training, "
        f"{count_of(count, 'training')} at a time"
    )


def _variations(augmentation: Mapping[str, Any]) -> str:
    parts = [
        f"{key} {value:g}" if isinstance(value, (int, float)) else f"{key} {value}"
        for key, value in augmentation.items()
        if value and not isinstance(value, (Mapping, list))
    ]
    return ", ".join(parts) or "none"
