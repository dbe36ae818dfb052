"""Search for scans in files, folders, list files and trees of DICOM series."""

import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pumit.errors import VolumeError

logger = logging.getLogger(__name__)

# Suffixes of image files; any other file may be DICOM.
IMAGE_SUFFIXES = (".nii.gz", ".nii", ".nrrd", ".nhdr", ".mha", ".mhd", ".png", ".jpg", ".jpeg")
_PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg")
LIST_SUFFIX = ".txt"
_FIRST_CHANNEL = re.compile(r"^(?P<stem>.+)_0000(?P<suffix>\.[^_]+)$")


@dataclass(frozen=True)
class Scan:
    """One scan to process.

    Attributes:
        name: Name of its result, without a suffix; may contain folders.
        series: SeriesInstanceUID, to choose among several in a DICOM folder.
    """

    path: Path
    name: str
    series: str | None = None


def suffix_of(path: Path, suffixes: Sequence[str]) -> str | None:
    """Return the first of the suffixes that a file name ends with, ignoring case, or None."""
    return next((s for s in suffixes if path.name.lower().endswith(s)), None)


def find_scans(
    paths: Sequence[Path], *, series: str | None = None, whole_tree: bool = False
) -> list[Scan]:
    """Find all scans in some paths, in a fixed order.

    Args:
        paths: Files; DICOM folders and zips; folders of image files; unsorted trees of DICOM
            series; list files (.txt) with one path per line, relative to the list, optionally
            followed by a tab and a name.
        series: SeriesInstanceUID, to choose among several; folders are then searched only for
            DICOM.
        whole_tree: Whether to search subfolders even if the folder itself holds volumes.

    Raises:
        VolumeError: If a list or a folder cannot be read.
    """
    scans: list[Scan] = []
    for path in paths:
        if path.suffix.lower() == LIST_SUFFIX and path.is_file():
            scans += _listed(path, series)
        elif path.is_dir():
            scans += _in_folder(path, series, whole_tree=whole_tree)
        else:
            scans.append(Scan(path, _stem(path), series))
    return scans


def _stem(path: Path) -> str:
    ending = suffix_of(path, (*IMAGE_SUFFIXES, ".zip")) or ""
    return path.name[: len(path.name) - len(ending)]


def _listed(path: Path, series: str | None) -> list[Scan]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise VolumeError(f"The list of scans cannot be read: {_reason(error)}.") from None
    scans = []
    for line in lines:
        given, _, name = line.partition("\t")
        if given.strip() and not given.startswith("#"):
            image = path.parent / given.strip()
            scans.append(Scan(image, name.strip() or _stem(image), series))
    if not scans:
        raise VolumeError("The list of scans is empty; write one path per line.")
    return scans


def _in_folder(folder: Path, series: str | None, *, whole_tree: bool) -> list[Scan]:
    """List the volumes and DICOM series of a folder, or of its tree if it holds no volumes.

    Segmentations are skipped. So are pictures beside DICOM or a Slicer scene, such as logos and
    thumbnails. Skipped files are logged.
    """
    # 1. Search the folder; if none of its files is a volume, search the tree.
    top = sorted(p for p in _entries(folder) if p.is_file() and not p.name.startswith("."))
    groups = [top]
    if whole_tree or not any(_is_volume(p) for p in _scans_among(top)):
        groups = [files for _, files in _tree(folder)]
    files = [p for group in groups for p in group]
    images = [p for group in groups for p in _scans_among(group)]
    dicom = _series_of(folder, [p for p in files if not suffix_of(p, IMAGE_SUFFIXES)])
    if series is not None:
        uid = series.partition("#")[0]
        dicom = [replace(scan, series=series) for scan in dicom if scan.series == uid]
        # Only DICOM has series; if the folder lacks this one, reading it reports that.
        return dicom or [Scan(folder, folder.name, series)]
    # 2. Skip pictures beside DICOM; if there are only pictures, prefer the folder's own.
    if dicom:
        images = [p for p in images if _is_volume(p)]
    elif not any(map(_is_volume, images)):
        images = [p for p in images if p in top] or images
    _say_left_out(files, images)
    if not images and len(dicom) <= 1:
        if not dicom and any(_is_segmentation(p) for p in files):
            raise VolumeError(
                "The folder holds segmentations and no scan; give the folder of the scans."
            )
        return [Scan(folder, folder.name, series)]  # reading it reports what is wrong
    named = [(p, (p.parent.relative_to(folder) / _stem(p)).as_posix()) for p in images]
    return [*(Scan(p, name, series) for p, name in named), *dicom]


def _is_volume(path: Path) -> bool:
    return suffix_of(path, IMAGE_SUFFIXES) not in (None, *_PICTURE_SUFFIXES)


def _is_segmentation(path: Path) -> bool:
    """Return whether a file name without its suffix ends with `.seg`, as in Slicer."""
    return _stem(path).lower().endswith(".seg")


def _scans_among(files: Sequence[Path]) -> list[Path]:
    """List the image files of one folder, without segmentations, label maps and thumbnails."""
    found = [p for p in files if suffix_of(p, IMAGE_SUFFIXES)]
    has_scene = any(p.suffix.lower() == ".mrml" for p in files)
    stems = {_stem(p) for p in found}

    def is_label_map(path: Path) -> bool:
        stem, _, last = _stem(path).rpartition("-")
        return last.lower() == "label" and (has_scene or stem in stems)

    return [
        p
        for p in found
        if not _is_segmentation(p) and not is_label_map(p) and (_is_volume(p) or not has_scene)
    ]


def _say_left_out(files: Sequence[Path], images: Sequence[Path]) -> None:
    """Log how many files that look like scans were skipped, without their names."""
    left = [p for p in files if suffix_of(p, IMAGE_SUFFIXES) and p not in set(images)]
    pictures = sum(not _is_volume(p) for p in left)
    if pictures:
        logger.warning(
            "Skipped %d pictures next to other scans; give the path of a picture to include it.",
            pictures,
        )
    if len(left) > pictures:
        logger.warning("Skipped %d segmentations among the scans.", len(left) - pictures)


def _series_of(folder: Path, files: Sequence[Path]) -> list[Scan]:
    """List the DICOM series among files, named by folder, plus UID if the folder holds several.

    The folder of a damaged file becomes a separate scan, so that reading it reports the damage.
    """
    from pumit.io.dicom.files import is_dicom, read_header

    parents: dict[str, set[Path]] = defaultdict(set)
    damaged: set[Path] = set()
    for path in files:
        try:
            with path.open("rb") as stream:
                if not is_dicom(stream.read(132)):
                    continue
            file = read_header(path)
            if file.is_image:
                parents[file.series_instance_uid].add(path.parent)
        except (OSError, VolumeError):
            damaged.add(path.parent)
    homes = {uid: Path(os.path.commonpath(found)) for uid, found in parents.items()}
    scans = []
    for uid, home in homes.items():
        is_alone = list(homes.values()).count(home) == 1 and home not in damaged
        named = home.relative_to(folder) if home != folder else Path(folder.name)
        name = named if is_alone else named / uid
        scans.append(Scan(home, name.as_posix(), uid))
    known = set(homes.values())
    scans += [Scan(d, (d.relative_to(folder) / "damaged").as_posix()) for d in damaged - known]
    return sorted(scans, key=lambda scan: scan.name)


def _tree(folder: Path) -> Iterator[tuple[Path, list[Path]]]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield Path(parent), [Path(parent, n) for n in sorted(names) if not n.startswith(".")]


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise VolumeError(f"The folder cannot be read: {_reason(error)}.") from None


def _reason(error: OSError | UnicodeDecodeError) -> str:
    """Return why a file could not be read, without its name."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return error.strerror or "the system refused"


def scan_name(first: Path) -> str | None:
    """Return NAME of NAME_0000.nii.gz, the first channel of a scan as for nnU-Net; else None."""
    match = _FIRST_CHANNEL.match(first.name)
    return match["stem"] if match else None


def channel_files(first: Path) -> list[Path]:
    """List NAME_0000 and the files that follow it without a gap: one for each channel."""
    match = _FIRST_CHANNEL.match(first.name)
    found = [first]
    while match is not None:
        following = first.with_name(f"{match['stem']}_{len(found):04d}{match['suffix']}")
        if not following.is_file():
            break
        found.append(following)
    return found
