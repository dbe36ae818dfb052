"""The text of a model card, in markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from pumit.evaluation.segmentation_metrics import Mean
from pumit.report.document import (
    Block,
    Code,
    Heading,
    Paragraph,
    Picture,
    Points,
    Table,
    markdown,
)
from pumit.system.wording import count_of, duration, times
from pumit.training.model_card.facts import CaseFact, Scores, fingerprint_of_all
from pumit.training.model_card.limits import card_limits
from pumit.training.model_card.record import TASK_OF_KIND, RunCard
from pumit.training.model_card.scores import note_of

MOST_ROWS = 60
ALL_CLASSES = "all classes"
NOT_CHOSEN = "not chosen by its maker: ask before using it for anything else than trying it out"
MEASURES = {
    "dice": "Dice",
    "hd95_mm": "HD95, mm",
    "assd_mm": "ASSD, mm",
    "auc": "AUC",
    "accuracy": "accuracy",
}


def card_text(card: RunCard) -> str:
    """The text of a card, in markdown."""
    blocks = [
        Paragraph(card.description),
        _overview(card),
        *_quality(card),
        *_classes(card),
        *_training(card),
        *_data(card),
        Heading("What it cannot do"),
        Points(card_limits(card)),
    ]
    return markdown(f"Model card: {card.name}", blocks)


def _overview(card: RunCard) -> Table:
    size = f"{card.parameters / 1e6:.2f} million" if card.parameters >= 10_000 else card.parameters
    first = "; ".join(
        f"`{network}`, {steps} steps in {duration(seconds)}"
        for network, steps, seconds in card.preceding
    )
    rows = [
        ("What it does", TASK_OF_KIND.get(card.kind, card.kind)),
        ("Network", f"`{card.network}`, {size} parameters"),
        ("File", f"`{card.file}`, weights with SHA-256 `{card.sha256}`"),
        ("Version", card.version),
        ("Licence", card.licence or NOT_CHOSEN),
        ("Made", f"{card.made}{_effort(card)}"),
        ("Begun with", card.initial_model or "random weights"),
        *([("Learnt first, without labels", first)] if first else []),
        ("Not for", "diagnosis or treatment without a person who checks every result"),
    ]
    return Table("", ["", ""], rows)


def _effort(card: RunCard) -> str:
    if not card.steps:
        return ""
    memory = "" if card.memory_gib is None else f", at most {card.memory_gib:.1f} GiB of memory"
    of = " of processor time" if card.schedule.get("clock") == "processor" else ""
    return f", {card.steps} steps in {duration(card.seconds)}{of} on {card.hardware}{memory}"


def _quality(card: RunCard) -> list[Block]:
    parts: list[Block] = [Heading("How good it is")]
    if card.scores is None and card.is_pretrained:
        return [*parts, Paragraph("It was not measured: pre-training has no validation cases.")]
    if card.scores is None:
        if card.metrics:
            rows = [(_measure(k), f"{v:.3f}") for k, v in _flat(card.metrics)]
            sentence = f"At step {card.step}, on the validation cases:"
            parts += [Paragraph(sentence), Table("", ["measure", "mean"], rows)]
        reason = "was stopped before" if card.is_stopped_early else "ended without that"
        sentence = f"Its cases were not measured one by one: the training {reason}."
        return [*parts, Paragraph(sentence)]
    for scores in (card.scores, *card.further_scores):
        parts += _scores(card, scores)
    note = note_of(card.metrics)
    parts += [Paragraph(note)] if note else []
    if card.worst:
        parts.append(Heading("The worst cases", 3))
        parts += [Picture(p.file, p.title.partition(",")[0], p.title) for p in card.worst]
    return parts


def _scores(card: RunCard, scores: Scores) -> list[Block]:
    fold = f" (part {card.fold} of the data)" if card.fold and scores.split == "validation" else ""
    count = len(scores.cases)
    cases = count_of(count, f"{scores.split} case")
    step = "" if scores.step is None else f", with the weights of step {scores.step}"
    trained = "which were trained on too" if _is_seen(card) else "which were not trained on"
    measured = f"Measured on {cases}{fold}, {trained}{step}."
    if scores.split == "cross-validation":
        measured = (
            f"This model has seen all of its {count_of(count, 'case')}. Models like it were "
            "measured in a cross-validation, each on cases that it had not seen."
        )
    head = (
        f"{measured} Means over the cases; in brackets the 95 % bootstrap interval, where there "
        "are two cases or more."
    )
    columns = list(dict.fromkeys(m for row in scores.means.values() for m in row))
    columns_shown = [c for c in columns if c in MEASURES] or columns
    rows = [
        (
            ALL_CLASSES if name == "mean" else name,
            *(interval(row.get(c)) for c in columns_shown),
            str(max(m.cases for m in row.values())),
        )
        for name, row in scores.means.items()
    ]
    parts: list[Block] = [
        Paragraph(head),
        Table("", ["", *map(_measure, columns_shown), "cases"], rows),
    ]
    names = list(dict.fromkeys(column for case in scores.cases for column in case.values))
    listed = [(c.case, *(_number(c.values.get(n)) for n in names)) for c in scores.cases]
    noun = f"{scores.split} case" if scores.split in ("validation", "test") else "case"
    more = f" (of {count} the worst {MOST_ROWS})" if count > MOST_ROWS else ""
    title = f"Each {noun}, the worst first{more}; {scores.caption}:"
    if listed:
        parts += [Paragraph(title), Table("", ["case", *names], listed[:MOST_ROWS])]
    return parts


def _is_seen(card: RunCard) -> bool:
    return any("training" in case.role for case in card.of_role("validation"))


def _classes(card: RunCard) -> list[Block]:
    if not card.classes:
        return []
    has_values = any(c.values for c in card.classes)
    rows = [
        (
            c.name,
            *((", ".join(map(str, c.values)),) if has_values else ()),
            c.code or "none",
            f"`{c.color_hex}`",
        )
        for c in card.classes
    ]
    value = ["value in the labels"] if has_values else []
    return [Heading("Classes"), Table("", ["class", *value, "code", "colour"], rows)]


def _training(card: RunCard) -> list[Block]:
    parts: list[Block] = [Heading("How it was trained")]
    if card.curves is not None:
        parts.append(Picture(card.curves.file, card.curves.title))
    remarks = []
    if card.step:
        why = "averaged over the last ones" if card.is_pretrained else "the best by validation"
        remarks.append(f"Kept were the weights of step {card.step}, {why}.")
    if card.is_stopped_early:
        remarks.append("The training was stopped early.")
    parts += [Paragraph(" ".join(remarks))] if remarks else []
    plan = {k: v for k, v in card.plan.items() if k != "median_shape"}
    data = {k: v for k, v in card.settings.get("data", {}).items() if k != "classes"}
    keys = {**card.settings, "data": data, "plan": plan, "schedule": card.schedule}
    keys = {k: v for k, v in keys.items() if v not in ({}, [], None)}
    text = yaml.safe_dump(
        keys, sort_keys=False, allow_unicode=True, width=96, default_flow_style=None
    )
    about = Paragraph("Its recipe, with what was planned from the data:")
    return [*parts, about, Code(text, "yaml")]


def _data(card: RunCard) -> list[Block]:
    parts: list[Block] = [Heading("Data")]
    if card.is_pretrained:
        parts.append(Paragraph("Generated scans, and those that its recipe names."))
    if card.counts:
        rows = [(k, ", ".join(map(str, v)) if isinstance(v, list) else str(v))
                for k, v in card.counts.items()]  # fmt: skip
        names = ", ".join(c.name for c in card.classes)
        head = f"cases of {names}" if names else "cases"
        parts.append(Table("", ["split", head], rows))
    if card.cases:
        roles = dict.fromkeys(case.role for case in card.cases)
        counts = [f"{sum(c.role == role for c in card.cases)} for {role}" for role in roles]
        about = (
            f"{count_of(len(card.cases), 'case')}: {', '.join(counts)}. Which case is which is "
            "known to the maker alone."
        )
        parts.append(Paragraph(about))
        parts += _facts(card.cases)
    if card.channels:
        parts.append(Paragraph(f"Image channels: {', '.join(card.channels)}."))
    if card.remarks:
        remarks = count_of(card.remarks, "remark")
        parts.append(Paragraph(f"The check of the data had {remarks}, which the maker has seen."))
    return parts


def _facts(cases: Sequence[CaseFact]) -> list[Block]:
    parts: list[Block] = []
    spacings = [case.spacing_mm for case in cases if case.spacing_mm]
    shapes = [case.shape for case in cases if case.shape]
    if spacings and shapes:
        sentence = (
            f"Voxels of {span(spacings)} mm, scans of {span(shapes)} voxels; the depth axis first."
        )
        parts.append(Paragraph(sentence))
    whole = fingerprint_of_all(cases)
    if whole:
        parts.append(Paragraph(f"SHA-256 over the fingerprints of all cases: `{whole}`."))
        rows = [
            (c.case, c.role, times(c.shape), times(c.spacing_mm), f"`{c.sha256[:16]}`")
            for c in cases[:MOST_ROWS]
        ]  # fmt: skip
        head = ["case", "role", "voxels", "spacing, mm", "SHA-256 begins"]
        parts.append(Table("", head, rows))
    if len(cases) > MOST_ROWS:
        sentence = f"The first {MOST_ROWS} of {len(cases)}; `card.json` has all of them."
        parts.append(Paragraph(sentence))
    return parts


def span(rows: Sequence[Sequence[float]]) -> str:
    """The range of each axis: `1 to 2 x 0.5 x 0.5`."""
    ranges = []
    for values in zip(*rows, strict=True):
        low, high = min(values), max(values)
        ranges.append(f"{low:g}" if low == high else f"{low:g} to {high:g}")
    return " x ".join(ranges)


def interval(mean: Mean | None) -> str:
    """A mean with its interval."""
    if mean is None or mean.mean is None:
        return "none"
    text = f"{mean.mean:.3f}"
    return text if mean.low is None else f"{text} [{mean.low:.3f}, {mean.high:.3f}]"


def _measure(name: str) -> str:
    return MEASURES.get(name, name.replace("_", " "))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _flat(metrics: dict[str, Any]) -> list[tuple[str, float]]:
    """Numbers of a nested mapping, with their keys joined."""
    found: list[tuple[str, float]] = []
    for key, value in metrics.items():
        if isinstance(value, dict):
            found += [(f"{key} {inner}", number) for inner, number in _flat(value)]
        elif isinstance(value, (int, float)):
            found.append((key, float(value)))
    return found
