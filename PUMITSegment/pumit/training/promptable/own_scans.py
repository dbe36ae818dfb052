"""Fields cut from a lab's own scans as the session will look at them, its classes as targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from pumit.inference.interactive.field_planner import FieldPlanner
from pumit.inference.interactive.solver_settings import SolverSettings
from pumit.preprocessing.fields import PLANAR_DEGREE, Field, field_shape
from pumit.training.promptable.labelled_scans import label_targets, vary
from pumit.training.promptable.real_scan import RealScan
from pumit.training.promptable.supervoxels import pseudo_targets
from pumit.training.synthesis.scene import Scene

# Over the in-plane spacing of a field that the session would look at. Its fields have a third more
# voxels than those of training, so that these are a little coarser to show as much.
COARSER = (0.85, 1.6)
TURN = math.radians(12)  # standard deviation
OFF_CENTRE = 0.2  # of the field, at most
LEAST_SEEN = 0.3  # of a field must lie in the scan
ELSEWHERE = 0.25  # of the scenes ask for something else that the scan shows
SHARED = 0.2  # of something else may be labelled


@dataclass(frozen=True)
class _FieldSite:
    """A field size at which a session looks at a structure of a scan."""

    scan: int
    structure: int
    in_plane_mm: float


class OwnScans:
    """Draw scenes at the places and sizes that inference looks at.

    Unlike `RealScans`, which shows a network as much as possible of a few scans, scans stay as they
    lie and their grey values nearly as they are: a lab's scans are alike. Some scenes ask for what
    lies outside the structures; they are not labelled, and show what is to be answered as before.

    Args:
        scans: Scans with the structures to segment.
        field_size: In-plane voxels of a training field.
    """

    def __init__(self, scans: Sequence[RealScan], field_size: int) -> None:
        self.scans = list(scans)
        size = round(field_size * SolverSettings().field_scale / 8) * 8
        sites: dict[int, dict[int, list[_FieldSite]]] = {}
        for number, scan in enumerate(self.scans):
            d, h, w = scan.image.array.shape
            planner = FieldPlanner((d, h, w), scan.image.spacing_mm, size)
            for structure, (voxels, _) in scan.places.items():
                for where in planner.around_click(voxels.mean(0)):
                    spacing = where.step[1] * scan.image.spacing_mm[1]
                    site = _FieldSite(number, structure, spacing)
                    sites.setdefault(where.da0, {}).setdefault(structure, []).append(site)
        self._sites = sites

    @property
    def degrees(self) -> dict[int, float]:
        """Share of each degree of anisotropy among the fields, every structure weighing equally."""
        counts: dict[int, float] = {}
        structures = {s for by_structure in self._sites.values() for s in by_structure}
        for structure in structures:
            found = {da0: len(by.get(structure, ())) for da0, by in self._sites.items()}
            for da0, count in found.items():
                counts[da0] = counts.get(da0, 0.0) + count / sum(found.values()) / len(structures)
        return dict(sorted(counts.items()))

    def draw(self, da0: int, size: int, generator: torch.Generator) -> Scene | None:
        """Draw a scene of a degree, or None where the drawn place has no usable target."""
        by_structure = self._sites.get(da0)
        if not by_structure:
            return None
        rng = np.random.default_rng(int(torch.randint(2**31, (), generator=generator)))
        # 1. A structure, every one as often, and a field about it at a size of inference.
        sites = by_structure[sorted(by_structure)[int(rng.integers(len(by_structure)))]]
        site = sites[int(rng.integers(len(sites)))]
        scan = self.scans[site.scan]
        where = _field(scan, site, da0, size, rng)
        rotation = _turned(rng, is_isotropic=da0 == 0)
        # 2. The scan there; not where most of the field lies beyond it.
        image, inside = map(torch.from_numpy, scan.image.sample(where, rotation))
        if float(inside.mean()) < LEAST_SEEN:
            return None
        assert scan.labels is not None
        labels = torch.from_numpy(scan.labels.sample_nearest(where, rotation))
        # 3. Targets: the structure by its labels, or pieces of what lies outside all of them.
        is_labelled = rng.random() >= ELSEWHERE
        if is_labelled:
            targets = [mask for _, mask in label_targets(scan, labels, site.structure, rng)]
        else:
            ratio = 1.0 if da0 == PLANAR_DEGREE else where.slice_ratio
            found = pseudo_targets(image, inside, ratio, rng)
            targets = [t for t in found if float((labels[t] > 0).float().mean()) <= SHARED]
        if not targets:
            return None
        return Scene(
            vary(image, rng, inverted=0.0),
            targets,
            where.slice_ratio,
            inside,
            is_upright=True,
            is_labelled=is_labelled,
        )


def _field(
    scan: RealScan, site: _FieldSite, da0: int, size: int, rng: np.random.Generator
) -> Field:
    """Get a field of a degree about a voxel of the structure, moved into the scan where it fits."""
    spacing = np.asarray(scan.image.spacing_mm)
    in_plane = site.in_plane_mm * float(np.exp(rng.uniform(*np.log(COARSER))))
    if 0 < da0 < PLANAR_DEGREE:  # of another spacing the degree would be another
        in_plane = float(np.clip(in_plane, spacing[0] / 2 ** (da0 + 0.99), spacing[0] / 2**da0))
    elif da0 == 0:
        in_plane = max(in_plane, spacing[0] / 1.99)
    slice_mm = spacing[0] if da0 == PLANAR_DEGREE else max(spacing[0], in_plane)
    step = np.array([slice_mm, in_plane, in_plane]) / spacing
    shape = field_shape(da0, size)
    voxels, _ = scan.places[site.structure]
    room = np.asarray(shape) * step
    place = voxels[int(rng.integers(len(voxels)))].astype(np.float64)
    centre = place + rng.uniform(-1, 1, 3) * OFF_CENTRE * room
    grid = np.asarray(scan.image.array.shape)
    low, high = room / 2 - 0.5, grid - 0.5 - room / 2
    centre = np.where(low < high, np.clip(centre, low, high), (grid - 1) / 2)
    if shape[0] == 1:
        centre[0] = place[0]
    d, h, w = (float(c) for c in centre)
    return Field((d, h, w), tuple(step.tolist()), shape, float(slice_mm / in_plane), da0)


def _turned(rng: np.random.Generator, *, is_isotropic: bool) -> npt.NDArray[np.float64]:
    """Small turns about the depth axis, and about all three where voxels allow it."""
    matrix = np.eye(3)
    for axis in range(3 if is_isotropic else 1):
        angle = float(rng.normal(0, TURN))
        a, b = (i for i in range(3) if i != axis)
        turn = np.eye(3)
        turn[a, a] = turn[b, b] = math.cos(angle)
        turn[a, b], turn[b, a] = -math.sin(angle), math.sin(angle)
        matrix = matrix @ turn
    return matrix
