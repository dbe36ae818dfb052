"""Required packages that Slicer lacks, found without importing them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slicer.i18n import tr as _

from PUMITSlicerLib.computing.settings import ComputeMode

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

RESOURCES = Path(__file__).resolve().parents[2] / "Resources"
TORCH = "torch"
TORCH_REQUIREMENT = "torch>=2.4"
# Packages of the client, and of what is computed here also with a server: statistics, contours and
# follow-ups.
_REMOTE = frozenset({"numpy", "requests", "blosc2", "scikit-image"})
# Packages bundled with Slicer, and their modules: not all of them have pip metadata. Another
# version would break Slicer itself.
BUNDLED = {
    "numpy": "numpy",
    "scipy": "scipy",
    "simpleitk": "SimpleITK",
    "pydicom": "pydicom",
    "requests": "requests",
    "pillow": "PIL",
    "vtk": "vtk",
}
# Oldest versions bundled with Slicer that work. They are older than what is required elsewhere,
# since they must not be replaced. Versions between the two have known faults, which the panel
# shows.
OLDEST_BUNDLED = {"simpleitk": ">=2.4", "pydicom": ">=3.0", "requests": ">=2.31", "pillow": ">=10"}
# Download sizes in MB, dependencies included.
_MEGABYTES = {
    TORCH: 250,
    "matplotlib": 17,
    "scikit-image": 17,
    "scipy": 36,
    "simpleitk": 50,
    "numpy": 17,
    "highdicom": 4,
    "pydantic": 3,
    "blosc2": 9,
    "pillow": 7,
    "openvino": 59,
}
_TORCH_WITH_CUDA_MEGABYTES = 2800
_OTHER_MEGABYTES = 0.4

VersionOf = Callable[[str], str | None]


@dataclass(frozen=True)
class Need:
    """Package that is missing or too old.

    Attributes:
        name: Name on the package index.
        specifier: Accepted versions, such as `>=2.4`.
        installed: Installed version; None if missing.
    """

    name: str
    specifier: str
    installed: str | None = None

    @property
    def requirement(self) -> str:
        """Requirement for pip."""
        return f"{self.name}{self.specifier}"

    @property
    def isBundled(self) -> bool:
        """Whether it is bundled with Slicer in an unsuitable version."""
        return self.installed is not None and _canonical(self.name) in BUNDLED


def installed_version(name: str) -> str | None:
    """Return a package's version, "0" if Slicer bundles it without metadata, None if missing."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        module = BUNDLED.get(_canonical(name))
        return "0" if module and importlib.util.find_spec(module) else None


def requirements(mode: ComputeMode, *, withTorch: bool = False) -> list[Requirement]:
    """Return the requirements of a mode, torch first.

    Args:
        withTorch: Whether to include the packages for training, automatic models and GPUs on
            this machine.
    """
    if mode is ComputeMode.REMOTE:
        return [line for line in _read("requirements.txt") if line.name in _REMOTE]
    if not withTorch:
        return _read("requirements.txt")
    from packaging.requirements import Requirement

    train = _read("requirements-train.txt")
    return [Requirement(TORCH_REQUIREMENT), *train, *_read("requirements.txt")]


def missing(
    mode: ComputeMode, version_of: VersionOf = installed_version, *, withTorch: bool = False
) -> list[Need]:
    """Return the missing packages of a mode, torch first; see `requirements`."""
    importlib.invalidate_caches()
    needs = []
    for requirement in requirements(mode, withTorch=withTorch):
        version = version_of(requirement.name)
        # Bundled packages of unknown version are accepted.
        isThere = version == "0" and _canonical(requirement.name) in BUNDLED
        specifier = requirement.specifier
        if version is not None:
            specifier = _specifiers().get(_canonical(requirement.name), specifier)
        isThere = isThere or (version is not None and specifier.contains(version, prereleases=True))
        if not isThere:
            needs.append(Need(requirement.name, str(specifier), version))
    return needs


def known_faults(version_of: VersionOf | None = None) -> list[str]:
    """Return a sentence for each package that Slicer bundles in a version with known faults."""
    version_of = version_of or _loaded_version
    sentences = []
    for requirement in _read("requirements.txt"):
        if _canonical(requirement.name) not in OLDEST_BUNDLED:
            continue
        version = version_of(requirement.name)
        isJudged = version not in (None, "0")
        if isJudged and not requirement.specifier.contains(version, prereleases=True):
            sentences.append(
                _(
                    "This Slicer includes {name} {installed}, which has known faults (fixed in "
                    "{specifier}). Open only files from trusted sources, or use a newer Slicer."
                ).format(name=requirement.name, installed=version, specifier=requirement.specifier)
            )
    return sentences


def _loaded_version(name: str) -> str | None:
    """Return as `installed_version`; for "0", the version of the loaded module if it has one."""
    version = installed_version(name)
    module = sys.modules.get(BUNDLED.get(_canonical(name), ""))
    return getattr(module, "__version__", version) if version == "0" else version


def _specifiers() -> dict[str, SpecifierSet]:
    from packaging.specifiers import SpecifierSet

    return {name: SpecifierSet(text) for name, text in OLDEST_BUNDLED.items()}


def why_not_installed(
    mode: ComputeMode, version_of: VersionOf = installed_version, *, withTorch: bool = False
) -> str:
    """Return one sentence on what is missing, or ""; see `requirements`."""
    needs = missing(mode, version_of, withTorch=withTorch)
    if not needs:
        return ""
    tooOld = too_old(needs)
    if tooOld:
        return tooOld[0]
    names = listed([need.name for need in needs])
    if mode is ComputeMode.REMOTE:
        return _("To talk to a server, {names} must be installed into Slicer's Python.").format(
            names=names
        )
    if withTorch:
        return _("To train, {names} must be installed into Slicer's Python.").format(names=names)
    return _("To compute on this machine, {names} must be installed into Slicer's Python.").format(
        names=names
    )


def too_old(needs: Iterable[Need]) -> list[str]:
    """Return a sentence for each package that Slicer bundles in an unsuitable version."""
    return [
        _(
            "This Slicer includes {name} {installed}, but {specifier} is needed, and it must not "
            "be replaced; use a newer Slicer."
        ).format(name=need.name, installed=need.installed, specifier=need.specifier)
        for need in needs
        if need.isBundled
    ]


def megabytes(needs: Iterable[Need], *, hasCuda: bool) -> int:
    """Estimate the download size."""
    total = 0.0
    for need in needs:
        size = _MEGABYTES.get(_canonical(need.name), _OTHER_MEGABYTES)
        total += _TORCH_WITH_CUDA_MEGABYTES if hasCuda and need.name == TORCH else size
    return max(1, round(total))


def constraints(needs: Iterable[Need]) -> str:
    """Return a pip constraints file that pins the installed packages.

    Only packages in `needs` that Slicer does not bundle may change.
    """
    from packaging.version import InvalidVersion, Version

    free = {_canonical(need.name) for need in needs if not need.isBundled}
    lines = set()
    for distribution in importlib.metadata.distributions():
        name, version = distribution.metadata["Name"], distribution.version
        try:
            Version(version)
        except (InvalidVersion, TypeError):
            continue  # half removed, or never properly installed: pip could not read it either
        if name and _canonical(name) not in free:
            lines.add(f"{name}=={version}")
    return "\n".join(sorted(lines, key=str.lower)) + "\n"


def listed(names: list[str]) -> str:
    """Join names to a phrase: a, b and c."""
    if len(names) < 2:
        return "".join(names)
    return _("{names} and {last}").format(names=", ".join(names[:-1]), last=names[-1])


def _read(name: str) -> list[Requirement]:
    from packaging.requirements import Requirement

    lines = (RESOURCES / name).read_text("utf-8").splitlines()
    specifiers = (line.partition("#")[0].strip() for line in lines)
    return [Requirement(line) for line in specifiers if line]


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
