"""Model card as data, from a run's folder and its best checkpoint."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
import yaml

from pumit.errors import PumitError
from pumit.models.card import kind_of
from pumit.models.checkpoint import Checkpoint
from pumit.models.user_index import description_of
from pumit.runs import RECIPE, read_log
from pumit.training.classification.cases import named_split
from pumit.training.model_card.facts import (
    CaseFact,
    ClassFact,
    Scores,
    case_facts,
    case_numbers,
    class_facts,
    without_paths,
)
from pumit.training.preceding import FOLDER
from pumit.training.recipes.model import read_model
from pumit.training.recipes.tasks import model_for
from pumit.training.recipes.training import TrainingRecipe
from pumit.training.run.origin import origin_of

TASK_OF_KIND = {
    "automatic": "segments its classes in a whole scan, without clicks",
    "promptable": "segments what a person points at: clicks, boxes, scribbles",
    "classifier": "tells which class a whole scan belongs to",
    "tokenizer": "turns a scan into visual tokens, and tokens into a scan",
    "encoder": "reads scans for another network, which begins its training with these weights",
}
# Keys of a recipe's data that do not identify patients.
_DATA_KEYS_SHOWN = ("classes", "channels", "repeat_single_channel", "fold", "share", "split")
_CPU_INFO = Path("/proc/cpuinfo")
# A run may end at this share of its budget, as no step is started that would not fit.
_ENDED = 0.97


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
    """

    data: dict[str, Any]
    steps: tuple[dict[str, Any], ...]
    validations: tuple[dict[str, Any], ...]
    learning_rate: float | None = None

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
        return RunLog(data[-1] if data else {}, _latest(steps), _latest(checks), learning_rate)

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

    def of_role(self, role: str) -> list[CaseFact]:
        """Return the cases of a role: training, validation or test."""
        return [case for case in self.cases if role in case.role]


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
    planned = int(schedule.get("steps", log.last_step))
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
        hardware=hardware_of(device),
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


def numbers_of(log: RunLog) -> dict[str, str]:
    """Return the card's number of each case of a log."""
    names = [n for role in ("training", "validation", "test") for n in log.data.get(role, ())]
    return case_numbers([str(name) for name in names])


def read_recipe_file(folder: Path) -> dict[str, Any]:
    """Return the keys of the recipe in a run's folder; empty if it is missing or unreadable."""
    try:
        content = yaml.safe_load((folder / RECIPE).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return {}
    return content if isinstance(content, dict) else {}


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
        shown = {k: v for k, v in data.items() if k in _DATA_KEYS_SHOWN}
        if named_split(shown.get("split")):  # of cases, which are numbered
            del shown["split"]
        public |= {"data": shown}
        if isinstance(data.get("classes"), (list, tuple)):
            public["data"]["classes"] = [
                {k: v for k, v in row.items() if k != "segments"}
                if isinstance(row, Mapping)
                else row
                for row in data["classes"]
            ]
    clean: dict[str, Any] = without_paths({k: v for k, v in public.items() if "cases" not in k})
    return clean


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


def hardware_of(device: torch.device) -> str:
    """Return the training hardware, without the host name."""
    threads = torch.get_num_threads()
    if device.type == "cuda":
        return str(torch.cuda.get_device_properties(device).name)
    what = "" if device.type == "cpu" else f"{device.type}, "
    return f"{what}{threads} CPU thread{'s' if threads > 1 else ''} ({processor_title()})"


def processor_title() -> str:
    """Return the model name of this machine's CPU."""
    processor = platform.processor() or platform.machine()
    if _CPU_INFO.is_file():
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        processor = models[0] if models else processor
    return processor
