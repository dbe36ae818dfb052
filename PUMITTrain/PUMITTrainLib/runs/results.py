"""Results of a run: its model and card, used in PUMITSegment, exported and imported."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from PUMITSlicerLib.computing.settings import ComputeMode
from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITTrainLib.collaborators import Collaborators
from PUMITTrainLib.runs.curves import MEAN
from PUMITTrainLib.runs.run_view import RunState
from PUMITTrainLib.runs.runs import Runs

# Of a cross-validation, which has every case once, or of a single run.
FILES = ("cross_validation.json", "validation.json")


@dataclass(frozen=True)
class CaseScore:
    """Scores of a validation case.

    Attributes:
        dice: Dice of each class in it; for a click model after the first click.
        picture: Picture of the errors, or None.
        before: Dice of the initial model on the same case, if known.
    """

    case: str
    dice: Mapping[str, float]
    picture: Path | None = None
    before: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Mean Dice of its classes."""
        return sum(self.dice.values()) / len(self.dice) if self.dice else 0.0


def readScores(folder: Path) -> tuple[CaseScore, ...]:
    """Read the scores of a run, the worst first; none if not written yet."""
    try:
        file = next(folder / name for name in FILES if (folder / name).is_file())
        content = json.loads(file.read_text(encoding="utf-8"))
        byCase: dict[str, dict[str, float]] = {}
        before: dict[str, dict[str, float]] = {}
        for row in content["rows"]:
            dice = row["clicks"][0] if "clicks" in row else row["dice"]
            if dice is not None:
                byCase.setdefault(str(row["case"]), {})[str(row["label"])] = float(dice)
            for first in (row.get("before") or [])[:1]:
                before.setdefault(str(row["case"]), {})[str(row["label"])] = float(first)
    except (OSError, StopIteration, ValueError, TypeError, LookupError, AttributeError):
        return ()
    scores = sorted((CaseScore(case, dice) for case, dice in byCase.items()), key=_order)
    return tuple(
        CaseScore(score.case, score.dice, _picture(folder, rank), before.get(score.case, {}))
        for rank, score in enumerate(scores, start=1)
    )


def classMeans(scores: Iterable[CaseScore]) -> dict[str, float]:
    """Return the mean Dice of all cases and of each class; empty without scores."""
    kept = list(scores)
    if not kept:
        return {}
    means = {MEAN: sum(score.mean for score in kept) / len(kept)}
    labels = dict.fromkeys(label for score in kept for label in score.dice)
    for label in labels:
        values = [score.dice[label] for score in kept if label in score.dice]
        means[label] = sum(values) / len(values)
    return means


def meanBefore(scores: Iterable[CaseScore]) -> float | None:
    """Return the mean Dice of the initial model; None if unknown."""
    kept = [score.before for score in scores if score.before]
    if not kept:
        return None
    return sum(sum(dice.values()) / len(dice) for dice in kept) / len(kept)


def _order(score: CaseScore) -> tuple[float, Any]:
    return score.mean, score.case


def _picture(folder: Path, rank: int) -> Path | None:
    """Return the picture of a case by its rank from the worst; None if it was not drawn."""
    path = folder / "pictures" / f"worst_{rank}.png"
    return path if path.is_file() else None


FILE = "answers.csv"


@dataclass(frozen=True)
class ScanAnswer:
    """Answer for one scan.

    Attributes:
        probability: Probability of the true class.
    """

    case: str
    truth: str
    answer: str
    probability: float

    @property
    def isRight(self) -> bool:
        """Whether the model named its class."""
        return self.answer == self.truth


def readAnswers(folder: Path) -> tuple[ScanAnswer, ...]:
    """Read the answers for the test scans, or the validation scans if there are none.

    The worst come first; none if they were not written yet, or a scan has several classes.
    """
    try:
        with (folder / FILE).open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        classes = header[3:]
        found: dict[str, list[ScanAnswer]] = {}
        for split, case, truth, *numbers in rows:
            chances = dict(zip(classes, map(float, numbers), strict=True))
            answer = max(chances, key=lambda name: chances[name])
            row = ScanAnswer(case, truth, answer, chances[truth])
            found.setdefault(split, []).append(row)
    except (OSError, ValueError, LookupError):
        return ()
    kept = found.get("test") or found.get("val") or []
    return tuple(sorted(kept, key=lambda row: (row.isRight, row.probability)))


def answersInWords(answers: Sequence[ScanAnswer]) -> str:
    """Describe how many scans were named right, compared with the simplest guess."""
    right, count = sum(row.isRight for row in answers), len(answers)
    ((name, most),) = Counter(row.truth for row in answers).most_common(1)
    text = _("The model named the class of {right} of {count} scans that it did not learn from.")
    guess = _("Always answering {name} would be right for {most}.")
    return " ".join([text.format(right=right, count=count), guess.format(name=name, most=most)])


CARD = "card.md"
SUFFIX = ".pumit.zip"
_TAKEN = re.compile(r"There is a model '([^']+)' already")
_MOST_NAMES = 20
_PICTURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")


class Results:
    """Result of the selected run."""

    def __init__(
        self,
        parts: Collaborators,
        status: StatusBoard,
        runs: Runs,
        onChanged: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._status = status
        self._runs = runs
        self._onChanged = onChanged
        self._cancel: Callable[[], None] | None = None

    @property
    def isBusy(self) -> bool:
        """Whether a model is being exported, imported or searched for."""
        return self._cancel is not None

    @property
    def model(self) -> str:
        """Name of a finished model in the index, else its file; "" for none."""
        view = self._runs.selected
        if view is None or view.model is None or view.state is not RunState.FINISHED:
            return ""
        return view.registered or str(view.folder / view.model)

    @property
    def cardFile(self) -> Path | None:
        """The model card, or None."""
        folder, view = self._runs.folder, self._runs.selected
        if folder is None:
            return None
        # A cross-validation has a card of its folds, and one beside the model of all cases.
        model = folder / view.model if view is not None and view.model else folder / CARD
        return next((p for p in (model.parent / CARD, folder / CARD) if p.is_file()), None)

    @property
    def cardText(self) -> str:
        """The model card as Markdown; its pictures are beside it."""
        path = self.cardFile
        try:
            return "" if path is None else path.read_text(encoding="utf-8")
        except OSError:
            return ""

    @property
    def pictures(self) -> tuple[Path, ...]:
        """Pictures of the card, in its order."""
        path = self.cardFile
        if path is None:
            return ()
        named = [path.parent / name for name in _PICTURE.findall(self.cardText)]
        return tuple(picture for picture in named if picture.is_file())

    @property
    def scores(self) -> tuple[CaseScore, ...]:
        """Scores of the best model on each validation case, the worst first."""
        return () if self._runs.folder is None else readScores(self._runs.folder)

    @property
    def classScores(self) -> dict[str, float]:
        """Mean Dice of each class, "mean" first."""
        return classMeans(self.scores)

    @property
    def answers(self) -> tuple[ScanAnswer, ...]:
        """Answers of a classifier on scans it did not learn from, the worst first."""
        return () if self._runs.folder is None else readAnswers(self._runs.folder)

    @property
    def whatElse(self) -> str:
        """How to use a model that PUMIT Segment cannot use; "" for one that it can."""
        view = self._runs.selected
        return "" if view is None else _whatElse(view.task).format(model=self.model)

    def openCard(self) -> None:
        """Open the card in the system's viewer."""
        import qt

        if self.cardFile is not None:
            qt.QDesktopServices.openUrl(qt.QUrl.fromLocalFile(str(self.cardFile)))

    def use(self) -> None:
        """Select the model in PUMITSegment and open that module, if the model is installed."""
        model, view = self.model, self._runs.selected
        if not model or view is None:
            self._status.problem(_("The run has no finished model."))
            return
        if not view.registered:
            self._status.problem(
                _("{model} is not in the model index; see the log of the run.").format(
                    model=view.name
                )
            )
            return
        if self.whatElse:
            self._status.problem(self.whatElse)
            return
        states: list[str] = []

        def go() -> None:
            if "here" in states:
                self._goToSegment(model, isAutomatic(view.task))
                self._status.done(_("PUMIT Segment now uses {model}.").format(model=model))
            else:
                refuse("")

        def refuse(message: str) -> bool:
            if message and not message.startswith("Unknown model"):
                return False  # such as a damaged index, which it names
            words = _(
                "The model {model} was deleted from this machine; import it from an exported file, "
                "or train again."
            )
            self._status.problem(words.format(model=model))
            return True

        self._run(
            ["models", "list", model, "--json"],
            _("Looking for the model..."),
            go,
            refuse,
            lambda line: states.extend(_statesIn(line)),
        )

    @staticmethod
    def _goToSegment(model: str, isAutomatic: bool) -> None:
        """Select a model in PUMITSegment through its logic, and open the module."""
        import slicer

        slicer.util.selectModule("PUMITSegment")
        segment = slicer.util.getModuleWidget("PUMITSegment")
        logic = segment.logic
        settings = logic.compute.settings
        if isAutomatic:
            if logic.parameters is not None:
                logic.parameters.automaticModel = model
            segment.panel.ui.automaticSection.collapsed = False
            logic.compute.changeSettings(replace(settings, mode=ComputeMode.LOCAL))
            # A running worker knows only the models that existed when it started.
            logic.compute.stop()
            words = _("{model} is chosen in section 4: press Segment to run it.")
        else:
            logic.compute.changeSettings(replace(settings, mode=ComputeMode.LOCAL, model=model))
            words = _("{model} answers the prompts now: choose Point and click.")
        logic.status.done(words.format(model=model))
        logic.compute.ensureReady(lambda: None, logic.showError)

    def exportModel(self, path: str | Path) -> None:
        """Export model and card to one file, in a subprocess."""
        target = str(path) if str(path).endswith(SUFFIX) else f"{path}{SUFFIX}"
        if not self.model:
            self._status.problem(_("The run has no finished model."))
            return
        self._run(
            ["models", "export", self.model, "-o", target],
            _("Exporting the model..."),
            lambda: self._status.done(
                _("The model is exported to {file}.").format(file=Path(target).name)
            ),
        )

    def importModel(self, path: str | Path) -> None:
        """Import an exported model to the index, in a subprocess.

        If its name is taken, a number is appended, as for a trained one.
        """
        self._import(str(path), "", 2)

    def _import(self, path: str, name: str, number: int) -> None:
        def rename(message: str) -> bool:
            taken = _TAKEN.search(message)
            if taken is None or number > _MOST_NAMES:
                return False
            base = taken.group(1) if number == 2 else name.rpartition("-")[0]
            self._import(path, f"{base}-{number}", number + 1)
            return True

        named = ["--name", name] if name else []
        self._run(
            ["models", "import", path, *named],
            _("Importing the model..."),
            lambda: self._status.done(_("The model is imported; PUMIT Segment lists it.")),
            rename,
        )

    def cancel(self) -> None:
        """Cancel an export or import."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
            self._status.waiting(_("Cancelled; nothing was changed."))
            self._onChanged()

    def close(self) -> None:
        """Cancel what is running."""
        if self._cancel is not None:
            self._cancel()

    def _run(
        self,
        arguments: list[str],
        doing: str,
        done: Callable[[], None],
        repair: Callable[[str], bool] = lambda message: False,
        onLine: Callable[[str], None] = lambda line: None,
    ) -> None:
        if self.isBusy:
            self._status.problem(
                _("A model is being exported or imported; wait until that is done.")
            )
            return

        def end(status: int, message: str) -> None:
            self._cancel = None
            if status == 0:
                done()
            elif not repair(message):
                self._status.problem(message or _("The command failed; see the log."))
            self._onChanged()

        self._status.working(doing, None, self.cancel)
        self._cancel = self._parts.programs.run(arguments, onLine, end)
        self._onChanged()


def _statesIn(line: str) -> list[str]:
    """Return the models' states from a line of `pumit models list --json`."""
    try:
        return [str(row["state"]) for row in json.loads(line)]
    except (ValueError, TypeError, KeyError):
        return []


def _whatElse(task: str) -> str:
    """Return how to use a model that PUMIT Segment cannot use; empty for one that it can."""
    if task == "classification":
        return _(
            "{model} tells scans apart, which PUMIT Segment does not show: use it with "
            "pumit predict SCAN --model {model} -o answers.csv."
        )
    if task == "pretraining":
        return _(
            "{model} is pre-trained only, and segments nothing: name it under initial in the "
            "recipe of a training."
        )
    return ""


def isAutomatic(task: str) -> bool:
    """Return whether a task trains an automatic model."""
    return task not in ("promptable", "clicks", "sam")
