"""Comparisons whose trainings only pretend: folders as finished ones leave them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from pumit.runs import RunStatus, write_status
from pumit.training.comparison.results import ClassScore, TrainingRow
from pumit.training.recipes.schedule import Schedule
from pumit.training.run.resume_state import LAST, Position, Saved, save_run

CASES = ("case_0", "case_1", "case_2")
RECIPE: dict[str, Any] = {
    "data": {
        "folder": "data",
        "classes": {"ball": 1, "box": 2},
        "validation": ["case_1", "case_2"],
    },
    "plan": {"patch_size": [16, 32, 32], "batch_size": 2},
    "seeds": [0, 5],
    "seconds": 30,
    "clock": "processor",
    "device": "cpu",
    "threads": 1,
    "networks": [
        {"name": "U-Net", "network": "basic_unet", "network_sizes": {"features": [4] * 6}},
        {
            "name": "wide",
            "network": "basic_unet",
            "network_sizes": {"features": [8] * 6},
            "schedule": {"learning_rate": 0.01},
        },
    ],
}


def written(folder: Path, **changes: Any) -> Path:
    """A recipe file; a change to None leaves a key out."""
    recipe = {k: v for k, v in {**RECIPE, **changes}.items() if v is not None}
    path = folder / "compare.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def score(case: str, label: str, dice: float | None, far: float | None = 1.0) -> ClassScore:
    return ClassScore(case, label, dice, far, None if far is None else far / 3)


def row(name: str, seed: int, dices: Sequence[float], **changes: Any) -> TrainingRow:
    """A row in which every class of the i-th case has the i-th Dice."""
    cases = tuple(score(f"case_{i}", label, d) for i, d in enumerate(dices) for label in "ab")
    values: dict[str, Any] = {
        "name": name,
        "network": "basic_unet",
        "seed": seed,
        "steps": 100 + seed,
        "seconds": 70.0,
        "processor_seconds": 60.0,
        "peak_memory_gib": 1.25,
        "parameters": 1_500_000,
        "prediction_seconds": 0.5,
        "prediction_processor_seconds": 0.4,
        "cases": cases,
    }
    return TrainingRow(**{**values, **changes})


def leave_finished(folder: Path, recipe: Path, *, dice: float = 0.8) -> None:
    """What a finished training leaves in its folder."""
    seed = yaml.safe_load(recipe.read_text())["seed"]
    folder.mkdir(parents=True, exist_ok=True)
    position = Position(step=40 + seed, elapsed_s=30.5, other_clock_s=44.0)
    save_run(folder / LAST, Saved({"w": torch.zeros(2)}, {}, {}, position), Schedule())
    records: list[dict[str, Any]] = [
        {"plan": {"network": "basic_unet", "parameters": 1234}},
        {"step": 10, "loss": 0.9, "seconds": 8.0, "memory_gib": 0.5},
        {"step": 20, "loss": 0.7, "seconds": 16.0, "memory_gib": 0.75},
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    rows = [
        {"case": case, "label": label, "dice": dice, "hd95_mm": 2.0, "assd_mm": 0.5}
        for case in CASES[1:]
        for label in ("ball", "box")
    ]
    judged = {"prediction": {"seconds": 0.5, "processor_seconds": 0.25}, "rows": rows}
    (folder / "validation.json").write_text(json.dumps(judged))
    write_status(folder, RunStatus("finished", "Finished."))


class PretendedProcesses:
    """Trainings that are finished at once, but those that `fails` names, with its complaint.

    Attributes:
        started: Titles in their order, of all that was started since `forget`.
    """

    started: list[str] = []  # noqa: RUF012 - shared by those that a test cannot reach
    fails: dict[str, str] = {}  # noqa: RUF012
    stops: list[str] = []  # noqa: RUF012
    most = 0

    def __init__(self) -> None:
        self.running: dict[str, tuple[Path, Path]] = {}

    @classmethod
    def forget(cls) -> None:
        cls.started, cls.fails, cls.stops, cls.most = [], {}, [], 0

    def __enter__(self) -> PretendedProcesses:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    @property
    def count(self) -> int:
        return len(self.running)

    @property
    def sentence(self) -> str:
        return ""

    def start(self, title: str, recipe: Path, folder: Path, threads: int) -> None:
        self.started.append(title)
        self.running[title] = (recipe, folder)
        type(self).most = max(self.most, self.count)

    def ended(self) -> Iterator[tuple[str, str]]:
        for title, (recipe, folder) in list(self.running.items()):
            del self.running[title]
            if title not in self.fails:
                leave_finished(folder, recipe)
            yield title, self.fails.get(title, "")

    def send(self, word: str) -> None:
        self.stops.append(word)

    def stop(self) -> None:
        self.stops.append("stop")
