"""A generated scan with its targets."""

from __future__ import annotations

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
from pumit.training.synthesis.painting import any_of
from pumit.training.synthesis.trunk import TRUNK

MIN_SHARE, MAX_SHARE = 0.002, 0.55  # of the field: outside of this a target teaches little
# Of a real structure: inference looks at it in fields of any size, and must know small ones too.
MIN_REAL_SHARE = 0.0003
UNKNOWN = -1  # class of a voxel that no one knows
# Structures of generated scenes that have classes, and those of each kind in their order; the
# background of a kind is its own class, before them.
GENERATED = {"generated heart": HEART, "generated trunk": TRUNK}


def components(masks: Tensor) -> Tensor:
    """Label the pieces that are connected over faces.

    Along a line all of a piece takes the highest label of its run at once (a running maximum that
    starts again at every gap), then every voxel takes the label of the voxel that its label names;
    a few rounds follow any path that a mask has. Meant for a GPU, where masks need not travel; on
    the CPU `scipy.ndimage` is faster.

    Args:
        masks: Bool (B, D, H, W).

    Returns:
        Labels (B, D, H, W), 0 outside: voxels per field less the flat index of the piece's first
        voxel. They differ between the pieces of a field, not between fields.
    """
    size = masks[0].numel()
    # The largest number is a label and all gaps of a line. Four bytes, which take half of the time,
    # hold that of fields of training.
    largest = (max(masks.shape[1:]) + 1) * (size + 1)
    kind = torch.int32 if largest < 2**31 else torch.int64
    labels = torch.arange(size, 0, -1, device=masks.device, dtype=kind)
    labels = labels.view(masks.shape[1:]) * masks
    axes = [axis for axis in (1, 2, 3) if masks.shape[axis] > 1]
    # Runs of one line are distinguished by the gaps before them, counted from either end.
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
    """Kind of scene and label of each class of generated scenes, in the order of their numbers."""
    return [(kind, i) for kind, names in GENERATED.items() for i in range(len(names) + 1)]


@dataclass
class Scene:
    """An image and masks of what a user might want from it.

    Attributes:
        image: Shape (D, H, W), arbitrary units.
        targets: Bool masks, each (D, H, W), at least one.
        slice_ratio: Slice spacing over in-plane spacing, at least 1; very large in 2D.
        inside: 1 where the image lies in the scan, 0 beyond; None where all of it does.
        is_upright: Whether it lies as its scanner's images always lie, and is to stay so.
        is_labelled: Whether its targets are what someone wants, not merely places to click.
        wholes: Voxels, of this scene's size, that each target has as a whole, here and beyond the
            scene; None where no one knows.
        classes: Number of each voxel's class among those of what drew the scene, (D, H, W),
            `UNKNOWN` beyond the scan; None where the scene has no classes.
        regions: Number of each voxel's region in this scene, (D, H, W), `UNKNOWN` where nothing
            tells; None where nothing tells of any.
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
    """Return a slice spacing ratio of the given degree of anisotropy, log-uniform in its octave."""
    if da0 == 0:
        return uniform(generator, 1.0, 1.9)
    return float(2.0 ** (da0 + uniform(generator, 0.0, 0.95)))


def is_target(mask: Tensor, smallest: float = MIN_SHARE) -> bool:
    """Return whether a mask is neither too small in its field nor too large to teach anything.

    Args:
        mask: Bool (D, H, W).
        smallest: Least share of the field.
    """
    count = int(mask.sum())
    return count >= 8 and smallest <= count / mask.numel() <= MAX_SHARE


def connected(mask: Tensor, *, smallest: int) -> list[Tensor]:
    """Return at most three connected pieces of a mask of `smallest` voxels, largest first."""
    if mask.device.type != "cpu":
        return _connected_there(mask, smallest=smallest)
    labels, _ = ndimage.label(mask.numpy())
    sizes = np.bincount(labels.ravel())[1:]
    order = [i for i in np.argsort(-sizes)[:3] if sizes[i] >= smallest]
    return [torch.from_numpy(labels == i + 1) for i in order]


def _connected_there(mask: Tensor, *, smallest: int) -> list[Tensor]:
    """Compute `connected` on the device of the mask."""
    labels = components(mask[None])[0]
    pieces = []
    found, sizes = torch.unique(labels[labels > 0], return_counts=True)
    found, sizes = found.flip(0), sizes.flip(0)  # of pieces of one size, the first comes first
    order = sizes.sort(descending=True, stable=True).indices[:3]
    for label, count in zip(found[order].cpu().tolist(), sizes[order].cpu().tolist(), strict=True):
        if count >= smallest:
            pieces.append(labels == label)
    return pieces


def draw_scene(
    da0: int,
    size: int,
    generator: torch.Generator,
    device: torch.device | None = None,
    shares: SceneShares = USUAL_SHARES,
) -> Scene:
    """Draw a scan of the given degree of anisotropy.

    Args:
        da0: 0 (isotropic) to 5 (2D).
        size: In-plane voxels per side; depth is that of `field_shape`.
        generator: Source of randomness, on the CPU; the same state gives the same scene on the
            same kind of device.
        device: Device that it is drawn on; None draws on the CPU.
        shares: How many show a heart, and how many a trunk.

    Returns:
        Scene with one to several targets of 0.2 % to 55 % of the field.
    """
    # 1. The grid of the field, finer along depth where slices are thick.
    depth = field_shape(da0, size)[0]
    planar = da0 == 5
    ratio = slice_ratio_for(da0, generator)
    oversampling = 1 if planar or ratio < 1.5 else min(3, round(ratio))
    # In 2D the drawing plane is one thin slice of a thick world.
    grid = Grid(
        depth,
        size,
        1.0 if planar else ratio,
        oversampling,
        generator,
        torch.device("cpu") if device is None else device,
    )
    # 2. Structures, until some of them can be targets.
    while True:
        layout = draw_layout(grid, shares)
        labels = layout.labels[grid.oversampling // 2 :: grid.oversampling]
        targets = []
        for parts in layout.objects:
            mask = any_of(labels, parts)
            whole = chance(generator, 0.35)  # several pieces under one name
            pieces = [mask] if whole else connected(mask, smallest=8)
            targets += [piece for piece in pieces if is_target(piece)]
        if targets:
            break
    # 3. The image (D, H, W) as a scanner shows them.
    image = acquire(grid, textured(grid, layout), is_natural=layout.is_natural)
    classes = _classes(layout.names, labels)
    return Scene(
        image, targets, ratio, is_upright=layout.is_upright, classes=classes, regions=labels
    )


def _classes(names: Mapping[int, str], labels: Tensor) -> Tensor | None:
    """Return each voxel's class, (D, H, W); None for a scene without a heart or a trunk."""
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
