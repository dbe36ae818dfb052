"""Known voxels of a case whose labels were drawn in part: some classes, slices or strokes."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.errors import VolumeError
from pumit.training.data.class_matching import ClassLabels, plain_name
from pumit.training.data.classes import UNKNOWN, ClassValue, has_regions, lookup_table
from pumit.training.recipes.labelled import KnownPart

Labels = npt.NDArray[np.uint8]


def known_labels(
    found: ClassLabels,
    classes: Sequence[ClassValue],
    *,
    drawn: Sequence[str] | Literal["all"] | None,
    known: KnownPart,
) -> tuple[Labels, tuple[bool, ...] | None]:
    """Mark what is not known.

    Args:
        drawn: Names of the classes that were drawn in it, or "all"; None for what the labels tell.
        known: Part of the scan of which the labels tell what is there.

    Returns:
        Labels, `UNKNOWN` where that is not known; and whether each class was drawn, None for all.

    Raises:
        VolumeError: If a name is that of no class.
    """
    there = _drawn(found.drawn, classes, drawn)
    labels = found.labels
    if there is not None and not has_regions(classes):
        # Of a class that was not drawn as a whole, a few voxels tell nothing.
        dropped = [i for i, is_drawn in enumerate(there, start=1) if not is_drawn]
        if np.isin(dropped, labels).any():
            labels = np.where(np.isin(labels, dropped), np.uint8(UNKNOWN), labels)
    if known == "slices":
        labels = _only_slices(labels)
    elif known == "strokes":
        background = np.zeros(1, bool) if found.background is None else found.background
        labels = np.where((labels == 0) & ~background, np.uint8(UNKNOWN), labels)
    return labels, there


def _drawn(
    told: tuple[bool, ...] | None,
    classes: Sequence[ClassValue],
    given: Sequence[str] | Literal["all"] | None,
) -> tuple[bool, ...] | None:
    """Return whether each class was drawn: as the user says, else as the labels tell."""
    if given is None:
        return told
    if given == "all":
        return None
    by_name = {
        plain_name(name): i for i, c in enumerate(classes) for name in (c.label.name, *c.segments)
    }
    unknown = [name for name in given if plain_name(name) not in by_name]
    if unknown:
        near = difflib.get_close_matches(plain_name(unknown[0]), by_name, n=1)
        hint = f" (near: {classes[by_name[near[0]]].label.name})" if near else ""
        raise VolumeError(f"drawn names {unknown[0]!r}, which is no class{hint}")
    numbers = {by_name[plain_name(name)] for name in given}
    there = tuple(i in numbers for i in range(len(classes)))
    return None if all(there) else there


def _only_slices(labels: Labels) -> Labels:
    """Labels of the slices that hold any, along the axis on which most are left out."""
    shares, used = [], []
    for axis in range(labels.ndim):
        others = tuple(a for a in range(labels.ndim) if a != axis)
        holds = ((labels > 0) & (labels != UNKNOWN)).any(axis=others)
        places = np.flatnonzero(holds)
        extent = places[-1] - places[0] + 1 if len(places) else 1
        shares.append(len(places) / extent)
        used.append(holds)
    axis = int(np.argmin(shares))  # of equal ones the first, as slices are stored
    marked = labels.copy()
    marked[(slice(None),) * axis + (~used[axis],)] = UNKNOWN
    return marked


def cut_classes(labels: Labels, classes: Sequence[ClassValue]) -> frozenset[int]:
    """Classes, from 1 on, that touch what is unknown: where they end is not known.

    Args:
        labels: (D, H, W), `UNKNOWN` where that is not known.
    """
    beside = ndimage.binary_dilation(labels == UNKNOWN)
    values = set(np.unique(labels[beside]).tolist()) - {0, UNKNOWN}
    table = lookup_table(classes)
    return frozenset(i for i, row in enumerate(table, start=1) if any(row[v] for v in values))
