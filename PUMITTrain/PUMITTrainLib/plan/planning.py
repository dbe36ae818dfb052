"""Networks to choose from, and cost and recipe of a planned training, from `pumit plan`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.system.files import atomic_path
from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITTrainLib.cases.case_row import ClassRow
from PUMITTrainLib.cases.case_table import CaseTable
from PUMITTrainLib.cases.checks import CaseCheck
from PUMITTrainLib.collaborators import Collaborators
from PUMITTrainLib.parameters import Goal
from PUMITTrainLib.processes import recordOf


@dataclass(frozen=True)
class NetworkChoice:
    """Network that the user can choose."""

    name: str
    title: str
    tooltip: str


def networkChoices() -> tuple[NetworkChoice, ...]:
    """Return the networks of `pumit train`, those for any data and computer first."""
    return (
        _choice(
            "pumit_segmentation_small",
            _("PUMIT, small"),
            _("PUMIT's own network in a size for a computer without a large GPU"),
            7,
        ),
        _choice(
            "pumit_encoder_small",
            _("PUMIT, from what it knows"),
            _("Begins with the encoder of PUMIT Segment's clicks; for few labelled cases"),
            4,
        ),
        _choice(
            "basic_unet",
            _("U-Net (MONAI)"),
            _("The plain U-Net of MONAI: dependable, and quick on small data sets"),
            6,
        ),
        _choice(
            "nnformer_small",
            _("nnFormer, small"),
            _("Attention within and between small volumes, in a size for any computer"),
            4,
        ),
        _choice(
            "hymamba_small",
            _("HyMamba, small"),
            _(
                "Convolutions above, state-space layers below; can begin with an encoder that "
                "MambaMIM has pre-trained on scans without labels"
            ),
            3,
        ),
        _choice(
            "unetr_mamba_small",
            _("UNETR-Mamba, small"),
            _("State-space layers over coarse patches; for large structures and many cases"),
            4,
        ),
        _choice(
            "swin_unetr_small",
            _("Swin UNETR, small (MONAI)"),
            _(
                "Shifted windows, half as wide as published; can begin with public weights, and is "
                "slow without a GPU"
            ),
            16,
        ),
        *_published(),
    )


def _published() -> tuple[NetworkChoice, ...]:
    return (
        _choice(
            "pumit_segmentation_btcv",
            _("PUMIT, as published for CT"),
            _("The size that was published for the BTCV abdomen; needs a large GPU"),
            134,
        ),
        _choice(
            "pumit_segmentation_chaos",
            _("PUMIT, as published for MR"),
            _("The size that was published for the CHAOS abdomen; needs a large GPU"),
            134,
        ),
        _choice(
            "nnformer_synapse",
            _("nnFormer, as published for CT"),
            _("The size that was published for the Synapse abdomen; needs a large GPU"),
            150,
        ),
        _choice(
            "nnformer_tumor",
            _("nnFormer, as published for brain tumours"),
            _("The size that was published for tumours in four sequences of MR; needs a GPU"),
            38,
        ),
        _choice(
            "nnformer_acdc",
            _("nnFormer, as published for the heart"),
            _("The size that was published for thick slices of heart MR; needs a GPU"),
            37,
        ),
        _choice(
            "hymamba",
            _("HyMamba, as published"),
            _("The size that was published for the BTCV abdomen; needs a large GPU"),
            41,
        ),
        _choice(
            "unetr_mamba",
            _("UNETR-Mamba, as published"),
            _("UNETR's widths, with state-space layers; needs a large GPU"),
            53,
        ),
        _choice(
            "swin_unetr",
            _("Swin UNETR, as published (MONAI)"),
            _("Needs a GPU and many cases to be better than the others"),
            62,
        ),
    )


def _choice(name: str, title: str, purpose: str, millions: int) -> NetworkChoice:
    """Return a network with its size in million weights."""
    size = _("{purpose} (about {millions} million weights)")
    return NetworkChoice(name, title, size.format(purpose=purpose, millions=millions))


# Delay after the last key press.
_QUIET_MS = 600
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")


@dataclass(frozen=True)
class RecipeProblem:
    """Problem of a recipe.

    Attributes:
        line: Line number, from 1; 0 if unknown.
        sentence: Mistake and correction.
    """

    line: int
    sentence: str


class RecipeCheck:
    """Check of the latest text of a recipe; older requests are dropped."""

    def __init__(self, parts: Collaborators, onChanged: Callable[[], None]) -> None:
        self._parts = parts
        self._onChanged = onChanged
        self._timer = parts.makeTimer(self._checkText, True)
        self._checker = parts.checker
        self._text = ""
        self.problem: RecipeProblem | None = None
        self.isRunning = False

    def check(self, text: str) -> None:
        """Check a text; invalid YAML is reported at once."""
        self._stop()
        self._text = text
        self.problem = yamlProblem(text)
        if self.problem is None:
            self.isRunning = True
            self._timer.start(_QUIET_MS)
        self._onChanged()

    def accept(self) -> None:
        """Mark the text as valid: it is the core's own."""
        self._stop()
        self.problem = None

    def close(self) -> None:
        """Stop checking."""
        self._stop()
        self._checker.close()

    def _stop(self) -> None:
        self._timer.stop()
        self._checker.cancel()
        self.isRunning = False

    def _checkText(self) -> None:
        self._timer.stop()
        text = self._text

        def take(sentence: str) -> None:
            self.isRunning = False
            if sentence:
                self.problem = RecipeProblem(lineOf(text, sentence), sentence)
            self._onChanged()

        self._checker.check(text, take)


def yamlProblem(text: str) -> RecipeProblem | None:
    """Return the YAML problem of a text; None if valid, or YAML is not installed."""
    try:
        import yaml
    except ImportError:  # not installed yet; the subprocess reports problems
        return None
    try:
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 0
        return RecipeProblem(line, _("Not valid YAML: {what}.").format(what=error.problem or error))
    except yaml.YAMLError as error:
        return RecipeProblem(
            0, _("Not valid YAML: {what}.").format(what=" ".join(str(error).split()))
        )
    if not isinstance(content, dict):
        return RecipeProblem(1, _("A recipe needs keys, such as data and schedule."))
    return None


def restrictedModel(text: str) -> Any:
    """Return the model that a recipe begins with, if its licence awaits consent, else None."""
    import yaml
    from pumit.models.consent import restricted

    content = yaml.safe_load(text)
    return restricted(content.get("initial")) if isinstance(content, dict) else None


def lineOf(text: str, sentence: str) -> int:
    """Return the line of the first key that a sentence names; 0 for none."""
    quoted = [first or second for first, second in _QUOTED.findall(sentence)]
    words = [*quoted, *re.findall(r"[A-Za-z_]\w+", sentence)]
    keys: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        for key in re.findall(r"([A-Za-z_]\w*)\s*:", line.partition("#")[0]):
            keys.setdefault(key, number)
    return next((keys[word] for word in words if word in keys), 0)


# Network initialized with the encoder of the click model.
ENCODED = "pumit_encoder_small"
_NAMED_CLASSES = 2
_LONGEST_NAME = 60


@dataclass(frozen=True)
class PlanEstimate:
    """Estimated cost of a training; the sentence also names memory and disk space."""

    seconds: float | None
    sentence: str


class Planning:
    """Plan of a training, and its recipe while the user edits it.

    Attributes:
        recipeText: Recipe of the next run as YAML, edits included.
    """

    def __init__(
        self,
        parts: Collaborators,
        status: StatusBoard,
        cases: CaseTable,
        check: CaseCheck,
        parameters: Callable[[], Any],
        onChanged: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._status = status
        self._cases = cases
        self._check = check
        self._parameters = parameters
        self._onChanged = onChanged
        self._checking = RecipeCheck(parts, onChanged)
        self._cancel: Callable[[], None] | None = None
        self._onDone: Callable[[bool], None] | None = None
        self._planned = ""
        self._key = ""
        self.estimate: PlanEstimate | None = None
        self.warnings: tuple[str, ...] = ()
        self.recipeText = ""

    @property
    def networks(self) -> tuple[NetworkChoice, ...]:
        """Networks for automatic segmentation."""
        return networkChoices()

    @property
    def isPlanning(self) -> bool:
        """Whether a plan is being made."""
        return self._onDone is not None

    @property
    def isEdited(self) -> bool:
        """Whether the recipe differs from the plan's."""
        return self.recipeText != self._planned

    @property
    def isUpToDate(self) -> bool:
        """Whether nothing that the plan depends on has changed."""
        draft = self._check.draft
        isThere = draft is not None and draft.folder.is_dir()
        return bool(self.recipeText) and isThere and self._key == self._currentKey()

    @property
    def isStarted(self) -> bool:
        """Whether the recipe belongs to a run that was started."""
        return bool(self.recipeText) and not self._key

    @property
    def recipeProblem(self) -> RecipeProblem | None:
        """Known problem of the recipe, or None."""
        return self._checking.problem

    @property
    def restricted(self) -> Any:
        """Model that the edited recipe begins with, if its licence awaits consent, else None."""
        # A plan begins with no such model.
        isRead = self.isEdited and self.recipeProblem is None
        return restrictedModel(self.recipeText) if isRead else None

    def make(self, onDone: Callable[[bool], None] = lambda isDone: None) -> None:
        """Make a plan in a subprocess; edits of an earlier recipe are lost."""
        parameters = self._parameters()
        if parameters is None or self.isPlanning:
            return
        if self._cases.isChecking:
            self._status.problem(_("The cases are still being read; wait until that is done."))
            onDone(False)
            return
        self._onDone, key = onDone, self._currentKey()
        self._onChanged()
        self._check.prepare(
            parameters,
            self._cases.config(),
            lambda data: self._requestPlan(data, parameters, key),
            self._fail,
            self.cancel,
        )

    def cancel(self) -> None:
        """Cancel planning."""
        if not self.isPlanning:
            return
        self.forget()
        self._status.waiting(_("Planning was cancelled."))

    def forget(self) -> None:
        """Cancel planning without a message."""
        if self._cancel is not None:
            self._cancel()
        self._check.cancelPreparing()
        self._end(False)

    def close(self) -> None:
        """Cancel planning and checks."""
        self._onDone = None
        self.forget()
        self._checking.close()

    def setRecipeText(self, text: str) -> None:
        """Change the recipe, which is then checked."""
        if text == self.recipeText:
            return
        self.recipeText = text
        self._checking.check(text)
        self._onChanged()

    def resetRecipe(self) -> None:
        """Restore the plan's recipe."""
        self.setRecipeText(self._planned)

    def reset(self) -> None:
        """Require a new plan, since the recipe became a run's."""
        self._key, self._planned = "", self.recipeText

    def writeRecipe(self) -> None:
        """Write the recipe to the draft.

        Raises:
            ExportError: If it cannot be written.
        """
        with atomic_path(self._check.draft.recipe) as temporary:
            temporary.write_text(self.recipeText, encoding="utf-8")

    def _requestPlan(self, data: dict[str, Any], parameters: Any, key: str) -> None:
        draft = self._check.draft
        config = planConfig(parameters, data, self._cases.classes)
        try:
            with atomic_path(draft.request) as temporary:
                # JSON is valid YAML.
                temporary.write_text(json.dumps(config, indent=1), encoding="utf-8")
        except PumitError as error:
            self._fail(str(error))
            return
        self._status.working(_("Planning from the cases and this machine..."), None, self.cancel)
        output: dict[str, Any] = {}

        def end(status: int, message: str) -> None:
            if status != 0:
                self._fail(message or _("No plan could be made."))
                return
            try:
                text = draft.recipe.read_text(encoding="utf-8")
            except OSError as error:
                self._fail(_("The plan cannot be read: {r}.").format(r=error.strerror))
                return
            self._take(output, text, key)

        arguments = ["plan", str(draft.request), "--preset", parameters.preset.value]
        arguments += ["--goal", parameters.goal.value, "-o", str(draft.recipe), "--json"]
        self._cancel = self._parts.programs.run(
            arguments, lambda line: output.update(recordOf(line)), end
        )

    def _take(self, output: Mapping[str, Any], text: str, key: str) -> None:
        estimate = output.get("estimate") or {}
        self.estimate = PlanEstimate(
            _number(estimate.get("seconds")),
            str(estimate.get("sentence", "")),
        )
        self.warnings = tuple(str(warning) for warning in output.get("warnings", ()))
        self.recipeText = self._planned = text
        self._key = key
        self._checking.accept()
        if self.isUpToDate:
            self._status.done(_("The plan is ready; section 2 shows what it takes."))
        else:
            self._status.waiting(_("Cases or settings have changed; plan again."))
        self._end(True)

    def _fail(self, sentence: str) -> None:
        self._status.problem(sentence)
        self._end(False)

    def _end(self, isDone: bool) -> None:
        onDone, self._onDone, self._cancel = self._onDone, None, None
        self._onChanged()
        if onDone is not None:
            onDone(isDone)

    def _currentKey(self) -> str:
        parameters = self._parameters()
        if parameters is None:
            return ""
        key = planConfig(parameters, self._cases.config(), self._cases.classes)
        scene = self._check.sceneKey(parameters)
        return json.dumps([key, parameters.preset.value, parameters.goal.value, repr(scene)])


def planConfig(
    parameters: Any, data: Mapping[str, Any], classes: Sequence[ClassRow] = ()
) -> dict[str, Any]:
    """Return the input of `pumit plan`: the user's choices only.

    Args:
        data: The key `data` of a recipe.
        classes: Known classes; they name a model without a name.
    """
    config: dict[str, Any] = {"data": dict(data)}
    proposed = nameOf(classes, parameters.goal)
    if parameters.goal is Goal.CLASSIFICATION:  # split by the core
        proposed = fileName(Path(parameters.classFolder).stem)
    elif parameters.folds == 0:
        config["data"]["validation"] = round(parameters.validationShare, 3)
    else:
        config["folds"] = parameters.folds
    name = fileName(parameters.name) or proposed
    if name:
        config["name"] = name
    if parameters.device != "auto":
        config["device"] = parameters.device
    if parameters.goal is Goal.CLICKS:
        config["part"] = parameters.part.value
    elif parameters.goal is Goal.AUTOMATIC:
        if parameters.network:
            config["network"] = parameters.network
        if parameters.network == ENCODED:
            config["initial"] = "default"  # weights of the click model
        if parameters.unlabelled and learnsUnlabelled(parameters.network):
            config["unlabelled"] = parameters.unlabelled
    return config


def learnsUnlabelled(network: str) -> bool:
    """Return whether a network can be pre-trained on unlabelled scans: only PUMIT's own.

    Args:
        network: Name of a network; empty for the planned one.
    """
    return not network or network.startswith("pumit_segmentation")


def nameOf(classes: Sequence[ClassRow], goal: Goal) -> str:
    """Propose a model name from its first classes and its goal; "" for none."""
    named = [fileName(row.name) for row in classes[:_NAMED_CLASSES]]
    if not any(named):
        return ""
    more = ["more"] if len(classes) > _NAMED_CLASSES else []
    clicks = ["clicks"] if goal is Goal.CLICKS else []
    return "-".join([*filter(None, named), *more, *clicks])


def fileName(text: str) -> str:
    """Convert text to a file name valid on every system: words joined by underscores, or ""."""
    cleaned = "".join(c if c.isalnum() or c in "-_." else " " for c in text[:_LONGEST_NAME])
    return "_".join(cleaned.split()).strip("._-")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
