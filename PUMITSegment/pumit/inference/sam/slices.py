"""SAM on a scan, slice by slice: a 3D box becomes a 2D box on every slice it meets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from pumit.errors import PromptError
from pumit.networks.ba_sam_transformers import image_size
from pumit.prompts import BoxPrompt, PointPrompt
from pumit.volume import Volume

if TYPE_CHECKING:
    from transformers import SamModel

# SAM's own normalisation: ImageNet statistics, of intensities in 0..1.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)
_EPSILON = 1e-6


@dataclass
class SlicePrompt:
    """The prompt on one slice, in continuous (w, h) indices, as SAM counts pixels: x before y.

    Attributes:
        box: Left, top, right, bottom.
        points: Clicks (x, y, is_positive).
    """

    box: tuple[float, float, float, float]
    points: list[tuple[float, float, bool]] = field(default_factory=list)


def segment_volume_by_slices(
    model: SamModel,
    volume: Volume,
    box: BoxPrompt,
    *,
    points: Sequence[PointPrompt] = (),
    size: int = 2048,
    window: tuple[float, float] | None = None,
    on_slice: Callable[[int, int], None] | None = None,
) -> npt.NDArray[np.bool_]:
    """Segment the structure in a box with SAM, one slice along the depth axis after the other.

    Args:
        model: A model from `apply_ba_sam`, on the device and in the dtype to use.
        volume: The scan; (D, H, W), or (3, D, H, W) for colour.
        box: Around the structure. Each slice it meets gets the smallest 2D box around the cut.
        points: Clicks, used on the slice nearest to each, together with that slice's box.
        size: Side in pixels of the image that the encoder sees, a multiple of its patch size: the
            longer side of a slice is resized to it. SAM was trained at 1024.
        window: Intensities shown as black and white. By default the 0.5 and 99.5 percentiles.
        on_slice: Callback after each slice with (done, total); what it raises ends the work.

    Returns:
        Mask on the volume's grid, shape (D, H, W).

    Raises:
        PromptError: If the box misses the volume, or a point lies beyond the box's slices.
        ValueError: If the model or the size does not fit.
    """
    prompts = slice_prompts(volume, box, points)
    low, high = window or _percentiles(volume)
    mask = np.zeros(volume.shape, dtype=bool)
    parameter = next(model.parameters())
    with torch.inference_mode(), image_size(model, size):
        for done, (depth, prompt) in enumerate(prompts.items(), start=1):
            pixels = np.asarray(volume.array[..., depth, :, :], dtype=np.float32)
            image = torch.from_numpy((np.nan_to_num(pixels) - low) / max(high - low, 1e-12))
            logits = _segment_slice(model, image.clamp(0, 1).to(parameter), prompt, size)
            mask[depth] = (logits > 0).cpu().numpy()
            if on_slice is not None:
                on_slice(done, len(prompts))
    return mask


def slice_prompts(
    volume: Volume, box: BoxPrompt, points: Sequence[PointPrompt] = ()
) -> dict[int, SlicePrompt]:
    """Cut a box in world coordinates by the slices of a volume.

    Returns:
        The prompt for each slice that the box meets, by slice index, ascending.

    Raises:
        PromptError: If the box misses the volume, or a point lies beyond the box's slices.
    """
    # 1. Slices that the box meets.
    corners = volume.world_to_index(box.corners_lps)
    if volume.is_planar:
        corners[:, 0] = 0  # an image has no thickness
    lowest, highest = corners[:, 0].min(), corners[:, 0].max()
    first = max(int(np.ceil(lowest - 0.5 - _EPSILON)), 0)
    last = min(int(np.floor(highest + 0.5 + _EPSILON)), volume.shape[0] - 1)
    # 2. Its cut with each of them, within the image.
    height, width = volume.shape[1:]
    prompts: dict[int, SlicePrompt] = {}
    for depth in range(first, last + 1):
        cut = _cut(corners, float(np.clip(depth, lowest, highest)))
        top, left = np.maximum(cut.min(axis=0), -0.5)
        bottom, right = np.minimum(cut.max(axis=0), (height - 0.5, width - 0.5))
        if bottom > top and right > left:
            prompts[depth] = SlicePrompt((float(left), float(top), float(right), float(bottom)))
    if not prompts:
        raise PromptError("The box does not meet the volume; draw it around the structure.")
    # 3. Points on the slice next to them.
    for point in points:
        d, h, w = volume.world_to_index(point.point_lps)
        depth = 0 if volume.is_planar else round(float(d))
        if depth not in prompts:
            raise PromptError(
                "A point lies on a slice that the box does not meet; enlarge the box."
            )
        prompts[depth].points.append((float(w), float(h), point.is_positive))
    return prompts


def _cut(corners: npt.NDArray[np.float64], depth: float) -> npt.NDArray[np.float64]:
    """(h, w) points whose hull is the cut of the corners' hull with the plane at `depth`.

    Every edge of a convex body joins two corners, and no other line between two corners leaves the
    body: so all pairs will do, whatever the order of the corners.
    """
    found = [corner[1:] for corner in corners if abs(corner[0] - depth) <= _EPSILON]
    for a, b in combinations(corners, 2):
        if (a[0] - depth) * (b[0] - depth) < 0:
            found.append((a + (depth - a[0]) / (b[0] - a[0]) * (b - a))[1:])
    return np.asarray(found)


def _percentiles(volume: Volume) -> tuple[float, float]:
    """Intensities to show as black and white; every n-th voxel is enough to find them."""
    values = volume.array.reshape(-1)
    values = values[:: max(1, values.size // 1_000_000)].astype(np.float64)
    values = values[np.isfinite(values)]
    if values.size == 0:
        return 0.0, 1.0
    low, high = np.percentile(values, (0.5, 99.5))
    return float(low), float(high)


def _segment_slice(model: Any, image: Tensor, prompt: SlicePrompt, size: int) -> Tensor:
    """Mask logits, shape (H, W), for an image in 0..1, shape (H, W) or (3, H, W)."""
    rgb = image.expand(3, -1, -1) if image.ndim == 2 else image
    height, width = rgb.shape[-2:]
    factor = size / max(height, width)
    inner = (max(1, round(height * factor)), max(1, round(width * factor)))
    mean, std = (rgb.new_tensor(t)[:, None, None] for t in (_MEAN, _STD))
    # float32: not every device resizes low precision.
    resized = interpolate(
        rgb[None].float(), size=inner, mode="bilinear", align_corners=False, antialias=True
    ).to(rgb)
    pixels = pad((resized - mean) / std, (0, size - inner[1], 0, size - inner[0]))
    # Continuous index i lies at (i + 0.5) * factor - 0.5 in the resized image.
    box = rgb.new_tensor(prompt.box, dtype=torch.float32)
    inputs: dict[str, Tensor] = {"input_boxes": ((box + 0.5) * factor - 0.5)[None, None]}
    if prompt.points:
        clicks = rgb.new_tensor([p[:2] for p in prompt.points], dtype=torch.float32)
        inputs["input_points"] = ((clicks + 0.5) * factor - 0.5)[None, None]
        labels = [int(p[2]) for p in prompt.points]
        inputs["input_labels"] = torch.tensor(labels, device=rgb.device)[None, None]
    out = model(pixel_values=pixels, multimask_output=False, **inputs)
    logits = out.pred_masks[:, 0].float()  # (1, 1, size / 4, size / 4)
    logits = interpolate(logits, size=(size, size), mode="bilinear", align_corners=False)
    logits = logits[..., : inner[0], : inner[1]]
    return interpolate(logits, size=(height, width), mode="bilinear", align_corners=False)[0, 0]
