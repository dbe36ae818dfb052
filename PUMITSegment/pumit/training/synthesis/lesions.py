"""Lesions in the structures of a layout: solid, ringed or scattered, hot or cold."""

from __future__ import annotations

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
