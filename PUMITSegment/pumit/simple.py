"""One-call functions for scripts: segment from prompts, predict labels, save the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pumit.errors import PromptError, PumitError, VolumeError
from pumit.segmentation import Algorithm, AlgorithmKind, LabelMap, Segmentation
from pumit.system.files import changed_ns
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
    """Segment one structure from clicks and a box.

    To segment a scan more than once, use `InteractiveSession`: it reads and encodes the scan once.

    Args:
        image: A volume, a path as accepted by `Volume.read`, or an array (D, H, W) or (H, W).
        points: Clicks inside the structure, (N, 3).
        negative: Clicks outside the structure, (N, 3).
        box: Two opposite corners of a box around the structure, (2, 3).
        frame: Coordinate system of the prompts: LPS or RAS mm, or array indices (d, h, w).
        spacing_mm: Voxel size of an array in array order, mm.
        model: Name of an installed model, or a checkpoint file.
        device: auto, cpu, cuda, cuda:1 or mps.

    Returns:
        Mask on the image's grid, (D, H, W); (H, W) for an array of that shape.

    Raises:
        PromptError: If there is no prompt, or one is outside the image; the message gives the
            bounds.
        VolumeError: If the image cannot be used, or a 3D array is given without spacing.
        CheckpointError: If the model does not exist.
    """
    from pumit.inference.interactive.session import InteractiveSession

    volume = Volume.of(image, spacing_mm)
    session = InteractiveSession(_segmenter(str(model), device))
    session.set_volume(volume)
    if box is not None:
        if len(box) != 2:
            raise PromptError(f"A box needs two opposite corners, got {len(box)}.")
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
    """Segment all classes of an automatic model.

    Args:
        image: A volume, a path as accepted by `Volume.read`, or an array (D, H, W).
        model: Name of an installed model, or a checkpoint file from your own training.
        spacing_mm: Voxel size of an array in array order, mm.
        device: auto, cpu, cuda, cuda:1 or mps.

    Returns:
        Label map on the image's grid, with class names; pass it to `save` to write it.

    Raises:
        VolumeError: If the image cannot be used, or a 3D array is given without spacing.
        CheckpointError: If the model does not exist or is not an automatic model.
        PumitError: If PyTorch is not installed.
    """
    try:
        from pumit.inference.automatic.segmentation import load_automatic
    except ImportError as error:
        raise PumitError(what_is_missing(error) or str(error)) from error
    volume = Volume.of(image, spacing_mm)
    found = load_automatic(model, device).segment(volume)
    if isinstance(image, np.ndarray):
        return found
    # Its place only: no name of a file, and no files that were unpacked from a zip.
    nothing = np.broadcast_to(np.uint8(0), volume.shape)
    return replace(found, scan=replace(volume, array=nothing, source=None, path=None))


def save(
    result: Mask | Mapping[str, Mask] | LabelMap,
    image: Image,
    path: str | Path,
    *,
    name: str = "Segment",
    spacing_mm: Sequence[float] | None = None,
) -> None:
    """Write a mask, several named masks, or a label map; the file suffix selects the format.

    In a label map file, masks get the values 1, 2, ..., and classes of a label map keep theirs.

    Args:
        result: Bool masks (D, H, W), or the label map from `predict`.
        image: The scan that was segmented.
        path: `.dcm` (DICOM-SEG; the scan has to be DICOM), `.seg.nrrd`, `.nii.gz` and others; see
            `pumit.export.write.write_segmentation`.
        name: Name of a single mask. Known names, such as liver, also set codes and colour.
        spacing_mm: Voxel size of an array in array order, mm.

    Raises:
        ExportError: If a mask is empty or missing, or the file cannot be written or is the scan.
        VolumeError: If the image cannot be used, a mask has a different grid or several values, or
            the label map is of another scan.
    """
    from pumit import __version__
    from pumit.export.classes import class_terminology, numbered_segments
    from pumit.export.write import write_segmentation
    from pumit.segmentation import ClassLabel

    volume = Volume.of(image, spacing_mm)
    values: tuple[int, ...] = ()
    if isinstance(result, LabelMap):
        if result.scan is not None and not isinstance(image, np.ndarray):
            _require_same(result.scan, volume)
        values, segments = zip(*numbered_segments(result).items(), strict=True)
    else:
        masks = dict(result) if isinstance(result, Mapping) else {name: result}
        meanings = class_terminology([ClassLabel(label) for label in masks])
        grids = [_checked_mask(mask, label) for label, mask in masks.items()]
        segments = tuple(
            meaning.segment(label, mask)
            for meaning, label, mask in zip(meanings, masks, grids, strict=True)
        )
    kind: AlgorithmKind = "AUTOMATIC" if isinstance(result, LabelMap) else "SEMIAUTOMATIC"
    algorithm = Algorithm("PUMIT", __version__, kind)
    write_segmentation(Segmentation(volume, segments, algorithm, values), path)


def _require_same(segmented: Volume, image: Volume) -> None:
    """Raise VolumeError if voxels of two scans are at different places."""
    from pumit.io.labels.grid_match import grid_difference

    ends = np.vstack([np.zeros(3), np.diag(np.array(segmented.shape) - 1)])
    apart = np.abs(image.world_to_index(segmented.index_to_world(ends)) - ends)
    if segmented.shape != image.shape or apart.max() > 0.5:
        # Another scan, or another file of this one, such as its NIfTI file with turned axes.
        difference = grid_difference(segmented, image)
        raise VolumeError(f"The label map is not of this image: it {difference}.")


def _checked_mask(given: Mask, name: str) -> Mask:
    """Return a mask as bool with shape (D, H, W); a 2D mask becomes one slice."""
    mask = np.asarray(given)
    if mask.ndim not in (2, 3):
        raise VolumeError(f"A mask has shape (D, H, W) or (H, W), got {mask.shape}.")
    if mask.dtype != np.bool_:
        values = np.unique(mask[mask != 0])
        if len(values) > 1:
            raise VolumeError(
                f"The mask of segment {name!r} has {len(values)} values beside 0: give each "
                "structure its own mask, such as labels == 2 or probabilities > 0.5."
            )
    return mask.astype(bool).reshape((1,) * (3 - mask.ndim) + mask.shape)


def _segmenter(model: str, device: str) -> Segmenter:
    """Return a loaded model; one whose file has changed since is loaded again."""
    from pumit.models.index import find_model

    path = find_model(model).absolute()
    return _loaded(model, device, path, changed_ns(path))


@lru_cache(maxsize=2)
def _loaded(model: str, device: str, _path: Path, _changed_ns: int) -> Segmenter:
    from pumit.inference.interactive.segmenter import load_segmenter

    return load_segmenter(model, device=device)
