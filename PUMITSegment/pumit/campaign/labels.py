"""Labels of a campaign: their names and classes, how they are written, how well they agree."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.errors import PumitError, VolumeError
from pumit.segmentation import Algorithm, ClassLabel, Mask, Segment, Segmentation
from pumit.system.atomic import atomic_path, make_folder

if TYPE_CHECKING:
    from pumit.io.labels.label_file import LabelFile, LabelledSegment
    from pumit.volume import Volume

# Segments that say what is unknown, or certainly background.
UNKNOWN_NAMES = ("ignore", "ignored", "unknown")  # as trainings know them
UNKNOWN = UNKNOWN_NAMES[0]
NO_CLASS = (*UNKNOWN_NAMES, "background")


@dataclass(frozen=True)
class CampaignClass:
    """A class of a campaign.

    Attributes:
        name: Its name.
        value: Value in label maps, from 1.
        terminology: Concept of a terminology, by name or code; empty where unknown.
        color_rgb: Colour, each part 0 to 1.
        other_names: Other names that its segments may have, former ones of its own among them.
        values: All its values; several where it may overlap others, as the whole tumour its core.
    """

    name: str
    value: int
    terminology: str = ""
    color_rgb: tuple[float, float, float] | None = None
    other_names: tuple[str, ...] = ()
    values: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Take the only value for all of them; refuse names that no format can hold."""
        object.__setattr__(self, "values", tuple(self.values) or (self.value,))
        self.label  # noqa: B018

    @property
    def label(self) -> ClassLabel:
        """As models and exports have it."""
        return ClassLabel(self.name, self.terminology, self.color_rgb)

    def as_row(self) -> dict[str, Any]:
        """As a recipe and the campaign's file name it."""
        row: dict[str, Any] = {"name": self.name}
        row |= {"values": list(self.values)} if len(self.values) > 1 else {"value": self.value}
        row |= {"terminology": self.terminology} if self.terminology else {}
        row |= {"color_rgb": list(self.color_rgb)} if self.color_rgb else {}
        return row | ({"segments": list(self.other_names)} if self.other_names else {})


def classes_of_rows(rows: Sequence[Any]) -> tuple[CampaignClass, ...]:
    """Classes of names, of rows as a recipe has them, or of classes, in order.

    Raises:
        PumitError: If two share a name or a value, or one has no name.
    """
    made: list[CampaignClass] = []
    for row in rows:
        if isinstance(row, CampaignClass):
            made.append(row)
            continue
        given = row if isinstance(row, Mapping) else {"name": row}
        values = tuple(map(int, given.get("values", ())))
        free = max((c.value for c in made), default=0) + 1
        value = given.get("value") or next(iter(values), free)
        made.append(
            CampaignClass(
                str(given.get("name") or "").strip(),
                int(value),
                str(given.get("terminology") or ""),
                tuple(given.get("color_rgb") or ()) or None,
                tuple(map(str, given.get("segments", ()))),
                values,
            )
        )
    for what, keys in (
        ("name", [plain(c.name) for c in made]),
        ("value", [", ".join(map(str, c.values)) for c in made]),
    ):
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise PumitError(f"Two classes share the {what} {twice[0]!r}; make them different.")
    return tuple(made)


def plain(name: str) -> str:
    """Return a name as it is compared."""
    return " ".join(name.replace("_", " ").replace("-", " ").split()).casefold()


def class_named(name: str, classes: Sequence[CampaignClass]) -> CampaignClass | None:
    """Return the class that has a name, or has it among its other names."""
    key = plain(name)
    return next((c for c in classes if key in map(plain, (c.name, *c.other_names))), None)


def is_passed(name: str, ignored: Sequence[str]) -> bool:
    """Return whether segments of a name are of no class, and need none."""
    return plain(name) in map(plain, (*ignored, *NO_CLASS))


def classes_of_segment(name: str, classes: Sequence[CampaignClass]) -> list[CampaignClass]:
    """Return classes that a segment is of, by its name, or by its value where that is its name."""
    found = class_named(name, classes)
    if found is not None or not name.isdecimal():
        return [found] if found is not None else []
    return [c for c in classes if int(name) in c.values]


def segment_names(segment: LabelledSegment, given: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Return a segment's name, else those that its data set has for its value, else this."""
    value = str(segment.value)
    return [segment.name] if segment.name else given.get(value, [value])


def named_masks(
    file: LabelFile, given: Mapping[str, Sequence[str]] | None = None
) -> Iterator[tuple[str, Mask]]:
    """Masks of a label file with their names; see `segment_names`."""
    return ((n, file.mask(s)) for s in file.segments for n in segment_names(s, given or {}))


def join_by_class(
    segments: Iterable[tuple[str, Mask]],
    classes: Sequence[CampaignClass],
    *,
    ignored: Sequence[str] = (),
    keeps_others: bool = False,
) -> dict[str, Mask]:
    """Masks of segments by class, without those that are empty; what is unknown is `UNKNOWN`.

    Args:
        segments: Name, or value where it has none, and mask of each.
        classes: Classes of the campaign.
        ignored: Names of segments that are none of them.
        keeps_others: Whether segments of no class are kept by their own names.

    Raises:
        VolumeError: If one is of no class.
    """
    masks: dict[str, Mask] = {}
    for name, mask in segments:
        keys = [c.name for c in classes_of_segment(name, classes)]
        if not keys and plain(name) in UNKNOWN_NAMES:
            keys = [UNKNOWN]
        elif (not keys and is_passed(name, ignored)) or not mask.any():
            continue
        if not keys and not keeps_others:
            raise VolumeError(
                f"{name!r} is no class of this campaign; its classes are "
                f"{', '.join(c.name for c in classes) or 'none'}. Rename it, or say which it is."
            )
        for key in (keys or [name]) if mask.any() else ():
            masks[key] = masks[key] | mask if key in masks else mask
    return masks


def masks_of_files(
    paths: Sequence[Path],
    volume: Volume,
    classes: Sequence[CampaignClass],
    *,
    given: Mapping[str, Sequence[str]] | None = None,
    ignored: Sequence[str] = (),
    keeps_others: bool = False,
) -> dict[str, Mask]:
    """Masks of label files on the grid of their scan, by class; see `join_by_class`.

    Raises:
        VolumeError: If it cannot be read, is on another grid, or holds what no class names.
    """
    from pumit.io.labels.label_source import read_all_labels

    found = named_masks(read_all_labels(paths, volume), given)
    return join_by_class(found, classes, ignored=ignored, keeps_others=keeps_others)


def segmentation_of(
    masks: Mapping[str, Mask],
    volume: Volume,
    classes: Sequence[CampaignClass],
    algorithm: Algorithm,
) -> Segmentation | None:
    """Masks as a segmentation with the campaign's codes and colours; None where all are empty."""
    from pumit.export.classes import class_terminology

    meanings = class_terminology([c.label for c in classes])
    segments: list[Segment] = [
        meaning.segment(c.name, masks[c.name])
        for c, meaning in zip(classes, meanings, strict=True)
        if c.name in masks and masks[c.name].any()
    ]
    if UNKNOWN in masks:
        segments.append(Segment(UNKNOWN, masks[UNKNOWN]))
    return Segmentation(volume, tuple(segments), algorithm) if segments else None


def write_label(
    segmentation: Segmentation | None, volume: Volume, path: Path, reviewer: str
) -> None:
    """Write what a person accepted; a scan without any structure has a file without segments."""
    from pumit.export.seg_nrrd import write_seg_nrrd

    if segmentation is not None:
        write_seg_nrrd(segmentation, path, is_reviewed=True, reviewer=reviewer)
        return
    import numpy as np

    from pumit.export.labelmap import write_labels

    # A writer of label maps, whose file is renamed: `.seg.nrrd` needs a segment.
    with atomic_path(path) as temporary:
        empty = temporary.with_name(f"{temporary.name.partition('.seg')[0]}-empty.nrrd")
        try:
            write_labels(np.zeros(volume.shape, dtype=np.uint8), volume, empty)
            empty.replace(temporary)
        finally:
            empty.unlink(missing_ok=True)


def keep_copy(path: Path, revision: int) -> Path | None:
    """Copy an accepted label aside before another takes its name; returns the copy, if any."""
    if not path.is_file():
        return None
    folder = path.parent / "previous"
    make_folder(folder)
    name = path.name.partition(".")
    target, number = folder / f"{name[0]}.{revision}.{name[2]}", 1
    while target.exists():
        number += 1
        target = folder / f"{name[0]}.{revision}-{number}.{name[2]}"
    with atomic_path(target) as temporary:
        shutil.copyfile(path, temporary)
    return target


def class_dice(one: Mapping[str, Mask], other: Mapping[str, Mask]) -> dict[str, float]:
    """Dice of each class that is in either, where both know; a class that only one has gets 0."""
    found = {}
    unknown = [masks[UNKNOWN] for masks in (one, other) if UNKNOWN in masks]
    for name in sorted((one.keys() | other.keys()) - {UNKNOWN}):
        if name not in one or name not in other:
            found[name] = 0.0
            continue
        first, second = one[name], other[name]
        for mask in unknown:
            first, second = first & ~mask, second & ~mask
        total = int(first.sum()) + int(second.sum())
        found[name] = 2 * int((first & second).sum()) / total if total else 1.0
    return found
