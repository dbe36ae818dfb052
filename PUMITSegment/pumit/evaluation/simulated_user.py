"""The simulated user: clicks in the largest error, or one box, on labelled cases."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.errors import VolumeError
from pumit.evaluation.metrics import dice
from pumit.inference.segmenter import Segmenter
from pumit.inference.session import InteractiveSession
from pumit.io.label_file import is_same_grid
from pumit.preprocessing.fields import depth_first
from pumit.prompts import BoxPrompt, Prompt
from pumit.volume import Triple, Volume

Mask = npt.NDArray[np.bool_]
MIN_VOXELS = 200


def largest(mask: Mask) -> Mask:
    """Largest connected piece of a mask."""
    labels, count = ndimage.label(mask)
    if count <= 1:
        return mask
    return np.asarray(labels == 1 + int(np.argmax(np.bincount(labels.ravel())[1:])))


def deepest(mask: Mask, spacing_mm: tuple[float, float, float]) -> tuple[int, int, int]:
    """Voxel of the largest piece that is farthest from its border, in millimetres."""
    piece = largest(mask)
    window = ndimage.find_objects(piece.astype(np.uint8))[0]
    # Beyond a planar image there is nothing: its one slice does not make all of it border.
    rim = [int(n > 1) for n in mask.shape]
    padded = np.pad(piece[window], [(r, r) for r in rim])
    depth = ndimage.distance_transform_edt(padded, sampling=spacing_mm)
    local = np.unravel_index(int(depth.argmax()), depth.shape)
    d, h, w = (int(i) - r + s.start for i, r, s in zip(local, rim, window, strict=True))
    return d, h, w


def targets_of(labels: npt.NDArray[Any], count: int) -> list[int]:
    """The largest labels of at least `MIN_VOXELS` voxels."""
    values, sizes = np.unique(labels[labels > 0], return_counts=True)
    return [int(values[i]) for i in np.argsort(-sizes) if sizes[i] >= MIN_VOXELS][:count]


class Clickable(Protocol):
    """What the simulated user works on: a session, or something that stands before one."""

    @property
    def volume(self) -> Volume:
        """The scan, on whose grid masks are."""

    def add_point(self, point_lps: Triple, *, positive: bool = True) -> None:
        """Click."""

    def add_prompt(self, prompt: Prompt) -> None:
        """Draw a box."""

    def predict(self) -> Mask:
        """Answer all prompts so far."""


def clicked(session: Clickable, target: Mask, clicks: int) -> Iterator[tuple[Mask, float]]:
    """Click at the largest error again and again.

    Args:
        session: Without prompts.
        target: The true mask, on the volume's grid.
        clicks: How often; fewer where nothing is left to correct.

    Yields:
        The mask after each click, and the seconds that it took.
    """
    spacing = session.volume.spacing_mm
    mask = np.zeros_like(target)
    for _ in range(clicks):
        missing, excess = target & ~mask, mask & ~target
        if not missing.any() and not excess.any():
            return
        sizes = [int(largest(m).sum()) if m.any() else 0 for m in (missing, excess)]
        is_positive = sizes[0] >= sizes[1]
        d, h, w = deepest(missing if is_positive else excess, spacing)
        started = time.perf_counter()
        x, y, z = session.volume.index_to_world((d, h, w)).tolist()
        session.add_point((x, y, z), positive=is_positive)
        mask = session.predict()
        yield mask, time.perf_counter() - started


def click_until(session: Clickable, target: Mask, clicks: int) -> tuple[list[float], list[float]]:
    """Dice after each click, and the seconds each took; 1 where nothing is left to click at."""
    scores: list[float] = []
    seconds: list[float] = []
    for mask, second in clicked(session, target, clicks):
        scores.append(dice(mask, target))
        seconds.append(second)
    return scores + [1.0] * (clicks - len(scores)), seconds


def boxed(session: Clickable, target: Mask) -> Mask:
    """The answer to one tight box along the volume's axes, grown by a voxel in-plane."""
    window = ndimage.find_objects(target.astype(np.uint8))[0]
    grow = np.ones(3, dtype=int)
    grow[depth_first(session.volume.spacing_mm, target.shape)[0]] = 0
    low = np.maximum(np.array([s.start for s in window]) - grow, 0)
    high = np.minimum(np.array([s.stop for s in window]) + grow, target.shape) - 1
    # Eight corners: in an oblique volume two of them would be another box.
    extremes = np.stack((low, high))
    indices = [
        [extremes[side, axis] for axis, side in enumerate(s)] for s in product((0, 1), repeat=3)
    ]
    corners = session.volume.index_to_world(np.array(indices))
    session.add_prompt(BoxPrompt(tuple((x, y, z) for x, y, z in corners.tolist())))
    return session.predict()


def box_score(session: Clickable, target: Mask) -> float:
    """Dice of `boxed`."""
    return dice(boxed(session, target), target)


def labels_on(volume: Volume, label: Volume) -> npt.NDArray[Any]:
    """The labels, (D, H, W), of a label map that lies on a volume's grid.

    Raises:
        VolumeError: If it lies on another grid.
    """
    if label.channels != 1 or not is_same_grid(volume, label):
        raise VolumeError(
            f"A label map of {label.shape} voxels does not lie on the grid of its image of "
            f"{volume.shape}; resample it."
        )
    return label.array.reshape(volume.shape)


def read_case(folder: Path) -> tuple[Volume, npt.NDArray[Any]]:
    """A case's scan, and its labels (D, H, W) on the same grid.

    Raises:
        VolumeError: If a file cannot be read, or image and label map are not on one grid.
    """
    volume = Volume.read(folder / "image.nii.gz")
    return volume, labels_on(volume, Volume.read(folder / "label.nii.gz"))


def evaluate_case(
    segmenter: Segmenter, folder: Path, *, clicks: int = 5, targets: int = 3
) -> Iterator[dict[str, Any]]:
    """Rows of one case: box Dice, Dice after each click, median seconds per click.

    Raises:
        VolumeError: If a file cannot be read, or image and label map are not on one grid.
    """
    volume, labels = read_case(folder)
    session = InteractiveSession(segmenter)
    session.set_volume(volume)
    for label in targets_of(labels, targets):
        target = labels == label
        session.reset()
        box = box_score(session, target)
        session.reset()
        scores, seconds = click_until(session, target, clicks)
        yield {
            "case": folder.name,
            "label": label,
            "voxels": int(target.sum()),
            "box": round(box, 4),
            "clicks": [round(s, 4) for s in scores],
            "seconds": round(float(np.median(seconds)), 3) if seconds else 0.0,
        }


def group_of(case: str) -> str:
    """Modality and source of a case by its name: `mr_acdc` of mr_acdc_patient001_frame01."""
    return "_".join(case.split("_")[:2])


def means_of_groups(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """`means` of all cases with one modality and source, by `group_of`."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(group_of(row["case"]), []).append(row)
    return {name: means(groups[name]) for name in sorted(groups)}


def means(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Means in which every case weighs the same, whatever its number of targets.

    Args:
        rows: Of `evaluate_case`, at least one.

    Returns:
        Numbers of cases and targets, Dice from a box and after each click, and the median of the
        seconds where the rows tell them.
    """
    by_case: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_case.setdefault(row["case"], []).append(row)

    def mean(values: dict[str, list[float]]) -> float:
        return round(float(np.mean([np.mean(v) for v in values.values()])), 3)

    out: dict[str, float] = {"cases": len(by_case), "targets": len(rows)}
    out["box"] = mean({c: [r["box"] for r in v] for c, v in by_case.items()})
    for i in range(len(rows[0]["clicks"])):
        out[f"dice@{i + 1}"] = mean({c: [r["clicks"][i] for r in v] for c, v in by_case.items()})
    if all("seconds" in row for row in rows):
        out["seconds"] = round(float(np.median([r["seconds"] for r in rows])), 3)
    return out
