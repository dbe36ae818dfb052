"""Pre-processed training cases, kept in memory or on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pumit.inference.automatic.segmentation import NetworkPlan, network_image
from pumit.preprocessing.network_axes import NetworkAxes
from pumit.preprocessing.resize import resize
from pumit.system.files import atomic_path, make_folder
from pumit.training.data.case import LabelledVolume, read_labelled
from pumit.training.data.classes import (
    UNKNOWN,
    ClassValue,
    base_values,
    has_regions,
    lookup_table,
)
from pumit.training.data.labelled_set import LabelledCase

CLASS_PLACES = 10_000  # sampled voxels per class from which patch centres are drawn
MEMORY_BYTES = 4 << 30  # a larger data set is kept on disk


@dataclass(frozen=True, eq=False)
class PreparedCase:
    """A case on the network's grid.

    Attributes:
        image: (C, d, h, w), float32.
        labels: (d, h, w), uint8; see `case.LabelledVolume`.
        places: Class, from 1 on, to a sample of its voxels, (n, 3); regions may share them.
        lowest: Minimum of the image, used as padding value.
        known: Sample of annotated voxels, (n, 3); None if all are.
        drawn: Annotated classes, bool (K,); None if all were.
    """

    name: str
    image: npt.NDArray[np.float32]
    labels: npt.NDArray[np.uint8]
    places: dict[int, npt.NDArray[np.int32]]
    lowest: float
    known: npt.NDArray[np.int32] | None = None
    drawn: npt.NDArray[np.bool_] | None = None


def prepare(
    case: LabelledVolume, plan: NetworkPlan, classes: Sequence[ClassValue] = ()
) -> PreparedCase:
    """Pre-process a case exactly as at inference; without regions, `classes` may be omitted."""
    axes = NetworkAxes.of(case.volume, plan.orientation)
    image, _ = network_image(case.volume, plan, axes)
    d, h, w = image.shape[1:]
    labels = resize_labels(axes.apply(case.labels), (d, h, w)).numpy()
    drawn = None if case.drawn is None else np.array(case.drawn)
    return _indexed(case.name, image.numpy(), labels, drawn, classes)


def _indexed(
    name: str,
    image: npt.NDArray[np.float32],
    labels: npt.NDArray[np.uint8],
    drawn: npt.NDArray[np.bool_] | None,
    classes: Sequence[ClassValue],
) -> PreparedCase:
    """Return a case with the sampled centres of patches."""
    places, known = _places(labels, classes), _known(labels)
    return PreparedCase(name, image, labels, places, float(image.min()), known, drawn)


def resize_labels(labels: npt.NDArray[np.uint8], shape: tuple[int, int, int]) -> Tensor:
    """Resample a label map (d, h, w), uint8, to another grid over the same box.

    Each class is interpolated separately and the largest value wins, which neither shifts borders
    nor creates classes between two others.
    """
    if labels.shape == shape:
        return torch.from_numpy(labels.copy())
    best = torch.full(shape, 0.0)
    out = torch.zeros(shape, dtype=torch.uint8)
    for value in np.unique(labels):
        share = resize(labels == value, shape)
        wins = share > best
        out[wins] = int(value)
        best = torch.maximum(best, share)
    return out


def _places(
    labels: npt.NDArray[np.uint8], classes: Sequence[ClassValue]
) -> dict[int, npt.NDArray[np.int32]]:
    """Return sampled voxels of each class or region that occurs."""
    rng = np.random.default_rng(0)
    if not has_regions(classes):
        found = np.setdiff1d(np.unique(labels), (0, UNKNOWN))
        return {int(c): _sample(np.argwhere(labels == c), rng) for c in found}
    regions = {}
    for number, members in enumerate(lookup_table(classes), start=1):
        inside = members[labels]
        if inside.any():
            regions[number] = _sample(np.argwhere(inside), rng)
    return regions


def _known(labels: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32] | None:
    """Return a sample of the annotated voxels; None if all are."""
    known = labels != UNKNOWN
    return None if known.all() else _sample(np.argwhere(known), np.random.default_rng(0))


def _sample(places: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int32]:
    if len(places) > CLASS_PLACES:
        places = places[rng.choice(len(places), CLASS_PLACES, replace=False)]
    return places.astype(np.int32)


def prepare_all(
    cases: Sequence[LabelledCase],
    classes: Sequence[ClassValue],
    plan: NetworkPlan,
    *,
    folder: Path,
    voxels: int,
    progress: Callable[[int], None] | None = None,
) -> list[PreparedCase]:
    """Pre-process cases in memory or, if they are too large, in memory-mapped files.

    Args:
        folder: Folder for the files, which a resumed run reuses.
        voxels: Approximate total number of voxels on the network's grid.

    Raises:
        VolumeError: If a case cannot be read any more.
        ExportError: If the files cannot be written.
    """
    is_kept_on_disk = voxels * (4 * plan.channels + 1) > MEMORY_BYTES
    prepared = []
    for number, case in enumerate(cases, start=1):
        if progress is not None:
            progress(number)
        if not is_kept_on_disk:
            prepared.append(prepare(read_labelled(case, classes), plan, classes))
            continue
        names = [c.label.name for c in classes]  # named segments are matched by them
        stamps = [stamp for p in case.files for stamp in (p.stat().st_mtime, p.stat().st_size)]
        content: list[Any] = [case.name, asdict(plan), base_values(classes), names, *stamps]
        content += [case.drawn, case.known, case.ignore_value]
        key = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
        prepared.append(_mapped(case, classes, plan, folder / key))
    return prepared


def _mapped(
    case: LabelledCase, classes: Sequence[ClassValue], plan: NetworkPlan, stem: Path
) -> PreparedCase:
    """Return a case with memory-mapped arrays, written if they are missing."""
    parts = ("image", "labels", "drawn")
    files = {part: stem.with_name(f"{stem.name}.{part}.npy") for part in parts}
    if not all(path.is_file() for path in files.values()):
        make_folder(stem.parent)
        made = prepare(read_labelled(case, classes), plan, classes)
        everything = np.ones(len(classes), dtype=bool)
        drawn = everything if made.drawn is None else made.drawn
        for part, array in zip(parts, (made.image, made.labels, drawn), strict=True):
            with atomic_path(files[part], durable=True) as temporary:
                np.save(temporary, array, allow_pickle=False)
    image, labels, drawn = (np.load(p, mmap_mode="r", allow_pickle=False) for p in files.values())
    return _indexed(case.name, image, labels, None if drawn.all() else np.array(drawn), classes)
