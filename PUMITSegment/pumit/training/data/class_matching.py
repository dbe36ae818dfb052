"""Match the segments of label files to classes, and mark unknown voxels."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.errors import VolumeError
from pumit.io.labels.label_file import (
    SHOWN_VALUES,
    SMALL_NUMBERS,
    LabelFile,
    LabelledSegment,
    distinct_values,
)
from pumit.segmentation import UNKNOWN_NAMES, plain_name
from pumit.system.wording import listed
from pumit.training.data.classes import (
    UNKNOWN,
    ClassValue,
    base_values,
    has_regions,
    lookup_table,
    region_table,
)
from pumit.training.recipes.labelled import KnownPart

BACKGROUND_NAMES = ("background",)
NEAR_NAME = 0.8  # difflib ratio from which a name may be a misspelling of another
# Default segment names of annotation programs.
_GENERIC = re.compile(r"(?:segment|label|class|region|roi|structure|value)?\s*\d*")
Labels = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class ClassLabels:
    """Labels of a file, converted to classes.

    Attributes:
        labels: (D, H, W), 0 background, i the i-th class or, with regions, the i-th of
            `base_values`; `UNKNOWN` for unannotated voxels.
        drawn: Whether each class was annotated, inferred from segment names; None if all were.
        background: Mask of annotated background, (D, H, W); None if there is none.
    """

    labels: Labels
    doubts: tuple[str, ...]
    drawn: tuple[bool, ...] | None = None
    background: npt.NDArray[np.bool_] | None = None


def is_generic(name: str) -> bool:
    """Return whether a segment has a default name, such as "Segment_3"."""
    return _GENERIC.fullmatch(plain_name(name)) is not None


def is_class(segment: LabelledSegment, ignore_value: int | None = None) -> bool:
    """Return whether a segment stands for a class, not for background or unknown voxels."""
    if not segment.name:
        return segment.value != ignore_value
    return plain_name(segment.name) not in (*UNKNOWN_NAMES, *BACKGROUND_NAMES)


def class_labels(
    file: LabelFile, classes: Sequence[ClassValue], ignore_value: int | None = None
) -> ClassLabels:
    """Convert a label file to class indices; voxels of `ignore_value` become unknown.

    Named segments are matched to classes by name, including a class's further segment names.
    Unnamed segments are matched by value, as are all segments if no name matches any class. Named
    segments without a class become background, but those of a label map with a colour table are
    refused: without the table, its values would be classes. Where two classes overlap, the later
    one wins; regions may overlap. A class without a segment in a file with names, not even an empty
    one, counts as not annotated there.

    Raises:
        VolumeError: If an unnamed value or a name from a colour table has no class.
    """
    if not file.is_named or not file.segments:
        return ClassLabels(class_indices(file.volume.array, classes, ignore_value), ())
    matched, doubts = match_segments(file.segments, classes)
    _refuse_unnamed(file)
    _refuse_tabled(file, [s for s, index in matched.items() if index is None])
    if has_regions(classes):
        labels, sentences = _regions(file, matched, classes)
    else:
        labels, sentences = _one_by_one(file, matched, classes)
    unknown = _masks_of(file, UNKNOWN_NAMES)
    if unknown is not None:
        labels[unknown] = UNKNOWN
    there = set(matched.values())
    drawn = tuple(i in there for i in range(len(classes)))
    background = _masks_of(file, BACKGROUND_NAMES)
    return ClassLabels(labels, (*doubts, *sentences), None if all(drawn) else drawn, background)


def _masks_of(file: LabelFile, names: Sequence[str]) -> npt.NDArray[np.bool_] | None:
    """Return the union mask of the segments with these names, (D, H, W); None without any."""
    masks = [file.mask(s) for s in file.segments if plain_name(s.name) in names]
    return np.logical_or.reduce(masks) if masks else None


def class_indices(
    values: npt.NDArray[np.generic],
    classes: Sequence[ClassValue],
    ignore_value: int | None = None,
) -> npt.NDArray[np.uint8]:
    """Replace label values by class indices from 1 on, `ignore_value` by `UNKNOWN`.

    With regions, the indices are those of `base_values`.

    Raises:
        VolumeError: If a value has no class.
    """
    found = distinct_values(values)
    known = {0: 0} | {value: i for i, value in enumerate(base_values(classes), start=1)}
    if ignore_value is not None:
        known[ignore_value] = UNKNOWN
    unknown = [v for v in found.tolist() if v not in known]
    if unknown:
        shown = ", ".join(f"{v:g}" for v in unknown[:SHOWN_VALUES])
        more = " and more" if len(unknown) > SHOWN_VALUES else ""
        raise VolumeError(f"no class is named for the label values {shown}{more}")
    indices = np.array([known[v] for v in found.tolist()], dtype=np.uint8)
    if values.dtype == np.uint8 and np.array_equal(indices, found):
        return values.view(np.uint8)  # values are class indices already
    if values.dtype.kind in "iu" and found[-1] < SMALL_NUMBERS:
        table = np.zeros(int(found[-1]) + 1, dtype=np.uint8)
        table[found] = indices
        return table[values]
    return indices[np.searchsorted(found, values)]


def match_segments(
    segments: Sequence[LabelledSegment], classes: Sequence[ClassValue]
) -> tuple[dict[LabelledSegment, int | None], list[str]]:
    """Return the class index of each segment, from 0 on or None for background, and doubts."""
    # 1. By names.
    by_name = _numbers_by_name(classes)
    matched: dict[LabelledSegment, int | None] = {
        s: by_name.get(plain_name(s.name)) for s in segments if is_class(s)
    }
    # 2. The rest by values, if the name is a default one or no name matched.
    any_name = any(i is not None for i in matched.values())
    by_value = {c.value: i for i, c in reversed(list(enumerate(classes))) if len(c.values) == 1}
    taken = {i for i in matched.values() if i is not None}
    matches, left = [], []
    for segment in [s for s, found in matched.items() if found is None]:
        candidate = by_value.get(segment.value)
        generic = is_generic(segment.name)
        if candidate is not None and candidate not in taken and (generic or not any_name):
            matched[segment] = candidate
            if not generic:
                matches.append(f"{segment.name} as {classes[candidate].label.name}")
        else:
            left.append(segment.name)
    # 3. Findings for the user to check.
    doubts = (
        [f"segments matched to classes by their values: {', '.join(matches)}"] if matches else []
    )
    if left:
        shown = listed((_with_hint(name, classes) for name in left), SHOWN_VALUES)
        doubts.append(f"segments of no class, taken as background: {shown}")
    return matched, doubts


def _numbers_by_name(classes: Sequence[ClassValue]) -> dict[str, int]:
    """Return the index of the first class with each plain name, also of further segments."""
    numbers: dict[str, int] = {}
    for i, c in enumerate(classes):
        for name in (c.label.name, *c.segments):
            numbers.setdefault(plain_name(name), i)
    return numbers


def _nearest(name: str, classes: Sequence[ClassValue], cutoff: float = 0.6) -> str:
    """Return the class with the most similar name; "" for none."""
    numbers = _numbers_by_name(classes)
    near = difflib.get_close_matches(plain_name(name), numbers, n=1, cutoff=cutoff)
    return classes[numbers[near[0]]].label.name if near else ""


def _with_hint(name: str, classes: Sequence[ClassValue]) -> str:
    near = _nearest(name, classes, NEAR_NAME)
    return f"{name} (is it {near}? name it under its segments)" if near else name


def _refuse_unnamed(file: LabelFile) -> None:
    """Raise VolumeError for values without a segment in the header, instead of ignoring them."""
    layers = file.volume.array.reshape(-1, *file.volume.shape)
    for number, layer in enumerate(layers):
        named = {s.value for s in file.segments if s.layer == number}
        unnamed = [v for v in distinct_values(layer).tolist() if v and v not in named]
        if unnamed:
            shown = ", ".join(f"{v:g}" for v in unnamed[:SHOWN_VALUES])
            raise VolumeError(f"the file names no segment for its values {shown}; save it again")


def _refuse_tabled(file: LabelFile, left: Sequence[LabelledSegment]) -> None:
    """Raise VolumeError for names of a colour table without a class, as for values without one."""
    names = [s.name for s in left if s.is_tabled and file.mask(s).any()]
    if names:
        raise VolumeError(
            f"no class has the colour table's names {listed(names, SHOWN_VALUES)}; name each under "
            "the segments of its class, or call it background in the table"
        )


def _one_by_one(
    file: LabelFile, matched: dict[LabelledSegment, int | None], classes: Sequence[ClassValue]
) -> tuple[Labels, list[str]]:
    """Return labels in which later classes overwrite earlier ones, and the overlaps as doubts."""
    layers = file.volume.array.reshape(-1, *file.volume.shape)
    if len(layers) == 1:
        table = np.zeros(max(s.value for s in file.segments) + 1, dtype=np.uint8)
        for segment, index in matched.items():
            if index is not None:
                table[segment.value] = index + 1
        return table[layers[0].astype(np.uint32, copy=False)], []
    labels = np.zeros(file.volume.shape, dtype=np.uint8)
    doubts = []
    placed = ((index, segment) for segment, index in matched.items() if index is not None)
    for index, segment in sorted(placed, key=lambda pair: pair[0]):
        mask = file.mask(segment)
        counts = np.bincount(labels[mask], minlength=1)
        for other, count in enumerate(counts.tolist()):
            if count and other not in (0, index + 1):
                first, second = classes[other - 1].label.name, classes[index].label.name
                doubts.append(f"{first} and {second} share {count} voxels, given to {second}")
        labels[mask] = index + 1
    return labels, doubts


def _regions(
    file: LabelFile, matched: dict[LabelledSegment, int | None], classes: Sequence[ClassValue]
) -> tuple[Labels, list[str]]:
    """Return the index of the base value that stands for each voxel's regions, and doubts."""
    members = region_table(classes)  # (classes, 1 + base values)
    inside = np.zeros((len(classes), *file.volume.shape), dtype=bool)
    used = [False] * len(classes)
    for segment, index in matched.items():
        if index is not None:
            inside[index] |= file.mask(segment)
            used[index] = True
    labels = np.zeros(file.volume.shape, dtype=np.uint8)
    left = inside.any(axis=0)
    for column in range(1, members.shape[1]):
        fits = left & (inside == members[:, column, None, None, None]).all(axis=0)
        labels[fits] = column
        left &= ~fits
    count = int(np.count_nonzero(left))
    if not count:
        return labels, []
    # Combinations without a value of their own get the smallest value of their last region.
    for index in range(len(classes)):
        columns = np.flatnonzero(members[index])
        labels[left & inside[index]] = columns[0]
    return labels, [
        f"{count} voxels lie in a combination of regions that no value stands for; the later "
        "region decides"
    ]


def known_labels(
    found: ClassLabels,
    classes: Sequence[ClassValue],
    *,
    drawn: Sequence[str] | Literal["all"] | None,
    known: KnownPart,
) -> tuple[Labels, tuple[bool, ...] | None]:
    """Mark unannotated voxels as unknown.

    Args:
        drawn: Names of the annotated classes, or "all"; None infers them from the labels.
        known: Annotated part of the scan.

    Returns:
        Labels with `UNKNOWN` voxels, and whether each class was annotated, None if all were.

    Raises:
        VolumeError: If a name in `drawn` matches no class.
    """
    there = _drawn(found.drawn, classes, drawn)
    labels = found.labels
    if there is not None and not has_regions(classes):
        # A few voxels of a class that was not annotated completely carry no information.
        dropped = [i for i, is_drawn in enumerate(there, start=1) if not is_drawn]
        if np.isin(dropped, labels).any():
            labels = np.where(np.isin(labels, dropped), np.uint8(UNKNOWN), labels)
    if known == "slices":
        labels = only_slices(labels)
    elif known == "strokes":
        background = np.zeros(1, bool) if found.background is None else found.background
        labels = np.where((labels == 0) & ~background, np.uint8(UNKNOWN), labels)
    return labels, there


def _drawn(
    told: tuple[bool, ...] | None,
    classes: Sequence[ClassValue],
    given: Sequence[str] | Literal["all"] | None,
) -> tuple[bool, ...] | None:
    """Return whether each class was annotated, as the user states or as inferred."""
    if given is None:
        return told
    if given == "all":
        return None
    by_name = _numbers_by_name(classes)
    unknown = [name for name in given if plain_name(name) not in by_name]
    if unknown:
        near = _nearest(unknown[0], classes)
        hint = f" (near: {near})" if near else ""
        raise VolumeError(f"drawn names {unknown[0]!r}, which is no class{hint}")
    numbers = {by_name[plain_name(name)] for name in given}
    there = tuple(i in numbers for i in range(len(classes)))
    return None if all(there) else there


def only_slices(labels: Labels) -> Labels:
    """Mark slices without labels as unknown, along the axis with the largest share of them.

    Only slices between the first and the last labelled one count for the choice of the axis.
    """
    shares, used = [], []
    for axis in range(labels.ndim):
        others = tuple(a for a in range(labels.ndim) if a != axis)
        holds = ((labels > 0) & (labels != UNKNOWN)).any(axis=others)
        places = np.flatnonzero(holds)
        extent = places[-1] - places[0] + 1 if len(places) else 1
        shares.append(len(places) / extent)
        used.append(holds)
    axis = int(np.argmin(shares))  # on a tie the first axis, along which slices are stored
    marked = labels.copy()
    marked[(slice(None),) * axis + (~used[axis],)] = UNKNOWN
    return marked


def cut_classes(labels: Labels, classes: Sequence[ClassValue]) -> frozenset[int]:
    """Return the classes, from 1 on, that touch unknown voxels, so their extent is unknown.

    Args:
        labels: (D, H, W), with `UNKNOWN` voxels.
    """
    beside = ndimage.binary_dilation(labels == UNKNOWN)
    values = set(np.unique(labels[beside]).tolist()) - {0, UNKNOWN}
    table = lookup_table(classes)
    return frozenset(i for i, row in enumerate(table, start=1) if any(row[v] for v in values))
