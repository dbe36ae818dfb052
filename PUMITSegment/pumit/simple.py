"""One call per job, for scripts: a mask from a click, labels from a model, a file from either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pumit.errors import PumitError, VolumeError
from pumit.segmentation import Algorithm, LabelMap, Segmentation
from pumit.system.optional import what_is_missing
from pumit.volume import Frame, Volume

if TYPE_CHECKING:
    from pumit.inference.interactive.segmenter import Segmenter

Mask = npt.NDArray[np.bool_]
Image = Volume | str | Path | npt.NDArray[np.generic]
Point = Sequence[float]


def segment(
    image: Image,
    points: Sequence[Point] = (),
    *,
    negative: Sequence[Point] = (),
    box: Sequence[Point] | None = None,
    frame: Frame = "LPS",
    spacing_mm: Sequence[float] | None = None,
    model: str | Path = "default",
    device: str = "auto",
) -> Mask:
    """Segment one structure by clicks and a box.

    For more than one answer on a scan use `InteractiveSession`, which reads and encodes it once.

    Args:
        image: A volume, a path as `Volume.read` takes it, or an array (D, H, W) or (H, W).
        points: Clicks inside of the structure, (N, 3).
        negative: Clicks outside of it, (N, 3).
        box: Two opposite corners of a box around it, (2, 3).
        frame: What the numbers are: LPS or RAS mm, or array indices (d, h, w).
        spacing_mm: Of an array: its voxel size in array order, mm.
        model: Installed model, or a checkpoint file.
        device: auto, cpu, cuda, cuda:1 or mps.

    Returns:
        Mask on the grid of the image, (D, H, W); (H, W) of an array of that shape.

    Raises:
        PromptError: If there is no prompt, or one lies outside; the message has the bounds.
        VolumeError: If the image cannot be used, or an array of slices has no spacing.
        CheckpointError: If there is no such model.
    """
    from pumit.inference.interactive.session import InteractiveSession

    volume = Volume.of(image, spacing_mm)
    session = InteractiveSession(_segmenter(str(model), device))
    session.set_volume(volume)
    if box is not None:
        lower, upper = box
        session.add_box(lower, upper, frame=frame)
    for given, is_positive in ((points, True), (negative, False)):
        for point in given:
            session.add_point(point, is_positive, frame=frame)
    mask = session.predict()
    return mask[0] if isinstance(image, np.ndarray) and image.ndim == 2 else mask


def predict(
    image: Image,
    model: str | Path,
    *,
    spacing_mm: Sequence[float] | None = None,
    device: str = "auto",
) -> LabelMap:
    """Segment all that an automatic model knows.

    Args:
        image: A volume, a path as `Volume.read` takes it, or an array (D, H, W).
        model: Installed model, or a checkpoint file of a training of one's own.
        spacing_mm: Of an array: its voxel size in array order, mm.
        device: auto, cpu, cuda, cuda:1 or mps.

    Returns:
        Labels on the grid of the image, with the names of the classes; `save` writes them.

    Raises:
        VolumeError: If the image cannot be used, or an array of slices has no spacing.
        CheckpointError: If there is no such model, or it is no automatic one.
        PumitError: If PyTorch is not installed.
    """
    try:
        from pumit.inference.automatic.segmentation import load_automatic
    except ImportError as error:
        raise PumitError(what_is_missing(error) or str(error)) from error
    return load_automatic(model, device).segment(Volume.of(image, spacing_mm))


def save(
    result: Mask | Mapping[str, Mask] | LabelMap,
    image: Image,
    path: str | Path,
    *,
    name: str = "Segment",
    spacing_mm: Sequence[float] | None = None,
) -> None:
    """Write a mask, several by their names, or labels, in the format of the file name's suffix.

    Args:
        result: Bool masks (D, H, W), or the labels of `predict`.
        image: Scan that they belong to, as it was segmented.
        path: `.dcm` (DICOM-SEG; the scan has to be DICOM), `.seg.nrrd`, `.nii.gz` and others; see
            `pumit.export.write.write_segmentation`.
        name: Of a single mask. Known names, such as liver, also give codes and colour.
        spacing_mm: Of an array: its voxel size in array order, mm.

    Raises:
        ExportError: If a mask is empty or missing, or the file cannot be written.
        VolumeError: If the image cannot be used, or a mask is on another grid.
    """
    from pumit import __version__
    from pumit.export.classes import class_terminology, segments_of
    from pumit.export.write import write_segmentation
    from pumit.segmentation import ClassLabel

    volume = Volume.of(image, spacing_mm)
    if isinstance(result, LabelMap):
        segments = segments_of(result)
    else:
        masks = dict(result) if isinstance(result, Mapping) else {name: result}
        meanings = class_terminology([ClassLabel(label) for label in masks])
        grids = [np.asarray(mask, dtype=bool).reshape(_grid(mask)) for mask in masks.values()]
        segments = tuple(
            meaning.segment(label, mask)
            for meaning, label, mask in zip(meanings, masks, grids, strict=True)
        )
    algorithm = Algorithm("PUMIT", __version__)
    write_segmentation(Segmentation(volume, segments, algorithm), path)


def _grid(mask: Mask) -> tuple[int, ...]:
    """Shape of a mask as a volume has it: a 2D mask is one slice."""
    shape = np.shape(mask)
    if len(shape) not in (2, 3):
        raise VolumeError(f"A mask has shape (D, H, W) or (H, W), got {shape}.")
    return (1,) * (3 - len(shape)) + shape


@lru_cache(maxsize=2)
def _segmenter(model: str, device: str) -> Segmenter:
    """Load a model, or take it from an earlier call."""
    from pumit.inference.interactive.segmenter import load_segmenter

    return load_segmenter(model, device=device)
