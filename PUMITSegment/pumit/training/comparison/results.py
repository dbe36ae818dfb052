"""Results of the finished trainings of a comparison, read from their folders."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from pumit.errors import TrainingError
from pumit.runs import LOG, read_log, read_status
from pumit.system.files import write_text
from pumit.training.comparison.plan import Training
from pumit.training.run.resume_state import LAST, position_of

ROWS = "rows.jsonl"
VALIDATION = "validation.json"


@dataclass(frozen=True)
class ClassScore:
    """Metrics of one class of one case at the end of a training.

    Attributes:
        dice: 0 if either prediction or ground truth is empty, None if both are.
        hd95_mm: None if either is empty, as for `assd_mm`.
    """

    case: str
    label: str
    dice: float | None
    hd95_mm: float | None
    assd_mm: float | None


@dataclass(frozen=True)
class TrainingRow:
    """A line of `rows.jsonl`.

    Attributes:
        seconds: Wall time of the training without pauses, over all its resumed parts.
        peak_memory_gib: Peak memory of the training process; on a GPU, GPU memory.
        prediction_seconds: Mean wall time to segment a case.
        cases: Metrics of every class of every validation case.
    """

    name: str
    network: str
    seed: int
    steps: int
    seconds: float
    processor_seconds: float
    peak_memory_gib: float | None
    parameters: int
    prediction_seconds: float
    prediction_processor_seconds: float
    cases: tuple[ClassScore, ...]


def is_finished(folder: Path) -> bool:
    """Return whether a training has finished with its final validation."""
    status = read_status(folder)
    return status is not None and status.state == "finished" and (folder / VALIDATION).is_file()


def read_row(training: Training, folder: Path) -> TrainingRow:
    """Read the result of a finished training.

    Raises:
        TrainingError: If a part of it is missing or damaged.
    """
    try:
        judged = json.loads((folder / VALIDATION).read_text(encoding="utf-8"))
        with safe_open(str(folder / LAST), framework="pt") as handle:
            position = position_of(json.loads(handle.metadata()["position"]))
        records, _ = read_log(folder)
        memory = [r["memory_gib"] for r in records if "memory_gib" in r]
        parameters = [r["plan"]["parameters"] for r in records if "plan" in r]
        times = (position.elapsed_s, position.other_clock_s)
        is_processor = training.keys["schedule"]["clock"] == "processor"
        processor, wall = times if is_processor else times[::-1]
        prediction = judged["prediction"]
        return TrainingRow(
            training.network.name,
            training.network.network,
            training.seed,
            position.step,
            round(wall, 1),
            round(processor, 1),
            max(memory, default=None),
            int(parameters[-1]),
            round(prediction["seconds"], 4),
            round(prediction["processor_seconds"], 4),
            tuple(
                ClassScore(r["case"], r["label"], r["dice"], r["hd95_mm"], r["assd_mm"])
                for r in judged["rows"]
            ),
        )
    except (OSError, SafetensorError, ValueError, LookupError, TypeError) as error:
        raise TrainingError(
            f"What {training.title} wrote cannot be read ({type(error).__name__} at {LAST}, "
            f"{VALIDATION} or {LOG}); remove its folder {folder.name} to train it again."
        ) from None


def write_rows(path: Path, rows: Sequence[TrainingRow]) -> None:
    """Write rows, one per line."""
    write_text(path, "".join(json.dumps(asdict(row)) + "\n" for row in rows))


def read_rows(path: Path) -> list[TrainingRow]:
    """Read the rows of a file.

    Raises:
        TrainingError: If the file is missing, or holds something else.
    """
    try:
        rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        return [
            TrainingRow(**{**row, "cases": tuple(ClassScore(**case) for case in row["cases"])})
            for row in rows
        ]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise TrainingError(f"Cannot read {path.name} ({type(error).__name__}).") from None
