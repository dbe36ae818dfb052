"""A trunk shows its organs at their places, with what they hold, in the greys of its scanner."""

from functools import cache
from unittest import mock

import torch
from pumit.training.synthesis import trunk as drawn
from pumit.training.synthesis.appearance import acquire, textured
from pumit.training.synthesis.grid import Grid
from pumit.training.synthesis.shapes import Layout, any_of
from pumit.training.synthesis.trunk import TRUNK, trunk
from scipy import ndimage


@cache
def body(seed: int, scan: str = "T2", depth: int = 20) -> tuple[Grid, Layout]:
    """An upright trunk in the greys of one kind of scan."""
    grid = Grid(depth, 48, 3.0 if depth > 1 else 1.0, 1, torch.Generator().manual_seed(seed))
    layout = Layout(torch.zeros(grid.shape, dtype=torch.long))
    scans = ((1.0, getattr(drawn, scan)),)
    with mock.patch.multiple(drawn, UPRIGHT=1.0, SCANS=scans):
        trunk(grid, layout, grid.coordinates())
    return grid, layout


def masks_of(layout: Layout) -> dict[str, torch.Tensor]:
    """Masks of the structures that are to be seen."""
    masks = {
        name: any_of(layout.labels, [i for i, each in layout.names.items() if each == name])
        for name in set(layout.names.values())
    }
    return {name: mask for name, mask in masks.items() if int(mask.sum()) >= 30}


def middle_of(mask: torch.Tensor) -> tuple[float, float, float]:
    z, y, x = mask.nonzero().float().mean(0).tolist()
    return z, y, x


def test_targets_are_structures_with_names():
    for seed in range(12):
        _, layout = body(seed)
        assert layout.objects
        for parts in layout.objects:
            assert all(0 < label < layout.count for label in parts)
            assert {layout.names[label] for label in parts} <= set(TRUNK)
        _, flat = body(seed, depth=1)
        assert flat.labels.shape == (1, 48, 48)
        assert flat.count > 3


def test_organs_lie_where_people_have_them():
    """The liver on the right side, which is left in the image; the spine behind, lungs above."""
    holds: dict[str, list[bool]] = {"liver": [], "spine": [], "lung": [], "aorta": []}
    for seed in range(24):
        _, layout = body(seed)
        seen = {name: middle_of(mask) for name, mask in masks_of(layout).items()}
        if {"liver", "spleen"} <= seen.keys():
            holds["liver"].append(seen["liver"][2] < seen["spleen"][2])
        if {"vertebra", "liver"} <= seen.keys():
            holds["spine"].append(seen["vertebra"][1] > seen["liver"][1])
        if {"lung", "kidney"} <= seen.keys():
            holds["lung"].append(seen["lung"][0] > seen["kidney"][0])
        if {"aorta", "vena cava"} <= seen.keys():
            holds["aorta"].append(seen["aorta"][2] > seen["vena cava"][2])
    for name, found in holds.items():
        assert len(found) >= 5, name
        assert sum(found) >= 0.95 * len(found), name


def test_a_liver_is_one_piece_with_its_veins():
    shares = []
    for seed in range(20):
        _, layout = body(seed)
        liver = masks_of(layout).get("liver")
        if liver is not None:
            pieces, _ = ndimage.label(liver.numpy(), ndimage.generate_binary_structure(3, 3))
            sizes = torch.bincount(torch.from_numpy(pieces).flatten())[1:]
            shares.append(float(sizes.max() / sizes.sum()))
    assert len(shares) >= 10
    assert sorted(shares)[len(shares) // 4] > 0.9


def test_veins_of_a_t2_liver_are_brighter_and_part_of_it():
    brighter = 0
    for seed in range(20):
        _, layout = body(seed)
        liver = next((p for p in layout.objects if layout.names[p[0]] == "liver"), [])
        for vein in liver[1:]:
            assert layout.means[vein] > 1.05 * layout.means[liver[0]]
            brighter += 1
    assert brighter >= 8


def test_a_scan_keeps_its_greys_in_their_order():
    """Fluid of T2 stays brighter than the liver, and the liver of CT brighter than lung."""
    for scan, dark, bright in (("T2", "liver", "canal"), ("VENOUS_CT", "lung", "liver")):
        compared = 0
        for seed in range(8):
            grid, layout = body(seed, scan)
            masks = masks_of(layout)
            if {dark, bright} <= masks.keys():
                compared += 1
                image = acquire(grid, textured(grid, layout), is_natural=layout.is_natural)
                assert image[masks[dark]].median() < image[masks[bright]].median(), seed
        assert compared >= 2
