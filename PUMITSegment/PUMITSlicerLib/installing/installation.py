"""Installation of missing packages into Slicer's Python, step by step on a thread."""

from __future__ import annotations

import importlib
import logging
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pumit.errors import Cancelled, PumitError, ServiceError
from slicer.i18n import tr as _

from PUMITSlicerLib.computing import dependencies
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.computing.connection import readable
from PUMITSlicerLib.computing.dependencies import TORCH, Need, VersionOf, installed_version
from PUMITSlicerLib.computing.settings import ComputeMode
from PUMITSlicerLib.installing.steps import InstallStep, Runner, find_runner
from PUMITSlicerLib.installing.wheel_folder import wheel_problems

logger = logging.getLogger(__name__)

_LTT = "light-the-torch"
_LTT_REQUIREMENT = "light-the-torch>=0.5"
_SAYS_NO_NETWORK = re.compile(
    r"NewConnectionError|Temporary failure in name resolution|getaddrinfo|ProxyError"
    r"|ConnectTimeout|Max retries exceeded|Network is unreachable|SSLError"
)
_SAYS_WHAT_CONFLICTS = re.compile(r"Cannot install (.+?) because these package versions")
_SAYS_WHAT_COMES = re.compile(
    r"\s*(?:Collecting |Processing \S*[/\\])([A-Za-z][\w.]*(?:-[A-Za-z][\w.]*)*)"
)
_SAYS_NO_VERSION = re.compile(r"No matching distribution found for (\S+)")


@dataclass(frozen=True)
class InstallationPlan:
    """Plan of an installation, for the user to confirm.

    Attributes:
        needs: Missing packages.
        steps: Commands to run, in this order.
        explanation: Sentences on what is installed, its size and source, and what stays
            unchanged.
        problems: Obstacles to remove first, one sentence each.
    """

    needs: tuple[Need, ...]
    steps: tuple[InstallStep, ...]
    explanation: str
    problems: tuple[str, ...]

    @property
    def isPossible(self) -> bool:
        """Whether the plan can be carried out."""
        return bool(self.steps) and not self.problems


def make_plan(
    mode: ComputeMode,
    *,
    withTorch: bool = False,
    wheelFolder: str = "",
    hasTorchExtension: bool = False,
    allowsTorchFromIndex: bool = False,
    version_of: VersionOf = installed_version,
) -> InstallationPlan:
    """Plan the installation of what is missing; call it on a thread, since it reads files.

    Args:
        mode: Mode that has to work.
        withTorch: Whether to include training, automatic models and GPUs.
        wheelFolder: Folder to install from instead of the network.
        hasTorchExtension: Whether Slicer has the PyTorch extension, which finds the torch for
            this machine's graphics card.
        allowsTorchFromIndex: Whether the user accepts torch from the package index.
        version_of: Function that returns a package's installed version.
    """
    needs = dependencies.missing(mode, version_of, withTorch=withTorch)
    problems = dependencies.too_old(needs)
    requirements = [need.requirement for need in needs if not need.isBundled]
    options: tuple[str, ...] = ()
    steps: list[InstallStep] = []
    isTorchMissing = any(need.name == TORCH for need in needs)
    if wheelFolder:
        options = ("--no-index", "--find-links", wheelFolder)
        if requirements:
            problems += wheel_problems(Path(wheelFolder), requirements, version_of)
    elif isTorchMissing and hasTorchExtension and not allowsTorchFromIndex:
        # The extension's own commands; its function would block the GUI.
        if version_of(_LTT) is None:
            steps.append(InstallStep(_LTT, "pip", ("install", _LTT_REQUIREMENT)))
        steps.append(InstallStep(TORCH, "light_the_torch", ("install", requirements.pop(0))))
        isTorchMissing = False
    elif isTorchMissing and not allowsTorchFromIndex:
        problems.append(
            _(
                "PyTorch is missing: install the extension PyTorch in the Extensions Manager and "
                "start Slicer again, or allow PyTorch to be taken from the package index."
            )
        )
    if isTorchMissing:
        steps.append(InstallStep(TORCH, "pip", ("install", *options, requirements.pop(0))))
    if requirements:
        # In one call: one call per package takes five times as long.
        names = [need.name for need in needs if need.requirement in requirements]
        what = names[0] if len(names) == 1 else _("{count} packages").format(count=len(names))
        steps.append(InstallStep(what, "pip", ("install", *options, *requirements)))
    explanation = _explain(needs, wheelFolder)
    if needs and mode is ComputeMode.LOCAL and not withTorch and version_of(TORCH) is None:
        explanation += " " + _(
            "Clicking works without PyTorch. Training, automatic models and GPUs need it: tick "
            "With PyTorch in section Compute, now or later."
        )
    return InstallationPlan(tuple(needs), tuple(steps), explanation, tuple(problems))


def has_torch_extension() -> bool:
    """Return whether Slicer has the PyTorch extension."""
    import slicer

    return hasattr(slicer.modules, "pytorchutils")


class Installer:
    """Installer that carries out a plan; used on the GUI thread, which never waits.

    Args:
        background: Threads for work that takes time.
        runner: Runner of a step; None for Slicer's own installer.
        version_of: Function that returns a package's installed version.

    Attributes:
        log: All output lines so far.
    """

    def __init__(
        self,
        background: Background,
        runner: Runner | None = None,
        version_of: VersionOf = installed_version,
    ) -> None:
        self._background = background
        self._runner = runner
        self._versionOf = version_of
        self._isRunning = False
        self._isCancelled = False
        self._cancelStep: Callable[[], None] | None = None
        self.log: list[str] = []

    @property
    def isRunning(self) -> bool:
        """Whether an installation is running."""
        return self._isRunning

    def plan(
        self,
        mode: ComputeMode,
        onDone: Callable[[InstallationPlan], None],
        onError: Callable[[PumitError], None],
        *,
        withTorch: bool = False,
        wheelFolder: str = "",
        allowsTorchFromIndex: bool = False,
    ) -> None:
        """Make a plan; nothing is changed."""
        hasExtension = has_torch_extension()
        self._background.submit(
            lambda: make_plan(
                mode,
                withTorch=withTorch,
                wheelFolder=wheelFolder,
                hasTorchExtension=hasExtension,
                allowsTorchFromIndex=allowsTorchFromIndex,
                version_of=self._versionOf,
            ),
            onDone,
            lambda error: onError(readable(error)),
        )

    def install(
        self,
        plan: InstallationPlan,
        onDone: Callable[[], None],
        onError: Callable[[PumitError], None],
        *,
        onLine: Callable[[str], None] = lambda line: None,
        onProgress: Callable[[str, float], None] = lambda text, fraction: None,
    ) -> None:
        """Carry out a plan that the user confirmed.

        Args:
            plan: Result of `plan`.
            onDone: Callback when everything is installed; no restart is needed.
            onError: Callback for an error with one sentence; `Cancelled` after `cancel`.
            onLine: Callback for each line of output.
            onProgress: Callback for the current package and the finished fraction.

        Raises:
            ServiceError: If the plan is not possible, or another installation is running.
        """
        if not plan.isPossible:
            raise ServiceError(plan.problems[0] if plan.problems else _("Nothing is missing."))
        if self._isRunning:
            raise ServiceError(_("An installation is already running; wait until it has finished."))
        # 1. Pin every installed package.
        runner = self._runner or find_runner(self._background)
        folder = tempfile.TemporaryDirectory(prefix="pumit-install-")
        constraints = Path(folder.name) / "constraints.txt"
        constraints.write_text(dependencies.constraints(plan.needs), encoding="utf-8")
        self._isRunning, self._isCancelled = True, False
        self.log = []

        # 2. Run the steps in sequence.
        done = 0

        def take(line: str) -> None:
            self.log.append(line)
            onLine(line)
            if comes := _SAYS_WHAT_COMES.match(line):
                text = _("Installing {name}").format(name=comes.group(1))
                onProgress(text, done / len(plan.steps))

        def end(error: PumitError | None) -> None:
            folder.cleanup()
            self._isRunning, self._cancelStep = False, None
            if error is None:
                onDone()
            else:
                onError(error)

        def run(place: int) -> None:
            nonlocal done
            done = place
            if self._isCancelled:
                end(Cancelled(_("The installation was cancelled; installed packages are kept.")))
                return
            # 3. Finally, check that everything is importable.
            if place == len(plan.steps):
                end(self._stillMissing(plan.needs))
                return
            step = plan.steps[place]
            onProgress(_("Installing {name}").format(name=step.name), place / len(plan.steps))
            first = len(self.log)

            def finished(status: int) -> None:
                if status == 0 or self._isCancelled:
                    run(place + 1)
                else:
                    end(_failure(step, status, self.log[first:]))

            try:
                self._cancelStep = runner.run(step.constrained(constraints), take, finished)
            except (OSError, RuntimeError, PumitError) as error:
                # For example, another module is installing: Slicer allows one at a time.
                logger.error("The installation did not start", exc_info=error)
                end(
                    ServiceError(
                        _("Installing {name} could not start: {error}").format(
                            name=step.name, error=error
                        )
                    )
                )

        run(0)

    def cancel(self) -> None:
        """Stop as soon as possible: at once, or after the current package."""
        if not self._isRunning:
            return
        self._isCancelled = True
        if self._cancelStep is not None:
            self._cancelStep()

    def _stillMissing(self, needs: Sequence[Need]) -> PumitError | None:
        importlib.invalidate_caches()
        names = [need.name for need in needs if self._versionOf(need.name) is None]
        if not names:
            return None
        return ServiceError(
            _("{names} could not be imported after installation; restart Slicer.").format(
                names=dependencies.listed(names)
            )
        )


def _explain(needs: Sequence[Need], wheelFolder: str) -> str:
    if not needs:
        return _("Everything that is needed is installed.")
    names = dependencies.listed([need.name for need in needs])
    sentences = [_("{names} will be installed into Slicer's own Python.").format(names=names)]
    if wheelFolder:
        sentences.append(_("They are taken from the folder of packages; no network is used."))
    else:
        sentences.append(_size(needs))
    if any(need.name == TORCH for need in needs):
        sentences.append(
            _(
                "Packages that are installed already keep their versions. It takes some minutes; "
                "you can keep working."
            )
        )
    else:
        sentences.append(
            _(
                "Packages that are installed already keep their versions. It takes about a minute; "
                "you can keep working."
            )
        )
    return " ".join(sentences)


def _size(needs: Sequence[Need]) -> str:
    least = dependencies.megabytes(needs, hasCuda=False)
    most = dependencies.megabytes(needs, hasCuda=True)
    if least == most:
        return _("About {size} MB are downloaded.").format(size=least)
    return _("About {least} MB are downloaded, or {most:.1f} GB for an NVIDIA card.").format(
        least=least, most=most / 1000
    )


def _failure(step: InstallStep, status: int, lines: Sequence[str]) -> PumitError:
    text = "\n".join(lines)
    if "No space left on device" in text or "Errno 28" in text:
        return ServiceError(_("The disk is full; free disk space and install again."))
    if _SAYS_NO_NETWORK.search(text):
        return ServiceError(
            _(
                "The package index cannot be reached; check network and proxy, or install from a "
                "folder of packages."
            )
        )
    if "ResolutionImpossible" in text or "conflicting dependencies" in text:
        conflict = _SAYS_WHAT_CONFLICTS.search(text)
        isOfSeveral = conflict is not None and step.name not in conflict.group(1)
        return ServiceError(
            _(
                "{name} is not compatible with the installed packages, which are not replaced; "
                "the log names the conflict."
            ).format(name=conflict.group(1) if conflict and isOfSeveral else step.name)
        )
    absent = _SAYS_NO_VERSION.search(text)
    if absent:
        return ServiceError(
            _("There is no {name} for this Python and system; the log says more.").format(
                name=absent.group(1)
            )
        )
    return ServiceError(
        _("Installing {name} failed with status {status}; the log says why.").format(
            name=step.name, status=status
        )
    )
