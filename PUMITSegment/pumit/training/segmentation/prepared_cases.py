"""Pre-processed training cases, kept in memory or on disk."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pumit.inference.automatic.segmentation import NetworkPlan, network_image
from pumit.preprocessing.network_axes import NetworkAxes
from pumit.preprocessing.resize import resize
from pumit.training.data.case import LabelledVolume, read_labelled
from pumit.training.data.classes import (
    UNKNOWN,
    ClassValue,
    has_regions,
    lookup_table,
)
from pumit.training.data.labelled_set import LabelledCase
from pumit.training.data.volume_cache import VolumeCache

CLASS_PLACES = 10_000  # sampled voxels per class from which patch centres are drawn
MEMORY_BYTES = 4 << 30  # a larger data set is kept on disk


@dataclass(frozen=True, eq=False)
class PreparedCase:
    """A case on the network's grid.

    Attributes:
        stored_image: (C, d, h, w), float32, or its file.
        stored_labels: (d, h, w), uint8, or its file; see `case.LabelledVolume`.
        places: Class, from 1 on, to a sample of its voxels, (n, 3); regions may share them.
        lowest: Minimum of the image, used as padding value.
        known: Sample of annotated voxels, (n, 3); None if all are.
        drawn: Annotated classes, bool (K,); None if all were.
    """

    name: str
    stored_image: npt.NDArray[np.float32] | Path
    stored_labels: npt.NDArray[np.uint8] | Path
    places: dict[int, npt.NDArray[np.int32]]
    lowest: float
    known: npt.NDArray[np.int32] | None = None
    drawn: npt.NDArray[np.bool_] | None = None

    @property
    def image(self) -> npt.NDArray[np.float32]:
        """Image (C, d, h, w)."""
        return _opened(self.stored_image)

    @property
    def labels(self) -> npt.NDArray[np.uint8]:
        """Labels (d, h, w)."""
        return _opened(self.stored_labels)


def _opened(stored: npt.NDArray[Any] | Path) -> npt.NDArray[Any]:
    # A map holds a file handle, of which a system allows a few hundred: none is kept.
    if not isinstance(stored, Path):
        return stored
    array: npt.NDArray[Any] = np.load(stored, mmap_mode="r", allow_pickle=False)
    return array


def prepare(
    case: LabelledVolume, plan: NetworkPlan, classes: Sequence[ClassValue] = ()
) -> PreparedCase:
    """Pre-process a case exactly as at inference; without regions, `classes` may be omitted."""
    made = _on_grid(case, plan)
    return _indexed(case.name, made["image"], made["labels"], made.get("drawn"), classes)


def _on_grid(case: LabelledVolume, plan: NetworkPlan) -> dict[str, npt.NDArray[Any]]:
    axes = NetworkAxes.of(case.volume, plan.orientation)
    image, _ = network_image(case.volume, plan, axes)
    d, h, w = image.shape[1:]
    labels = resize_labels(axes.apply(case.labels), (d, h, w))
    made = {"image": image.numpy(), "labels": labels.numpy()}
    return made if case.drawn is None else {**made, "drawn": np.array(case.drawn)}


def _indexed(
    name: str,
    stored_image: npt.NDArray[np.float32] | Path,
    stored_labels: npt.NDArray[np.uint8] | Path,
    drawn: npt.NDArray[np.bool_] | None,
    classes: Sequence[ClassValue],
) -> PreparedCase:
    """Return a case with the sampled centres of patches."""
    labels = _opened(stored_labels)
    known = labels != UNKNOWN
    return PreparedCase(
        name,
        stored_image,
        stored_labels,
        _places(labels, classes),
        float(_opened(stored_image).min()),
        None if known.all() else _sample(np.argwhere(known), np.random.default_rng(0)),
        drawn,
    )


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
        folder: Folder of the run for the files, which a resumed run reuses.
        voxels: Approximate total number of voxels on the network's grid.

    Raises:
        VolumeError: If a case cannot be read any more.
        ExportError: If the files cannot be written.
    """
    cache = None
    if voxels * (4 * plan.channels + 1) > MEMORY_BYTES:
        rows = [c.as_row() for c in classes]
        cache = VolumeCache(folder, {"plan": asdict(plan), "classes": rows})
    prepared = []
    for number, case in enumerate(cases, start=1):
        if progress is not None:
            progress(number)
        if cache is None:
            prepared.append(prepare(read_labelled(case, classes), plan, classes))
            continue
        make = partial(lambda case: _on_grid(read_labelled(case, classes), plan), case)
        # A file may hold several cases.
        parts: list[Any] = [*map(str, (*case.images, *case.labels))]
        parts += [case.drawn, case.known, case.ignore_value]
        files = cache.files(case.files, make, part=json.dumps(parts))
        drawn = np.load(files["drawn"], allow_pickle=False) if "drawn" in files else None
        prepared.append(_indexed(case.name, files["image"], files["labels"], drawn, classes))
    return prepared
