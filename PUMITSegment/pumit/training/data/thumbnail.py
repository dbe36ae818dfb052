"""Thumbnail of a case: the middle slice of its labels with a colour overlay."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from pumit.geometry import Triple
from pumit.preprocessing.channels import grey
from pumit.preprocessing.network_axes import NetworkAxes
from pumit.system.files import atomic_path
from pumit.volume import Volume

SIDE = 160  # pixels of the longer side
OPACITY = 0.45
WINDOW_PERCENTILES = (1.0, 99.5)
SUPERIOR = 2  # of the axes L, P, S


def write_thumbnail(
    path: Path, volume: Volume, labels: npt.NDArray[np.uint8] | None, colors: Sequence[Triple]
) -> None:
    """Write a PNG with the patient's left on the right and the head or front on top.

    The first channel is shown, colour as grey, and label i, (D, H, W), in the i-th colour, 0..1.

    Raises:
        ExportError: If the file cannot be written.
    """
    axes = NetworkAxes.of(volume)
    image = axes.apply(grey(volume, 0))
    masks = None if labels is None else axes.apply(labels)
    k = _middle(masks, len(image))
    shown = np.asarray(image[k], dtype=np.float32)
    low, high = np.percentile(shown, WINDOW_PERCENTILES)
    shown = (shown - low) / max(float(high - low), 1e-6)
    picture = (shown.clip(0, 1) * 255).astype(np.uint8)
    overlay = np.zeros(picture.shape, np.uint8) if masks is None else masks[k]
    _, row_mm, column_mm = (volume.spacing_mm[a] for a in axes.order)
    # Rows run towards posterior, or towards superior, which must be flipped to the top.
    along = np.abs(volume.direction.T[::-1][axes.order[1]])
    if int(along.argmax()) == SUPERIOR:
        picture, overlay = picture[::-1], overlay[::-1]
    # With the physical aspect ratio.
    height, width = picture.shape[0] * row_mm, picture.shape[1] * column_mm
    scale = SIDE / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    grey_picture = Image.fromarray(np.ascontiguousarray(picture))
    drawn = Image.fromarray(np.ascontiguousarray(overlay)).resize(size, Image.Resampling.NEAREST)
    table = np.zeros((256, 3), dtype=np.float32)
    table[1 : len(colors) + 1] = np.asarray(colors[:255], dtype=np.float32).reshape(-1, 3) * 255
    index = np.asarray(drawn)
    resized = grey_picture.resize(size, Image.Resampling.BILINEAR)
    rgb = np.repeat(np.asarray(resized, dtype=np.float32)[..., None], 3, axis=-1)
    share = np.where(index > 0, OPACITY, 0.0)[..., None]
    rgb = rgb * (1 - share) + table[index] * share
    with atomic_path(path) as temporary:
        Image.fromarray(rgb.round().astype(np.uint8)).save(temporary, format="PNG")


def _middle(labels: npt.NDArray[np.uint8] | None, depth: int) -> int:
    """Return the slice at the median of the labelled voxels; without labels the middle slice."""
    if labels is not None:
        counts = np.array([np.count_nonzero(part) for part in labels])
        if counts.any():
            return int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
    return depth // 2
