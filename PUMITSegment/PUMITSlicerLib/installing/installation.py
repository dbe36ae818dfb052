"""Installation of missing packages into Slicer's Python, step by step on a thread."""

from __future__ import annotations

import email.parser
import importlib
import inspect
import logging
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.client.worker import signal_tree
from pumit.errors import Cancelled, PumitError, ServiceError
from slicer.i18n import tr as _

from PUMITSlicerLib.computing import dependencies
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.computing.connection import readable
from PUMITSlicerLib.computing.dependencies import TORCH, Need, VersionOf, installed_version
from PUMITSlicerLib.computing.python_executable import SLICER_PYTHON, SlicerPython
from PUMITSlicerLib.computing.settings import ComputeMode

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.tags import Tag
    from packaging.version import Version


logger = logging.getLogger(__name__)

_REQUESTER = "PUMIT"
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
class InstallStep:
    """Call of a Python module that installs packages.

    Attributes:
        module: `pip`, or `light_the_torch`, which finds the torch for the graphics card.
    """

    name: str
    module: str
    arguments: tuple[str, ...]

    def constrained(self, file: Path) -> InstallStep:
        """Return this step with a constraints file."""
        return replace(self, arguments=(*self.arguments, "-c", str(file)))


class ProgramRunner:
    """Runner of steps as subprocesses of Slicer's Python; a thread reads their output."""

    def __init__(self, background: Background, python: SlicerPython = SLICER_PYTHON) -> None:
        self._background = background
        self._python = python

    def run(
        self, step: InstallStep, onLine: Callable[[str], None], onFinished: Callable[[int], None]
    ) -> Callable[[], None]:
        """Start a step; the callbacks are called on the GUI thread.

        Returns:
            Function that kills its process tree.
        """
        # No standard input, since questions cannot be answered.
        process = self._python.open(step.module, step.arguments, stderr=subprocess.STDOUT)

        def read() -> int:
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    text = line.decode("utf-8", errors="replace").rstrip()
                    self._background.post(onLine, text)
            return process.wait()

        def end() -> None:
            if process.poll() is None:
                signal_tree(process, force=True)

        self._background.submit(read, onFinished, onCancel=end)
        return end


class PackagingRunner:
    """Runner of pip through `slicer.packaging`, and of everything else as a subprocess.

    Args:
        packaging: Module `slicer.packaging`, or its earlier name `slicer.pydeps`.
        programs: Runner of everything but pip.
    """

    def __init__(self, packaging: Any, programs: ProgramRunner) -> None:
        self._packaging = packaging
        self._programs = programs

    def run(
        self, step: InstallStep, onLine: Callable[[str], None], onFinished: Callable[[int], None]
    ) -> Callable[[], None] | None:
        """Start a step; pip cannot be stopped this way."""
        if step.module != "pip":
            return self._programs.run(step, onLine, onFinished)
        self._packaging.pip_install(
            list(step.arguments[1:]),  # pip_install adds "install" itself
            blocking=False,
            show_progress=False,
            requester=_REQUESTER,
            logCallback=onLine,
            completedCallback=onFinished,
        )
        return None


def find_runner(background: Background) -> ProgramRunner | PackagingRunner:
    """Return Slicer's installer if it can run without blocking the GUI, otherwise pip.

    While Slicer runs its own tests its installer blocks the GUI, so it is not used then.
    """
    import slicer

    programs = ProgramRunner(background)
    app = getattr(slicer, "app", None)
    if app is None or (hasattr(app, "testingEnabled") and app.testingEnabled()):
        return programs
    for name in ("slicer.packaging", "slicer.pydeps"):
        try:
            packaging = import_module(name)
        except ImportError:
            continue
        install = getattr(packaging, "pip_install", None)
        if install and "completedCallback" in inspect.signature(install).parameters:
            return PackagingRunner(packaging, programs)
    return programs


@dataclass(frozen=True)
class _Wheel:
    file: Path
    version: Version
    tags: frozenset[Tag]


def wheel_problems(
    folder: Path, needed: Iterable[str], version_of: VersionOf = installed_version
) -> list[str]:
    """Return what prevents an installation from a folder, without installing anything.

    Returns:
        A sentence per problem; empty if pip will find all packages and their dependencies.
    """
    from packaging.requirements import Requirement
    from packaging.tags import sys_tags
    from packaging.utils import canonicalize_name

    if not folder.is_dir():
        return [_("The folder of packages, {name}, does not exist.").format(name=folder.name)]
    wheels, problems = _read_folder(folder)
    if not wheels:
        return [*problems, _("The folder {name} has no .whl files.").format(name=folder.name)]
    supported = frozenset(sys_tags())
    waiting = [Requirement(line) for line in needed]
    seen = set()
    while waiting:
        requirement = waiting.pop(0)
        name = canonicalize_name(requirement.name)
        isMeant = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if not isMeant or (name, str(requirement.specifier)) in seen:
            continue
        seen.add((name, str(requirement.specifier)))
        version = version_of(requirement.name)
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            continue
        chosen = _choose(requirement, wheels.get(name, []), supported)
        if isinstance(chosen, str):
            problems.append(chosen)
        else:
            waiting += _needs_of(chosen.file)
    return list(dict.fromkeys(problems))


def _read_folder(folder: Path) -> tuple[dict[str, list[_Wheel]], list[str]]:
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    wheels: dict[str, list[_Wheel]] = {}
    problems = []
    for file in sorted(folder.glob("*.whl")):
        try:
            name, version, _build, tags = parse_wheel_filename(file.name)
        except InvalidWheelFilename:
            problems.append(
                _("{file} is not named as a wheel; download it again.").format(file=file.name)
            )
            continue
        wheels.setdefault(name, []).append(_Wheel(file, version, tags))
    return wheels, problems


def _choose(
    requirement: Requirement, wheels: list[_Wheel], supported: frozenset[Tag]
) -> _Wheel | str:
    """Return the wheel that pip would take, or a sentence on why there is none."""
    required = f"{requirement.name}{requirement.specifier}"
    if not wheels:
        return _("{required} is needed, but it is not in the folder.").format(required=required)
    right = [w for w in wheels if requirement.specifier.contains(w.version, prereleases=True)]
    if not right:
        there = ", ".join(sorted(str(wheel.version) for wheel in wheels))
        return _("{required} is needed, but the folder has {there}.").format(
            required=required, there=there
        )
    fitting = [wheel for wheel in right if wheel.tags & supported]
    if not fitting:
        from packaging.tags import sys_tags

        return _("{file} is for another Python or system; {tag} is needed.").format(
            file=right[-1].file.name, tag=next(sys_tags())
        )
    return max(fitting, key=lambda wheel: wheel.version)


def _needs_of(wheel: Path) -> list[Requirement]:
    """Return a wheel's requirements; none for a damaged wheel, which pip reports."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
            text = archive.read(names[0]).decode("utf-8", errors="replace")
        lines = email.parser.HeaderParser().parsestr(text).get_all("Requires-Dist") or []
        return [Requirement(line) for line in lines]
    except (OSError, zipfile.BadZipFile, IndexError, InvalidRequirement):
        return []


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
        withTorch: Whether to include training, automatic models and GPUs.
        hasTorchExtension: Whether Slicer has the PyTorch extension, which finds the torch for
            this machine's graphics card.
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
        runner: Runner of a step; None for Slicer's own installer.

    Attributes:
        log: All output lines so far.
    """

    def __init__(
        self,
        background: Background,
        runner: ProgramRunner | PackagingRunner | None = None,
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
            onDone: Callback when everything is installed; no restart is needed.
            onError: Callback for an error with one sentence; `Cancelled` after `cancel`.

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
