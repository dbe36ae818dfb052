"""Scenes: generated scans with their targets."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from pumit.preprocessing.fields import field_shape
from pumit.training.synthesis.appearance import acquire, textured
from pumit.training.synthesis.grid import Grid, chance, uniform
from pumit.training.synthesis.heart import HEART
from pumit.training.synthesis.layout import USUAL_SHARES, SceneShares, draw_layout
from pumit.training.synthesis.shapes import any_of
from pumit.training.synthesis.trunk import TRUNK

MIN_SHARE, MAX_SHARE = 0.002, 0.55  # range of useful target sizes, share of the field
# Smaller for real structures: inference uses fields of any size, where structures may be small.
MIN_REAL_SHARE = 0.0003
UNKNOWN = -1  # class of voxels without annotation
# Classes of each kind of generated scene, in order; each kind also has a background class before
# them.
GENERATED = {"generated heart": HEART, "generated trunk": TRUNK}


def components(masks: Tensor) -> Tensor:
    """Label connected components (face connectivity) on a GPU.

    Each round propagates the highest label along runs of each axis (a running maximum that restarts
    at every gap), then replaces each label by that of the voxel it refers to (pointer jumping). A
    few rounds converge for any shape. On the CPU, `scipy.ndimage` is faster.

    Args:
        masks: Bool (B, D, H, W).

    Returns:
        Labels (B, D, H, W), 0 outside: voxels per field minus the flat index of the component's
        first voxel. Labels are unique within a field, not across fields.
    """
    size = masks[0].numel()
    # The largest value is a label plus all gaps of a line. It fits int32, which takes half the
    # time, for fields of training size.
    largest = (max(masks.shape[1:]) + 1) * (size + 1)
    kind = torch.int32 if largest < 2**31 else torch.int64
    labels = torch.arange(size, 0, -1, device=masks.device, dtype=kind)
    labels = labels.view(masks.shape[1:]) * masks
    axes = [axis for axis in (1, 2, 3) if masks.shape[axis] > 1]
    # Offsets by the number of gaps, counted from either end, separate the runs of a line.
    gaps = {axis: (~masks).cumsum(axis, dtype=kind) * (size + 1) for axis in axes}
    while True:
        before = labels
        for axis in axes:
            forth = (labels + gaps[axis]).cummax(axis).values - gaps[axis]
            last = gaps[axis].narrow(axis, masks.shape[axis] - 1, 1)
            behind = last - gaps[axis]
            back = (forth * masks + behind).flip(axis).cummax(axis).values.flip(axis) - behind
            labels = back * masks
        flat = labels.flatten(1)
        named = flat.gather(1, (size - flat).clamp_max(size - 1).long())
        labels = torch.where(flat > 0, named, 0).view_as(labels)
        if torch.equal(labels, before):
            return labels


def generated_classes() -> list[tuple[str, int]]:
    """Return the kind of scene and the label of each generated class, ordered by class number."""
    return [(kind, i) for kind, names in GENERATED.items() for i in range(len(names) + 1)]


@dataclass
class Scene:
    """An image with target masks.

    Attributes:
        image: Shape (D, H, W), arbitrary units.
        targets: Bool masks, each (D, H, W), at least one.
        slice_ratio: Slice spacing over in-plane spacing, at least 1; very large in 2D.
        inside: 1 inside the scan, 0 outside; None if all of the image is inside.
        is_upright: Whether it has the scanner's usual orientation, which must be kept.
        is_labelled: Whether to treat the targets as labelled; False for `OwnScans`' pseudo-targets.
        wholes: Whole size of each target, including outside the scene, in voxels of this scene;
            None if unknown.
        classes: Class number of each voxel within the scene's source, (D, H, W), `UNKNOWN` outside
            the scan; None if the scene has no classes.
        regions: Region number of each voxel in this scene, (D, H, W), `UNKNOWN` if not known; None
            without regions.
    """

    image: Tensor
    targets: list[Tensor]
    slice_ratio: float
    inside: Tensor | None = None
    is_upright: bool = False
    is_labelled: bool = True
    wholes: list[float] | None = None
    classes: Tensor | None = None
    regions: Tensor | None = None


def slice_ratio_for(da0: int, generator: torch.Generator) -> float:
    """Draw a slice spacing ratio: log-uniform in the octave of the degree; for degree 0 uniform."""
    if da0 == 0:
        return uniform(generator, 1.0, 1.9)
    return float(2.0 ** (da0 + uniform(generator, 0.0, 0.95)))


def is_target(mask: Tensor, smallest: float = MIN_SHARE) -> bool:
    """Return whether a mask (D, H, W), bool, has a useful size, at least a share of the field."""
    count = int(mask.sum())
    return count >= 8 and smallest <= count / mask.numel() <= MAX_SHARE


def connected(mask: Tensor, *, smallest: int) -> list[Tensor]:
    """Return up to three connected components of at least `smallest` voxels, largest first."""
    if mask.device.type == "cpu":
        labels, _ = ndimage.label(mask.numpy())
        counts = np.bincount(labels.ravel())[1:]
        largest = [i for i in np.argsort(-counts)[:3] if counts[i] >= smallest]
        return [torch.from_numpy(labels == i + 1) for i in largest]
    there = components(mask[None])[0]
    found, sizes = torch.unique(there[there > 0], return_counts=True)
    found, sizes = found.flip(0), sizes.flip(0)  # of components of one size, the first comes first
    order = sizes.sort(descending=True, stable=True).indices[:3]
    pairs = zip(found[order].cpu().tolist(), sizes[order].cpu().tolist(), strict=True)
    return [there == label for label, count in pairs if count >= smallest]


def draw_scene(
    da0: int,
    size: int,
    generator: torch.Generator,
    device: torch.device | None = None,
    shares: SceneShares = USUAL_SHARES,
) -> Scene:
    """Generate a scan of a degree of anisotropy, 0 (isotropic) to 5 (2D).

    It has one or more targets of 0.2 % to 55 % of the field.

    Args:
        size: In-plane voxels per side; the depth is that of `field_shape`.
        generator: CPU generator; the same state gives the same scene on the same kind of device.
        device: Device to generate on; None means CPU.
    """
    # 1. Grid of the field, over-sampled along depth where slices are thick.
    ratio = slice_ratio_for(da0, generator)
    there = torch.device("cpu") if device is None else device
    shape = field_shape(da0, size)
    grid = Grid.for_field(shape, 1.0 if da0 == 5 else ratio, generator, there)
    # 2. Structures, redrawn until some of them can be targets.
    while True:
        layout = draw_layout(grid, shares)
        labels = layout.labels[grid.middles]
        targets = []
        for parts in layout.objects:
            mask = any_of(labels, parts)
            whole = chance(generator, 0.35)  # keep several components as one target
            pieces = [mask] if whole else connected(mask, smallest=8)
            targets += [piece for piece in pieces if is_target(piece)]
        if targets:
            break
    # 3. Simulated image (D, H, W).
    image = acquire(grid, textured(grid, layout), is_natural=layout.is_natural)
    classes = _classes(layout.names, labels)
    return Scene(
        image, targets, ratio, is_upright=layout.is_upright, classes=classes, regions=labels
    )


def _classes(names: Mapping[int, str], labels: Tensor) -> Tensor | None:
    """Return the class of each voxel, (D, H, W); None for a scene without named structures."""
    first = 0
    for known in GENERATED.values():
        if any(name in known for name in names.values()):
            table = torch.full((int(labels.max()) + 1,), first, device=labels.device)
            for label, name in names.items():
                if label < len(table):
                    table[label] = first + 1 + known.index(name)
            return table[labels]
        first += len(known) + 1
    return None
