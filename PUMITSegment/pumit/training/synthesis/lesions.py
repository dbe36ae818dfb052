"""Lesions in the structures of a layout, solid, ringed or scattered, and walls around hollows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pumit.training.synthesis.grid import Grid, chance, integer, log_uniform, uniform
from pumit.training.synthesis.painting import Layout, paint
from pumit.training.synthesis.shapes import draw_shape

FEWEST = 12  # voxels of a lesion


def add_lesions(grid: Grid, layout: Layout) -> None:
    """Paint lesions into one structure; each is a target, and all of them together.

    The structure includes its lesions, and so does each target that includes the structure.
    """
    g = grid.generator
    if not layout.objects:
        return
    xyz = grid.coordinates()
    host = layout.objects[integer(g, 0, len(layout.objects) - 1)]
    count = 1 if chance(g, 0.6) else integer(g, 2, 6)
    # Lesions of one scan are of one tissue.
    size = log_uniform(g, 0.03, 0.2) * grid.size
    contrast = uniform(g, 0.15, 0.6)
    lesions: list[list[int]] = []
    for _ in range(count):
        mask = draw_shape(grid, xyz, max(size * uniform(g, 0.5, 1.5), 1.5)) & layout.shows(host)
        if int(mask.sum()) < FEWEST:
            continue
        label = paint(layout, mask)
        layout.contrasts[label] = contrast
        if host[0] in layout.names:
            layout.names[label] = layout.names[host[0]]
        if lesions:
            layout.twins[label] = lesions[0][0]
        parts = [label]
        if chance(g, 0.2):  # a rim around a core
            core = draw_shape(grid, xyz, max(0.6 * size, 1.5)) & mask
            if 8 < int(core.sum()) < 0.6 * int(mask.sum()):
                parts.append(paint(layout, core))
        lesions.append(parts)
    found = [part for parts in lesions for part in parts]
    layout.objects = [[*parts, *found] if host[0] in parts else parts for parts in layout.objects]
    layout.objects += lesions
    if len(lesions) > 1:
        layout.objects.append(found)


def add_wall(grid: Grid, layout: Layout, sizes: dict[int, float]) -> None:
    """Turn one structure into a wall around a hollow; both are targets, and the whole as before.

    Of a wall the middle of its box shows nothing, as of a heart's muscle, a bladder's wall or the
    cortex of a brain.

    Args:
        sizes: Voxels of each label as a whole, here and beyond the scene; changed in place.
    """
    g = grid.generator
    hosts = [parts for parts in layout.objects if len(parts) == 1]
    if not hosts:
        return
    (host,) = hosts[integer(g, 0, len(hosts) - 1)]
    mask = layout.shows([host])
    thickness = integer(g, 1, max(grid.size // 16, 1))
    hollow = eroded(mask, thickness, grid.oversampling / grid.slice_ratio)
    if int(hollow.sum()) < FEWEST or int((mask & ~hollow).sum()) < FEWEST:
        return
    share = float(hollow.sum()) / float(mask.sum())
    label = paint(layout, hollow)
    layout.contrasts[label] = uniform(g, 0.1, 0.6)
    if host in layout.names:
        layout.names[label] = layout.names[host]
    if host in sizes:
        sizes[label] = share * sizes[host]
        sizes[host] -= sizes[label]
    layout.objects = [[*parts, label] if host in parts else parts for parts in layout.objects]
    layout.objects += [[host], [label]]


def eroded(mask: Tensor, voxels: int, slices_per_voxel: float) -> Tensor:
    """Take so many in-plane voxels off a mask (D', H, W), and along depth as many millimetres.

    What touches a face continues beyond it.
    """
    depth = min(round(voxels * slices_per_voxel), mask.shape[0] // 2)
    reach = (depth, voxels, voxels)
    outside = (~mask)[None, None].to(torch.float32)
    near = F.max_pool3d(outside, [2 * n + 1 for n in reach], 1, reach)[0, 0]
    return near == 0
