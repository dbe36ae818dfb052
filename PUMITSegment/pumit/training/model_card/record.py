"""Content of a model card, from a run's folder and its best checkpoint, without patient identities.

Cases are numbered: "case 7". The mapping to files stays in the run's folder, in
`case_numbers.json`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pumit.errors import PumitError
from pumit.evaluation.segmentation_metrics import Mean, MetricRow, mean_of, summarize
from pumit.export.classes import class_terminology
from pumit.geometry import Triple
from pumit.models.card import classes_of, kind_of
from pumit.models.checkpoint import Checkpoint
from pumit.models.user_index import description_of
from pumit.runs import RECIPE, read_log, read_status
from pumit.segmentation import TISSUE
from pumit.training.classification.cases import named_split
from pumit.training.preceding import FOLDER
from pumit.training.recipes.model import read_model
from pumit.training.recipes.reader import read_yaml
from pumit.training.recipes.tasks import model_for
from pumit.training.recipes.training import TrainingRecipe
from pumit.training.run.hardware import hardware_of
from pumit.training.run.origin import origin_of
from pumit.training.run.resolved_recipe import started_recipes

logger = logging.getLogger(__name__)
VALIDATION = "validation.json"
CROSS_VALIDATION = "cross_validation.json"
ANSWERS = "answers.csv"
ALL_CASES = "final"  # the part of a cross-validation that is trained on all cases
# Errors of files that are no JSON or CSV, or of another form.
_DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, csv.Error)
_SPLITS = {"val": "validation", "test": "test"}
TASK_OF_KIND = {
    "automatic": "segments its classes in a whole scan, without clicks",
    "promptable": "segments what a person points at: clicks, boxes, scribbles",
    "classifier": "classifies a whole scan",
    "tokenizer": "turns a scan into visual tokens, and tokens into a scan",
    "encoder": "encodes scans; other networks start their training from its weights",
}
# Keys of a recipe's data that do not identify patients.
_DATA_KEYS_SHOWN = ("classes", "channels", "repeat_single_channel", "fold", "share", "split")
# A run may end at this share of its budget, as no step is started that would not fit.
_ENDED = 0.97


@dataclass(frozen=True)
class ClassFact:
    """Class with its label map values, terminology code and colour."""

    name: str
    values: tuple[int, ...]
    code: str
    color_rgb: Triple

    @property
    def color_hex(self) -> str:
        """Colour as `#rrggbb`."""
        return "#" + "".join(f"{round(255 * part):02x}" for part in self.color_rgb)


@dataclass(frozen=True)
class CaseFact:
    """A case without its name.

    Attributes:
        role: "training", "validation", "test", or several joined by "and".
        shape: Number of voxels, depth axis first; empty if not recorded.
        sha256: Fingerprint of the image's stored voxels.
        class_voxels: Number of voxels of each class in its label.
    """

    case: str
    role: str
    shape: tuple[int, ...] = ()
    spacing_mm: tuple[float, ...] = ()
    sha256: str = ""
    class_voxels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseMeasures:
    """Metrics of a case: column to value, or None for undefined values."""

    case: str
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class Scores:
    """Metrics of cases that were not trained on.

    Attributes:
        means: Row, such as a class, to metric to its mean with interval.
        split: Role of the cases: "validation", "test" or "cross-validation".
    """

    means: dict[str, dict[str, Mean]]
    cases: tuple[CaseMeasures, ...]
    split: str = "validation"
    step: int | None = None
    caption: str = "Dice"


def case_numbers(names: Sequence[str]) -> dict[str, str]:
    """Return the card's number of each case, such as "case 7"."""
    return {name: f"case {number}" for number, name in enumerate(sorted(set(names)), start=1)}


def case_facts(data: Mapping[str, Any], numbers: Mapping[str, str]) -> tuple[CaseFact, ...]:
    """Return the cases of a run's log, without their names."""
    known = {row["case"]: row for row in data.get("fingerprints", ()) if "case" in row}
    roles: dict[str, str] = {}
    for role in ("training", "validation", "test"):
        for name in data.get(role, ()):
            roles[name] = f"{roles[name]} and {role}" if name in roles else role
    marks = ((numbers[name], role, known.get(name, {})) for name, role in roles.items())
    facts = [
        CaseFact(
            number,
            role,
            tuple(mark.get("shape", ())),
            tuple(mark.get("spacing_mm", ())),
            str(mark.get("sha256", "")),
            dict(mark.get("class_voxels", {})),
        )
        for number, role, mark in marks
    ]
    return tuple(sorted(facts, key=lambda fact: number_of(fact.case)))


def number_of(case: str) -> int:
    """Return the number of a case, 7 for "case 7"."""
    return int(case.removeprefix("case "))


def fingerprint_of_all(cases: Sequence[CaseFact]) -> str:
    """Return one order-independent SHA-256 of a data set; "" if a case has none."""
    parts = sorted(case.sha256 for case in cases)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest() if all(parts) and parts else ""


def class_facts(model: Mapping[str, Any]) -> tuple[ClassFact, ...]:
    """Return the classes of a checkpoint with their codes; empty if it has none."""
    if not model.get("classes"):
        return ()
    labels = classes_of(model)
    facts = []
    meanings = class_terminology(labels)
    for label, meaning, row in zip(labels, meanings, model["classes"], strict=True):
        values = row.get("values", [row["value"]] if "value" in row else [])
        parts = [meaning.type, meaning.type_modifier, meaning.anatomic_region]
        parts = [] if meaning.type == TISSUE and not label.terminology else parts
        code = ", ".join(f"{c.scheme} {c.value} {c.meaning}" for c in parts if c is not None)
        facts.append(ClassFact(label.name, tuple(values), code, meaning.color_rgb))
    return tuple(facts)


def segmentation_scores(content: Mapping[str, Any], numbers: Mapping[str, str]) -> Scores:
    """Return the scores in `validation.json` of an automatic or promptable run."""
    rows, step = content["rows"], content.get("step")
    if not any("clicks" in row for row in rows):
        found = [MetricRow(**row) for row in rows]
        cases = _by_case((numbers[row.case], row.label, row.dice) for row in found)
        return Scores(summarize(found), cases, step=step)
    labels = list(dict.fromkeys(str(row["label"]) for row in rows))
    means = {label: _click_means([r for r in rows if r["label"] == label]) for label in labels}
    if len(means) > 1:
        means["mean"] = _over_classes(rows)
    cases = _by_case((numbers[r["case"]], str(r["label"]), float(r["clicks"][0])) for r in rows)
    return Scores(means, cases, step=step, caption="Dice after one click")


def _by_case(rows: Iterable[tuple[str, str, float | None]]) -> tuple[CaseMeasures, ...]:
    """Return case, class and value as one row per case with its mean, the worst first."""
    by_case: dict[str, dict[str, float | None]] = {}
    for case, label, value in rows:
        by_case.setdefault(case, {})[label] = value
    scores = []
    for case, values in by_case.items():
        present = [v for v in values.values() if v is not None]
        mean = sum(present) / len(present) if present else None
        scores.append(CaseMeasures(case, {**values, "mean": mean}))
    return worst_first(scores, "mean")


def _click_means(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mean]:
    """Return means after the first and last click, of the initial and the fine-tuned model."""
    means = {}
    for number in dict.fromkeys((1, min(len(row["clicks"]) for row in rows))):
        after = f"after {number} click{'s' if number > 1 else ''}"
        means[f"before, {after}"] = mean_of([row["before"][number - 1] for row in rows])
        means[after] = mean_of([row["clicks"][number - 1] for row in rows])
    return means


def _over_classes(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mean]:
    """Return the same over cases, averaging the classes of each, which are not independent."""
    cases: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        cases.setdefault(str(row["case"]), []).append(row)
    last = min(len(row["clicks"]) for row in rows)
    return _click_means(
        [
            {
                key: [sum(r[key][i] for r in of_case) / len(of_case) for i in range(last)]
                for key in ("before", "clicks")
            }
            for of_case in cases.values()
        ]
    )


def worst_first(scores: Sequence[CaseMeasures], column: str) -> tuple[CaseMeasures, ...]:
    """Return the cases in ascending order of a column; those without it last."""

    def key(score: CaseMeasures) -> tuple[bool, float, int]:
        value = score.values.get(column)
        return (value is None, value or 0.0, number_of(score.case))

    return tuple(sorted(scores, key=key))


def without_paths(value: Any) -> Any:
    """Return a recipe's value with everything replaced that looks like a path, recursively."""
    if isinstance(value, Mapping):
        return {str(key): without_paths(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_paths(v) for v in value]
    if isinstance(value, str) and re.search(r"[\\/]", value):
        return "(a path)"
    return value


def card_scores(folder: Path, numbers: Mapping[str, str]) -> list[Scores]:
    """Return scores by case, validation first; empty if there are none."""
    try:
        if (folder / ANSWERS).is_file():
            return answer_scores(folder / ANSWERS, numbers)
        folds = folder.parent if folder.name == ALL_CASES else folder
        if (folds / CROSS_VALIDATION).is_file():
            text = (folds / CROSS_VALIDATION).read_text(encoding="utf-8")
            rows = [
                {k: v for k, v in row.items() if k != "fold"} for row in json.loads(text)["rows"]
            ]
            return [replace(segmentation_scores({"rows": rows}, numbers), split="cross-validation")]
        content = json.loads((folder / VALIDATION).read_text(encoding="utf-8"))
        return [segmentation_scores(content, numbers)] if content.get("rows") else []
    except FileNotFoundError:
        return []
    except _DAMAGED as error:
        logger.warning("the scores of single cases cannot be read (%s)", type(error).__name__)
        return []


def answer_scores(path: Path, numbers: Mapping[str, str]) -> list[Scores]:
    """Return the scores of a classifier's `answers.csv`, by the probability of the true class.

    For several true classes it is their mean; without any, it is one minus the highest probability.
    """
    rows = _answers(path)
    found = []
    for split in dict.fromkeys(row.split for row in rows):
        of_split = [row for row in rows if row.split == split]
        scores, hits = [], []
        for row in of_split:
            answer = row.probabilities
            truth = [name for name in row.truth.split(";") if name in answer]
            of_truth = [answer[name] for name in truth] or [1 - max(answer.values())]
            right = max(answer, key=lambda name: answer[name]) in truth
            hits.append(float(right) if len(truth) == 1 else None)
            true = {"true class": sum(of_truth) / len(of_truth)}
            case = numbers[name_of(row.split, row.case)]
            scores.append(CaseMeasures(case, {**answer, **true}))
        means = {"right": {"accuracy": mean_of(hits)}} | _by_class(of_split)
        caption = "the probability that it gives each class, and the true one"
        cases, role = worst_first(scores, "true class"), _SPLITS.get(split, split)
        found.append(Scores(means, cases, role, caption=caption))
    return found


def name_of(split: str, case: str) -> str:
    """Return the name of a classifier's case in `case_numbers.json`."""
    return f"{split}/{case}"


def answered_names(folder: Path) -> list[str]:
    """Return the names of the cases in `answers.csv`; empty without the file."""
    try:
        return [name_of(row.split, row.case) for row in _answers(folder / ANSWERS)]
    except (OSError, ValueError, csv.Error):
        return []


class _Answer(NamedTuple):
    split: str
    case: str
    truth: str
    probabilities: dict[str, float]


def _answers(path: Path) -> list[_Answer]:
    """Return the rows of `answers.csv`; by position, as a class may be called `case`."""
    with path.open(encoding="utf-8", newline="") as handle:
        head, *rows = csv.reader(handle)
    return [
        _Answer(split, case, truth, dict(zip(head[3:], map(float, shares), strict=True)))
        for split, case, truth, *shares in rows
    ]


def _by_class(rows: Sequence[_Answer]) -> dict[str, dict[str, Mean]]:
    """Return the accuracy of each class over the cases that have it alone."""
    found = {}
    for name in dict.fromkeys(row.truth for row in rows if row.truth and ";" not in row.truth):
        answers = [row.probabilities for row in rows if row.truth == name]
        hits = [float(max(a, key=lambda k: a[k]) == name) for a in answers]
        found[f"right of {name}"] = {"accuracy": mean_of(hits)}
    return found


def fold_of(folder: Path) -> str:
    """Return the validation fold, such as "1 of 5"; "" without folds."""
    for keys in started_recipes(folder):
        if "fold" in (keys.get("data") or {}):
            return str(keys["data"]["fold"]).replace("/", " of ")
    part = re.fullmatch(r"fold_(\d+)", folder.name)
    counts = [len(r["folds"]) for r in read_log(folder.parent)[0] if "folds" in r] if part else []
    return f"{part[1]} of {counts[-1]}" if part and counts else ""


@dataclass(frozen=True)
class CardPicture:
    """A picture of the card."""

    file: str
    title: str


@dataclass(frozen=True)
class RunLog:
    """Parsed log of a run.

    Attributes:
        data: Record of the data; empty if none was written.
        steps: Progress records with a loss, in order of their steps.
        learning_rate: Learning rate of the best trial, if several were tried.
        hardware: Hardware of the latest start; empty in logs of PUMIT 0.3 and before.
    """

    data: dict[str, Any]
    steps: tuple[dict[str, Any], ...]
    validations: tuple[dict[str, Any], ...]
    learning_rate: float | None = None
    hardware: str = ""

    @staticmethod
    def read(folder: Path, *, learning_rate: float | None = None) -> RunLog:
        """Read the log of a run's folder.

        A killed run repeats some steps; then the later records count. If several learning rates
        were tried, records of the other trials are skipped.
        """
        records, _ = read_log(folder)
        tried = {r["learning_rate"] for r in records if "learning_rate" in r and "step" in r}
        if len(tried) > 1:
            records = [r for r in records if r.get("learning_rate", learning_rate) == learning_rate]
        data = [r["data"] for r in records if isinstance(r.get("data"), dict)]
        steps = [r for r in records if "loss" in r and isinstance(r.get("step"), int)]
        checks = [r for r in records if isinstance(r.get("validation"), dict)]
        hardware = [str(r["hardware"]) for r in records if "hardware" in r]
        return RunLog(
            data[-1] if data else {},
            _latest(steps),
            _latest(checks),
            learning_rate,
            hardware[-1] if hardware else "",
        )

    @staticmethod
    def of_folds(folder: Path) -> RunLog:
        """Return the data of a cross-validation, all of whose cases its ensemble has seen."""
        data = RunLog.read(folder / "fold_1").data
        seen = sorted({*data.get("training", ()), *data.get("validation", ())})
        return RunLog({**data, "training": seen, "validation": []}, (), ())

    @property
    def last_step(self) -> int:
        """Last recorded step."""
        return max((int(r.get("step", 0)) for r in (*self.steps, *self.validations)), default=0)

    @property
    def seconds(self) -> float:
        """Duration of the run so far, s."""
        return max((float(r.get("seconds", 0.0)) for r in self.steps), default=0.0)


def _latest(records: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    kept: list[dict[str, Any]] = []
    for record in records:
        while kept and kept[-1].get("step", 0) >= record.get("step", 0):
            kept.pop()
        kept.append(record)
    return tuple(kept)


@dataclass(frozen=True)
class RunCard:
    """Content of a model card.

    Attributes:
        licence: Licence of the weights as chosen by the user; "" if none was.
        initial_model: Initial model of the training; "" for random weights.
        classes: Output classes; empty for a promptable model.
        plan: Spacing, patch, intensities; empty if the network needs none.
        is_stopped_early: Whether it was stopped before its schedule or time budget ended.
        fold: Validation fold, such as "1 of 5"; "" without folds.
        counts: Numbers of cases by class or role, if the log has no cases.
        remarks: Number of warnings from the check of the data.
        preceding: Network, steps and seconds of each preceding run without labels.
        scores: Final scores by case; None if the run was stopped before.
        curves: Picture of the training curves; None if it could not be drawn.
    """

    name: str
    version: str
    kind: str
    description: str
    licence: str
    made: str
    file: str
    sha256: str
    network: str
    parameters: int
    initial_model: str
    classes: tuple[ClassFact, ...]
    channels: tuple[str, ...]
    plan: dict[str, Any]
    schedule: dict[str, Any]
    settings: dict[str, Any]
    step: int | None
    steps: int
    planned_steps: int
    is_stopped_early: bool
    seconds: float
    hardware: str
    memory_gib: float | None
    fold: str
    cases: tuple[CaseFact, ...]
    counts: dict[str, Any]
    remarks: int
    metrics: dict[str, Any]
    preceding: tuple[tuple[str, int, float], ...] = ()
    scores: Scores | None = None
    further_scores: tuple[Scores, ...] = ()
    curves: CardPicture | None = None
    worst: tuple[CardPicture, ...] = ()

    @property
    def is_pretrained(self) -> bool:
        """Whether it comes from a pre-training."""
        return self.settings.get("task") == "pretraining"


def gather(
    folder: Path,
    best: Path,
    checkpoint: Checkpoint,
    log: RunLog,
    device: torch.device,
    numbers: Mapping[str, str],
) -> RunCard:
    """Collect the content of the card except scores and pictures."""
    model = checkpoint.recipe
    given = read_recipe_file(folder)
    training = dict(model.get("training", {}))
    # The checkpoint of a pre-training has only the schedule keys of its recipe file.
    schedule = {**training.get("schedule", {}), **given.get("schedule", {})}
    schedule = {k: v for k, v in schedule.items() if v is not None}
    data = given.get("data", {})
    counts = training.get("cases")
    status = read_status(folder)  # with epochs, the recipe has no steps
    planned = int(schedule.get("steps") or (status and status.steps) or log.last_step)
    budget = float(schedule.get("seconds", 0))
    is_spent = budget > 0 and log.seconds >= _ENDED * budget
    memory = [r["memory_gib"] for r in log.steps if "memory_gib" in r]
    return RunCard(
        name=str(model.get("name", best.stem)),
        version=str(model.get("version", "0")),
        kind=kind_of(model),
        description=description_of(model),
        licence=str(model.get("licence", "")),
        made=date.today().isoformat(),
        file=best.name,
        sha256=checkpoint.sha256,
        network=str(model.get("network", "")),
        parameters=sum(math.prod(t.shape) for t in checkpoint.state.values()),
        initial_model=initial_model(training.get("initial") or _initial_of(given)),
        classes=class_facts(model),
        channels=tuple(str(c) for c in training.get("channels", ())),
        plan=dict(model.get("plan", model.get("input", {}))),
        schedule=schedule,
        settings=settings_of(given),
        step=model.get("step"),
        steps=log.last_step,
        planned_steps=planned,
        is_stopped_early=0 < log.last_step < planned and not is_spent,
        seconds=log.seconds,
        # A card may be written on another machine.
        hardware=log.hardware or hardware_of(device),
        memory_gib=max(memory, default=None),
        fold=str(data.get("fold", "")) if isinstance(data, dict) else "",
        cases=case_facts(log.data, numbers),
        counts=dict(counts) if isinstance(counts, dict) else {},
        remarks=len(log.data.get("warnings", ())),
        metrics=dict(model.get("metrics", {})),
        preceding=_preceding(folder),
    )


def _preceding(folder: Path) -> tuple[tuple[str, int, float], ...]:
    """Return network, steps and seconds of the preceding runs, the earliest first."""
    found: list[tuple[str, int, float]] = []
    while (folder := folder / FOLDER).is_dir():
        log = RunLog.read(folder)
        name = str(read_recipe_file(folder).get("network", "a network"))
        found.insert(0, (name, log.last_step, log.seconds))
    return tuple(found)


def read_recipe_file(folder: Path) -> dict[str, Any]:
    """Return the keys of the recipe in a run's folder; empty if it is missing or unreadable."""
    try:
        return read_yaml(folder / RECIPE)
    except PumitError:
        return {}


def followed_recipe(folder: Path) -> TrainingRecipe | None:
    """Return the typed recipe of a run's folder; None if it is missing or invalid."""
    keys = read_recipe_file(folder)
    try:
        return read_model(model_for(keys, RECIPE), keys, RECIPE)
    except PumitError:
        return None


def settings_of(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the publishable part of a recipe, without data sources and paths."""
    left_out = {"data", "schedule", "card", "name", "version", "initial", "eva02", "output"}
    left_out |= {"unlabelled", "cache"}
    public = {k: v for k, v in keys.items() if k not in left_out and "folder" not in k}
    data = keys.get("data", {})
    if isinstance(data, Mapping):
        public |= {"data": data_settings_of(data)}
    clean: dict[str, Any] = without_paths({k: v for k, v in public.items() if "cases" not in k})
    return clean


def data_settings_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the publishable part of a recipe's data, which names no case and no patient."""
    shown = {k: v for k, v in data.items() if k in _DATA_KEYS_SHOWN}
    if named_split(shown.get("split")):  # of cases, which are numbered
        del shown["split"]
    if isinstance(shown.get("classes"), list):
        shown["classes"] = [
            {k: v for k, v in row.items() if k != "segments"} if isinstance(row, Mapping) else row
            for row in shown["classes"]
        ]
    return shown


def initial_model(initial: Any) -> str:
    """Return the name and fingerprint of a training's initial model; "" if unknown."""
    if isinstance(initial, Mapping):
        name, sha256 = str(initial.get("name", "")), str(initial.get("sha256", ""))[:16]
        checksum = f"weights {sha256}" if sha256 else ""
        return f"{name} ({checksum})" if name and checksum else name or checksum
    return ""


def _initial_of(keys: Mapping[str, Any]) -> dict[str, str]:
    """Return the origin of a recipe's initial weights; empty for random ones."""
    model = keys.get("initial", keys.get("eva02"))
    if model is None:
        return {}
    try:
        return origin_of(str(model))
    except PumitError:
        return {"name": "an earlier model"}  # which no longer exists
