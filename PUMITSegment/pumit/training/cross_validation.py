"""Cross-validation: every patient is validated on once, by a model that never saw him."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pumit.errors import PumitError, VolumeError
from pumit.evaluation.segmentation_metrics import MetricRow, summarize
from pumit.io.labels.label_file import named_segments, unreviewed_doubts
from pumit.runs import RECIPE, read_command, read_status, send_command
from pumit.system.atomic import atomic_path
from pumit.training.data.file_pairs import LabelledCase
from pumit.training.data.labelled_set import find_labelled_set
from pumit.training.data.split import Split, split_cases
from pumit.training.recipes.labelled import LabelledData
from pumit.training.recipes.reader import read_yaml
from pumit.training.recipes.segmentation import SegmentationRecipe
from pumit.training.recipes.tasks import task_of
from pumit.training.recipes.writer import recipe_text
from pumit.training.run.reporter import RunReporter
from pumit.training.run.resolved_recipe import with_absolute_paths
from pumit.training.run.session import run_session
from pumit.training.validate import read_segmentation

logger = logging.getLogger(__name__)

RESULT = "cross_validation.json"
FINAL = "final"
POLL_SECONDS = 1.0  # between two looks at the part that trains
PARTS = ("folds", "final_model")  # keys of a recipe that are for the whole, not for its parts

# Trains in a folder with some keys of `data` replaced; returns the best checkpoint.
TrainPart = Callable[[Path, Mapping[str, Any], bool], Path]


@dataclass(frozen=True)
class CrossValidation:
    """Settings of a cross-validation.

    Attributes:
        recipe: The recipe.
        keys: The same as its file holds it, with what the command line replaces.
        folds: Number of parts.
        output: Folder; each part has one below it.
        resolve: Makes paths of the recipe's texts.
        since: Time when the user started it, Unix time.
    """

    recipe: SegmentationRecipe
    keys: Mapping[str, Any]
    folds: int
    output: Path
    resolve: Callable[[str], Path]
    since: float

    @property
    def trains_on_all(self) -> bool:
        """Whether a model of all cases is made at the end."""
        return self.recipe.final_model

    @property
    def parts(self) -> int:
        """How many trainings there are."""
        return self.folds + self.trains_on_all


def read_request(
    path: Path,
    folder: Path | None,
    output: Path,
    data: Mapping[str, Any] | None,
    folds: int | None,
    since: float,
) -> CrossValidation | None:
    """The cross-validation that a recipe or the command line asks for, if there is one.

    Args:
        path: YAML recipe.
        folder: Folder that its relative paths begin at; None for its own.
        output: Folder of the results.
        data: Keys of the recipe's `data` to replace.
        folds: Number of parts, if not that of the recipe.
        since: Time when the user started it, Unix time.

    Raises:
        PumitError: If it is no segmentation, whose folds alone can be compared.
    """
    keys = read_yaml(path)
    count = keys.get("folds") if folds is None else folds
    if count is None:
        return None
    if task_of(keys) != "segmentation":
        raise PumitError(f"folds in {path.name} need task: segmentation.")
    home = path.parent if folder is None else folder

    def resolve(text: str) -> Path:
        given = Path(text).expanduser()
        return given if given.is_absolute() else home / given

    keys |= {"folds": count, "data": {**keys.get("data", {}), **(data or {})}}
    return CrossValidation(read_segmentation(keys, path.name), keys, count, output, resolve, since)


def cross_validate(request: CrossValidation, train_part: TrainPart) -> Path:
    """Train fold after fold; started again, it goes on where it was.

    In the output folder: `fold_1` and so on, each a whole run; `cross_validation.json` with the
    metrics of every case by the model that did not see it, and their means with 95 % bootstrap
    intervals over cases; with `final_model: true` in the recipe, `final`, trained on all cases.

    Args:
        request: Training that is requested.
        train_part: Trains one of the parts; its last argument says whether the model is to be
            entered in the user's index.

    Returns:
        The model of all cases where there is one, else that of the best fold.

    Raises:
        PumitError: If the recipe does not fit, or there are fewer patients than folds.
        RunStopped: If it was stopped; the same call goes on.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise PumitError("A cross-validation runs in one process; train its folds one by one.")
    splits = fold_splits(request)
    with run_session(request.output, since=request.since) as reporter:
        _report_start(reporter, request, splits)
        # 1. The recipe that all parts follow.
        whole = with_absolute_paths(request.keys, request.resolve)
        reporter.written(lambda: _write(request.output / RECIPE, recipe_text(whole)))
        # 2. Fold after fold; those that are finished return at once.
        made = []
        for number, split in enumerate(splits, start=1):
            data = {"training": list(split.training), "validation": list(split.validation)}
            made.append(_part(reporter, request, number, f"fold_{number}", data, train_part))
        # 3. Every case by the model that did not see it.
        result = pooled([request.output / f"fold_{n}" for n in range(1, request.folds + 1)])
        reporter.written(lambda: _write(request.output / RESULT, json.dumps(result, indent=1)))
        reporter.report({"cross_validation": _short(result)})
        # 4. The model of all cases, or that of the best fold.
        best = made[_best(result)]
        if request.trains_on_all:
            everyone = sorted({*splits[0].training, *splits[0].validation})
            data = {"training": everyone, "validation": []}
            best = _part(reporter, request, request.parts, FINAL, data, train_part)
        if reporter.journal is not None:
            reporter.journal.update_status(
                model=best.relative_to(request.output).as_posix(), left_seconds=0.0
            )
        reporter.state("finished", f"Finished. {_sentence(result)}")
    return best


def fold_splits(request: CrossValidation) -> list[Split]:
    """Who trains and who validates in each fold.

    Patients with labels that a model made and nobody reviewed train in each, and validate in none.

    Where the recipe names who trains, as a planned one does, all whom it names take part, and
    nobody else.

    Raises:
        PumitError: If the recipe holds out by another rule too, or there are too few patients.
    """
    data = request.recipe.data
    if request.folds < 2:
        raise PumitError(f"A cross-validation needs at least 2 folds, got {request.folds}.")
    if data.fold is not None:
        raise PumitError("Give either folds or data.fold, not both.")
    found = find_labelled_set(data, request.resolve)
    names = [case.name for case in found.cases]
    if data.training is not None:
        held = data.validation
        named = set(map(str, [*data.training, *(held if isinstance(held, list) else [])]))
        unknown = sorted(named - set(names))
        if unknown:
            raise PumitError(f"data.training names {unknown[0]!r}, which is no case.")
        names = [name for name in names if name in named]
    patients = {c.name: p for c in found.cases if (p := getattr(c, "patient", ""))}
    folds = [
        LabelledData(patient=data.patient, fold=f"{n} of {request.folds}")
        for n in range(1, request.folds + 1)
    ]
    seed, doubted = request.recipe.seed, _unreviewed(found.cases)
    return [split_cases(names, f, seed=seed, patients=patients, unreviewed=doubted) for f in folds]


def _unreviewed(cases: Sequence[LabelledCase]) -> frozenset[str]:
    """Cases with labels that a model made and nobody reviewed, by the headers of their files.

    A file that cannot be read is said when its fold reads all of it.
    """
    found = set()
    for case in cases:
        for path in case.labels:
            if path.name.lower().endswith(".nrrd") and path.is_file():
                with suppress(VolumeError):
                    if unreviewed_doubts(named_segments(path)):
                        found.add(case.name)
    return frozenset(found)


def pooled(folders: Sequence[Path]) -> dict[str, Any]:
    """Metrics of all folds together.

    Args:
        folders: Folders of finished folds, each with a `validation.json`.

    Returns:
        `folds` with the means of each, `mean` of all cases by class and metric with intervals, and
        `rows`, one for each case and class, with its fold.
    """
    rows: list[dict[str, Any]] = []
    folds = []
    for number, folder in enumerate(folders, start=1):
        judged = json.loads((folder / "validation.json").read_text(encoding="utf-8"))
        rows += [{**row, "fold": number} for row in judged["rows"]]
        folds.append({"fold": number, "step": judged["step"], "mean": judged["mean"]})
    plain = [MetricRow(**{k: v for k, v in row.items() if k != "fold"}) for row in rows]
    mean = {
        label: {metric: asdict(value) for metric, value in metrics.items()}
        for label, metrics in summarize(plain).items()
    }
    return {"folds": folds, "mean": mean, "rows": rows}


def _part(
    reporter: RunReporter,
    request: CrossValidation,
    number: int,
    name: str,
    data: Mapping[str, Any],
    train_part: TrainPart,
) -> Path:
    """Train one of the parts, or take what an earlier start made of it."""
    folder = request.output / name
    status = read_status(folder)
    if status is not None and status.state == "finished" and status.model:
        return folder / Path(status.model).name
    title = f"Fold {number} of {request.folds}" if name != FINAL else "The model of all cases"
    reporter.check()
    reporter.event("fold", f"{title} begins.", fold=number)
    with _Relay(reporter, request, folder, number, title):
        return train_part(folder, data, name == FINAL)


class _Relay:
    """Passes commands on to the fold that trains, and its progress back."""

    def __init__(
        self, reporter: RunReporter, request: CrossValidation, folder: Path, number: int, title: str
    ) -> None:
        self._reporter, self._request, self._folder = reporter, request, folder
        self._number, self._title = number, title
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pumit-folds", daemon=True)

    def __enter__(self) -> None:
        """Begin."""
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(POLL_SECONDS):
            try:
                self._pass_on()
            except PumitError as error:  # such as a full disk; the next look tries again
                logger.debug("%s", error)

    def _pass_on(self) -> None:
        word = read_command(self._request.output)
        if word is not None:
            send_command(self._folder, word)
            self._reporter.control.clear_request()
        status = read_status(self._folder)
        if status is None or self._reporter.journal is None or not status.is_alive:
            return
        before, parts = self._number - 1, self._request.parts
        left = status.left_seconds
        if left is not None:
            left += (parts - self._number) * (status.seconds + left)
        self._reporter.journal.update_status(
            state=status.state,
            sentence=f"{self._title}: {status.sentence}",
            step=before * status.steps + status.step,
            steps=parts * status.steps,
            left_seconds=left,
        )


def _report_start(reporter: RunReporter, request: CrossValidation, splits: Sequence[Split]) -> None:
    if reporter.journal is not None:
        reporter.journal.update_status(name=request.recipe.name, task=request.recipe.task)
    names = [list(split.validation) for split in splits]
    reporter.report({"folds": names, "warnings": list(splits[0].warnings)})


def _best(result: Mapping[str, Any]) -> int:
    """Index of the fold with the highest mean Dice."""
    scores = [fold["mean"].get("mean", {}).get("dice", {}).get("mean") for fold in result["folds"]]
    return max(range(len(scores)), key=lambda i: -1.0 if scores[i] is None else scores[i])


def _short(result: Mapping[str, Any]) -> dict[str, Any]:
    return {
        label: {k: round(m["mean"], 4) for k, m in metrics.items() if m["mean"] is not None}
        for label, metrics in result["mean"].items()
    }


def _sentence(result: Mapping[str, Any]) -> str:
    """Dice of all folds in words."""
    found = result["mean"].get("mean", {}).get("dice", {})
    if found.get("mean") is None:
        return "No validation case has any class."
    interval = ""
    if found.get("low") is not None:
        interval = f" (95 % interval {found['low']:.3f} to {found['high']:.3f})"
    return f"Dice {found['mean']:.3f}{interval} over {found['cases']} cases."


def _write(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
