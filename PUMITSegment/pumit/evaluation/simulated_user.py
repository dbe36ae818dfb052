"""Simulated user: clicks in the largest error or human-like clicks, boxes, strokes and lassos."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.evaluation.click_scores import GOALS, clicks_to
from pumit.evaluation.metrics import dice
from pumit.evaluation.segmentation_metrics import surface_dice
from pumit.geometry import Triple
from pumit.gestures.prompts import lasso_prompts, scribble_prompts
from pumit.inference.automatic.components import largest_component
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.io.labels.label_source import read_labels
from pumit.preprocessing.network_axes import depth_first
from pumit.prompts import BoxPrompt, Prompt
from pumit.volume import Volume

Mask = npt.NDArray[np.bool_]
Corner = npt.NDArray[np.intp]
LOOSE = 0.1  # margin of a loose box on each side, relative to its size
MIN_VOXELS = 200
# Users aim at the error, not exactly at its middle.
JITTER_MM = 3.0


def box_prompt(volume: Volume, low: Corner, high: Corner) -> BoxPrompt:
    """Return a box from voxel `low` to `high`, (d, h, w), clipped to the volume."""
    limit = np.array(volume.shape) - 1
    sides = np.clip(np.stack((low, high)), 0, limit)
    # All eight corners: in an oblique volume, two would define another box.
    indices = [[sides[s, axis] for axis, s in enumerate(c)] for c in product((0, 1), repeat=3)]
    corners = volume.index_to_world(np.array(indices))
    return BoxPrompt(tuple((x, y, z) for x, y, z in corners.tolist()))


def tight_box(volume: Volume, target: Mask) -> list[Prompt]:
    """Return the bounding box along the volume's axes, grown by one voxel in-plane."""
    low, high = _bounds(target)
    grow = np.ones(3, dtype=int)
    grow[depth_first(volume.spacing_mm, target.shape)[0]] = 0
    return [box_prompt(volume, low - grow, high + grow)]


def loose_box(volume: Volume, target: Mask) -> list[Prompt]:
    """Return the bounding box grown on each side by a tenth of its size, at least one voxel."""
    low, high = _bounds(target)
    grow = np.maximum(np.round(LOOSE * (high - low + 1)).astype(int), 1)
    return [box_prompt(volume, low - grow, high + grow)]


def flat_box(volume: Volume, target: Mask) -> list[Prompt]:
    """Return a box on the slice with the largest target area, grown by one voxel."""
    axis, index = largest_slice(volume, target)
    low, high = _bounds(np.take(target, [index], axis))
    grow = np.ones(3, dtype=int)
    grow[axis] = 0
    low[axis] = high[axis] = index
    return [box_prompt(volume, low - grow, high + grow)]


def scribble(volume: Volume, target: Mask) -> list[Prompt]:
    """Return a stroke along the skeleton of the target's largest component on that slice."""
    from skimage.morphology import skeletonize

    axis, index = largest_slice(volume, target)
    piece = _largest_piece(np.take(target, index, axis))
    line = skeletonize(piece)
    drawn = np.expand_dims(line if line.any() else piece, axis)
    return scribble_prompts(drawn, _start(axis, index), volume, is_positive=True)


def lasso(volume: Volume, target: Mask) -> list[Prompt]:
    """Return an outline of the target's largest component on that slice."""
    axis, index = largest_slice(volume, target)
    drawn = np.expand_dims(_largest_piece(np.take(target, index, axis)), axis)
    return lasso_prompts(drawn, _start(axis, index), volume, is_positive=True)


GESTURES: Mapping[str, Callable[[Volume, Mask], list[Prompt]]] = {
    "box": tight_box,
    "loose_box": loose_box,
    "flat_box": flat_box,
    "scribble": scribble,
    "lasso": lasso,
}


def largest_slice(volume: Volume, target: Mask) -> tuple[int, int]:
    """Return the slice axis, and the index of the slice with the largest target area."""
    axis = depth_first(volume.spacing_mm, target.shape)[0]
    others = tuple(a for a in range(3) if a != axis)
    return axis, int(target.sum(axis=others).argmax())


def _largest_piece(mask: Mask) -> Mask:
    labels, _ = ndimage.label(mask)
    return np.asarray(labels == 1 + int(np.argmax(np.bincount(labels.ravel())[1:])))


def _start(axis: int, index: int) -> tuple[int, int, int]:
    d, h, w = (index if a == axis else 0 for a in range(3))
    return d, h, w


def _bounds(mask: Mask) -> tuple[Corner, Corner]:
    window = ndimage.find_objects(mask.astype(np.uint8))[0]
    return np.array([s.start for s in window]), np.array([s.stop - 1 for s in window])


def depth_in_piece(
    mask: Mask, spacing_mm: tuple[float, float, float]
) -> tuple[npt.NDArray[np.float64], list[int]]:
    """Return the depth, mm, in the largest component's bounding box, and the box's first voxel."""
    piece = largest_component(mask)
    window = ndimage.find_objects(piece.astype(np.uint8))[0]
    # No padding along an axis with a single voxel, or all of a planar image would be border.
    rim = [int(n > 1) for n in mask.shape]
    padded = np.pad(piece[window], [(r, r) for r in rim])
    inner = tuple(slice(r, n - r) for r, n in zip(rim, padded.shape, strict=True))
    depth = ndimage.distance_transform_edt(padded, sampling=spacing_mm)[inner]
    return depth, [part.start for part in window]


def deepest(mask: Mask, spacing_mm: tuple[float, float, float]) -> tuple[int, int, int]:
    """Return the voxel of the largest component farthest from its border, in mm."""
    depth, start = depth_in_piece(mask, spacing_mm)
    local = np.unravel_index(int(depth.argmax()), depth.shape)
    d, h, w = (int(i) + s for i, s in zip(local, start, strict=True))
    return d, h, w


def targets_of(labels: npt.NDArray[Any], count: int) -> list[int]:
    """Return the largest labels of at least `MIN_VOXELS` voxels."""
    values, sizes = np.unique(labels[labels > 0], return_counts=True)
    return [int(values[i]) for i in np.argsort(-sizes) if sizes[i] >= MIN_VOXELS][:count]


def simulate_clicks(
    session: InteractiveSession, target: Mask, clicks: int, rng: np.random.Generator | None = None
) -> Iterator[tuple[Mask, float]]:
    """Simulate successive clicks on the error.

    Args:
        session: Session without prompts.
        clicks: Maximum number of clicks; fewer if nothing is left to correct.
        rng: If given, clicks are human-like: at a random voxel of the error, moved by at most
            `JITTER_MM`. Otherwise each is in the middle of the error's largest component.

    Yields:
        The mask after each click, and the seconds it took.
    """
    volume = session.volume
    mask = np.zeros_like(target)
    for _ in range(clicks):
        missing, excess = target & ~mask, mask & ~target
        if not missing.any() and not excess.any():
            return
        if rng is None:
            sizes = [int(largest_component(m).sum()) if m.any() else 0 for m in (missing, excess)]
            is_positive = sizes[0] >= sizes[1]
            index = deepest(missing if is_positive else excess, volume.spacing_mm)
        else:
            wrong = np.argwhere(missing | excess)
            d, h, w = wrong[rng.integers(len(wrong))].tolist()
            index, is_positive = (d, h, w), bool(target[d, h, w])
        x, y, z = volume.index_to_world(index).tolist()
        point = (x, y, z)
        if rng is not None:
            point = moved_within(volume, target == is_positive, point, JITTER_MM, rng)
        started = time.perf_counter()
        session.add_point(point, positive=is_positive)
        mask = session.predict()
        yield mask, time.perf_counter() - started


def moved_within(
    volume: Volume, side: Mask, point_lps: Triple, jitter_mm: float, rng: np.random.Generator
) -> Triple:
    """Move a click in a random direction; reduce the shift until it stays in a mask.

    Args:
        side: Allowed voxels, (D, H, W).
    """
    direction = rng.normal(size=3)
    shift = jitter_mm * direction / np.linalg.norm(direction)
    while np.linalg.norm(shift) > 0.1:
        moved = np.asarray(point_lps) + shift
        index = np.round(volume.world_to_index(moved)).astype(int)
        if ((index >= 0) & (index < volume.shape)).all() and side[tuple(index)]:
            x, y, z = moved.tolist()
            return x, y, z
        shift = shift / 2
    return point_lps


def dice_after_clicks(
    session: InteractiveSession, target: Mask, clicks: int, rng: np.random.Generator | None = None
) -> tuple[list[float], list[float]]:
    """Return Dice after each click (1 once nothing is left to correct), and seconds per click."""
    scores: list[float] = []
    seconds: list[float] = []
    for mask, second in simulate_clicks(session, target, clicks, rng):
        scores.append(dice(mask, target))
        seconds.append(second)
    return scores + [1.0] * (clicks - len(scores)), seconds


def simulate_gesture(session: InteractiveSession, target: Mask, gesture: str) -> Mask:
    """Return the mask for one of `GESTURES` drawn for the target, in a session without prompts."""
    for prompt in GESTURES[gesture](session.volume, target):
        session.add_prompt(prompt)
    return session.predict()


def read_case(folder: Path) -> tuple[Volume, npt.NDArray[Any]]:
    """Return a case's scan, and its labels (D, H, W) on the same grid.

    Raises:
        VolumeError: If a file cannot be read, or image and label map are not on one grid.
    """
    volume = Volume.read(folder / "image.nii.gz")
    return volume, read_labels(folder / "label.nii.gz", volume).volume.array.reshape(volume.shape)


def evaluate_case(
    segmenter: Segmenter,
    folder: Path,
    *,
    clicks: int = 5,
    until: int = 0,
    targets: int = 3,
    gestures: Sequence[str] = (),
    tolerance_mm: float | None = None,
    human: bool = False,
) -> Iterator[dict[str, Any]]:
    """Evaluate the targets of one case: Dice of gestures, Dice and NSD after each click.

    Args:
        folder: Folder with `image.nii.gz` and `label.nii.gz`.
        clicks: Number of scored clicks per target.
        until: Continue clicking up to this many clicks until the highest goal is reached.
        gestures: Further `GESTURES` in addition to the box, each scored separately.
        tolerance_mm: Tolerance of the normalised surface distance; None for no NSD. 0 means one
            in-plane voxel, for scans with unreliable spacing.
        human: Whether to score human-like prompts, too: a loose box, and random clicks in the
            error.

    Raises:
        VolumeError: If a file cannot be read, or image and label map are not on one grid.
    """
    volume, labels = read_case(folder)
    session = InteractiveSession(segmenter)
    session.set_volume(volume)
    tolerance = sorted(volume.spacing_mm)[1] if tolerance_mm == 0 else tolerance_mm
    for label in targets_of(labels, targets):
        target = labels == label
        # 1. Each gesture separately.
        found: dict[str, float] = {}
        for gesture in ("box", *gestures):
            session.reset()
            found[gesture] = round(dice(simulate_gesture(session, target, gesture), target), 4)
        # 2. Successive clicks, each in the largest error.
        session.reset()
        overlaps, surfaces, seconds = [], [], []
        for mask, second in simulate_clicks(session, target, max(clicks, until)):
            overlaps.append(round(dice(mask, target), 4))
            seconds.append(second)
            if tolerance is not None and len(overlaps) <= clicks:
                nsd = surface_dice(mask, target, volume.spacing_mm, tolerance_mm=tolerance)
                surfaces.append(round(nsd, 4))
            if len(overlaps) >= clicks and clicks_to(overlaps, max(GOALS)) is not None:
                break
        # 3. Build the row.
        unused = [1.0] * (clicks - len(overlaps))  # nothing is left to click at
        row: dict[str, Any] = {
            "case": folder.name,
            "label": label,
            "voxels": int(target.sum()),
            "box": found.pop("box"),
            "clicks": overlaps[:clicks] + unused,
            "seconds": round(float(np.median(seconds)), 3) if seconds else 0.0,
        }
        if until > clicks:
            row["until"] = overlaps + unused
        if found:
            row["gestures"] = found
        if tolerance is not None:
            row["nsd"] = surfaces + unused
        # 4. Human-like prompts, seeded by label so that every model gets the same first click.
        if human:
            session.reset()
            row["human_box"] = round(
                dice(simulate_gesture(session, target, "loose_box"), target), 4
            )
            session.reset()
            rng = np.random.default_rng(label)
            row["human"] = [
                round(value, 4) for value in dice_after_clicks(session, target, clicks, rng)[0]
            ]
        yield row
