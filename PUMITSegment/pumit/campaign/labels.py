"""Labels of a campaign: mapping of segments to classes, writing, and Dice."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.errors import PumitError, VolumeError
from pumit.evaluation.metrics import dice
from pumit.segmentation import (
    UNKNOWN_NAMES,
    Algorithm,
    ClassLabel,
    Mask,
    Segment,
    Segmentation,
    plain_name,
)
from pumit.system.files import atomic_path, make_folder

if TYPE_CHECKING:
    from pumit.io.labels.label_file import LabelFile, LabelledSegment
    from pumit.volume import Volume

UNKNOWN = UNKNOWN_NAMES[0]
NO_CLASS = (*UNKNOWN_NAMES, "background")


@dataclass(frozen=True)
class CampaignClass:
    """A class of a campaign.

    Attributes:
        terminology: Terminology concept, by name or code; empty if unknown.
        color_rgb: Colour, each component 0 to 1.
        other_names: Other segment names of the class, including its former names.
        values: All its values; several if it contains other classes, such as whole tumour and core.
    """

    name: str
    value: int
    terminology: str = ""
    color_rgb: tuple[float, float, float] | None = None
    other_names: tuple[str, ...] = ()
    values: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Default `values` to `value`, and reject names that no format can hold."""
        object.__setattr__(self, "values", tuple(self.values) or (self.value,))
        self.label  # noqa: B018

    @property
    def label(self) -> ClassLabel:
        """Class label as used by models and exports."""
        return ClassLabel(self.name, self.terminology, self.color_rgb)

    def as_row(self) -> dict[str, Any]:
        """Return the row for a recipe and the campaign's file."""
        row: dict[str, Any] = {"name": self.name}
        row |= {"values": list(self.values)} if len(self.values) > 1 else {"value": self.value}
        row |= {"terminology": self.terminology} if self.terminology else {}
        row |= {"color_rgb": list(self.color_rgb)} if self.color_rgb else {}
        return row | ({"segments": list(self.other_names)} if self.other_names else {})


def classes_of_rows(rows: Sequence[Any]) -> tuple[CampaignClass, ...]:
    """Create classes from names, recipe rows or classes, in order.

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
        ("name", [plain_name(c.name) for c in made]),
        ("value", [", ".join(map(str, c.values)) for c in made]),
    ):
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise PumitError(f"Two classes share the {what} {twice[0]!r}; make them different.")
    return tuple(made)


def class_named(name: str, classes: Sequence[CampaignClass]) -> CampaignClass | None:
    """Return the class with a name or other name, or None."""
    key = plain_name(name)
    return next((c for c in classes if key in map(plain_name, (c.name, *c.other_names))), None)


def is_passed(name: str, ignored: Sequence[str]) -> bool:
    """Return whether segments of a name are ignored, unknown or background."""
    return plain_name(name) in map(plain_name, (*ignored, *NO_CLASS))


def classes_of_segment(name: str, classes: Sequence[CampaignClass]) -> list[CampaignClass]:
    """Return the classes of a segment, by its name or by its value as decimal text."""
    found = class_named(name, classes)
    if found is not None or not name.isdecimal():
        return [found] if found is not None else []
    return [c for c in classes if int(name) in c.values]


def segment_names(segment: LabelledSegment, given: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Return a segment's name, else its data set's names for its value, else the value."""
    value = str(segment.value)
    return [segment.name] if segment.name else given.get(value, [value])


def named_masks(
    file: LabelFile, given: Mapping[str, Sequence[str]] | None = None
) -> Iterator[tuple[str, Mask]]:
    """Iterate over the names and masks of a label file; see `segment_names`."""
    return ((n, file.mask(s)) for s in file.segments for n in segment_names(s, given or {}))


def join_by_class(
    segments: Iterable[tuple[str, Mask]],
    classes: Sequence[CampaignClass],
    *,
    ignored: Sequence[str] = (),
    keeps_others: bool = False,
) -> dict[str, Mask]:
    """Join masks of segments by class, without empty ones; unknown voxels are in `UNKNOWN`.

    Args:
        segments: Name, or value of unnamed segments, and mask of each.
        keeps_others: Whether to keep segments of no class by their own names.

    Raises:
        VolumeError: If a segment has no class.
    """
    masks: dict[str, Mask] = {}
    for name, mask in segments:
        keys = [c.name for c in classes_of_segment(name, classes)]
        if not keys and plain_name(name) in UNKNOWN_NAMES:
            keys = [UNKNOWN]
        elif (not keys and is_passed(name, ignored)) or not mask.any():
            continue
        if not keys and not keeps_others:
            raise VolumeError(
                f"{name!r} is no class of this campaign; its classes are "
                f"{', '.join(c.name for c in classes) or 'none'}. Rename it, or say which it is "
                f"(`pumit campaign name FOLDER {name!r} CLASS`)."
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
    """Read masks of label files by class, on the grid of their scan; see `join_by_class`.

    Raises:
        VolumeError: If a file cannot be read, is on another grid, or a segment has no class.
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
    """Create a segmentation with the campaign's codes and colours; None if all masks are empty."""
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
    """Write a reviewed label; None writes a file without segments."""
    from pumit.export.seg_nrrd import write_seg_nrrd

    if segmentation is not None:
        write_seg_nrrd(segmentation, path, is_reviewed=True, reviewer=reviewer)
        return
    import numpy as np

    from pumit.export.labelmap import write_labels

    # Written as a label map and renamed, because `.seg.nrrd` needs a segment.
    with atomic_path(path) as temporary:
        empty = temporary.with_name(f"{temporary.name.partition('.seg')[0]}-empty.nrrd")
        try:
            write_labels(np.zeros(volume.shape, dtype=np.uint8), volume, empty)
            empty.replace(temporary)
        finally:
            empty.unlink(missing_ok=True)


def keep_copy(path: Path, revision: int) -> Path | None:
    """Copy a file, if it exists, to `previous/` before it is replaced, and return the copy."""
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
    """Return the Dice of each class in either, outside unknown voxels; 0 if only one has it."""
    found = dict.fromkeys(sorted((one.keys() | other.keys()) - {UNKNOWN}), 0.0)
    unknown = [masks[UNKNOWN] for masks in (one, other) if UNKNOWN in masks]
    for name in one.keys() & other.keys() - {UNKNOWN}:
        first, second = one[name], other[name]
        for mask in unknown:
            first, second = first & ~mask, second & ~mask
        found[name] = dice(first, second)
    return found
