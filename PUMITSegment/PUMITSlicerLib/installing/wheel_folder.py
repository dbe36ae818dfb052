"""Check of a folder of wheels, for machines without network."""

from __future__ import annotations

import email.parser
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slicer.i18n import tr as _

from PUMITSlicerLib.computing.dependencies import VersionOf, installed_version

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.tags import Tag
    from packaging.version import Version


@dataclass(frozen=True)
class _Wheel:
    file: Path
    version: Version
    tags: frozenset[Tag]


def wheel_problems(
    folder: Path, needed: Iterable[str], version_of: VersionOf = installed_version
) -> list[str]:
    """Return what prevents an installation from a folder, without installing anything.

    Args:
        folder: Folder of `.whl` files.
        version_of: Function that returns a package's installed version.

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
