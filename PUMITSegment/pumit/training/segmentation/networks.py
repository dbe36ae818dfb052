"""Which networks can be trained to segment, by name, and the sizes that fit data and recipe."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from pumit.errors import PumitError
from pumit.networks.build import RECIPES, build_network
from pumit.training.recipes.segmentation import DEFAULT_NETWORK
from pumit.training.segmentation.depth_halvings import SeenField, Shape
from pumit.training.segmentation.network_families import FAMILIES, Family, coarsest_tokens

# Published for one spacing, with which their tokens go.
PUBLISHED_TOKENS = ("pumit_segmentation_btcv", "pumit_segmentation_chaos")
FOR_ANY_DATA = "_small"  # ends the names of networks that were not published for one data set


def class_of(name: str) -> str:
    """Class of a network's name; empty where there is none."""
    return RECIPES[name].class_name if name in RECIPES else ""


def trainable_names() -> list[str]:
    """Networks that can be trained to segment, the default first."""
    names = [key for key in RECIPES if class_of(key) in FAMILIES]
    return sorted(names, key=lambda name: (name != DEFAULT_NETWORK, name))


def family_of(name: str) -> Family:
    """Return what the trainer knows of a network.

    Raises:
        PumitError: If it does not segment, or is unknown.
    """
    if class_of(name) not in FAMILIES:
        near = difflib.get_close_matches(name, trainable_names(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise PumitError(
            f"{name!r} cannot be trained to segment{hint} Choose {', '.join(trainable_names())}."
        )
    return FAMILIES[class_of(name)]


def patch_divisor(name: str, sizes: Mapping[str, Any]) -> Shape:
    """Return the numbers that a network's patch must be multiples of along (d, h, w).

    Args:
        name: Name of the network, as `build_network` knows it.
        sizes: Those that a recipe changes.

    Raises:
        PumitError: If it does not segment, or is unknown, or the sizes cannot be read.
    """
    family = family_of(name)
    try:
        return family.stride({**RECIPES[name].sizes, **sizes})
    except (TypeError, ValueError, IndexError):
        followed = {key: sizes[key] for key in family.follows if key in sizes}
        raise PumitError(
            f"network_sizes of {name!r} cannot be read: {followed}; give them as the "
            f"network's own, { {key: RECIPES[name].sizes[key] for key in family.follows} }."
        ) from None


def patch_step(name: str, sizes: Mapping[str, Any]) -> Shape:
    """Return the numbers that a planned patch is a multiple of: of PUMIT two tokens at least.

    A pyramid of three levels takes patches of one token too, but is normalised over the places of
    its coarsest level, of which there should be several.

    Args:
        sizes: Those that a recipe changes.
    """
    d, h, w = patch_divisor(name, sizes)
    n = 1
    if class_of(name) == "SegmentationNetwork":
        n = 2 // coarsest_tokens({**RECIPES[name].sizes, **sizes})
    return (n * d, n * h, n * w)


def fitted_names(name: str) -> tuple[str, ...]:
    """Sizes of a network that follow from the data where a recipe leaves them open."""
    family = family_of(name)
    return () if name in PUBLISHED_TOKENS else family.follows


def fitted_sizes(
    name: str,
    given: Mapping[str, Any],
    spacing_mm: tuple[float, float, float],
    *,
    depth: int | None = None,
    patch: Sequence[Any] = (),
    most_voxels: int | None = None,
) -> dict[str, Any]:
    """Sizes that follow from the spacing and the slices where a recipe leaves them open.

    The cells of a network's coarsest level become about as deep as they are wide in millimetres,
    and no deeper than the data. A published network keeps its own sizes where they have room. A
    recipe that says one of the sizes that belong together has said all of them.

    Args:
        spacing_mm: Voxel size (d, h, w) that the network sees.
        depth: Slices of a usual case at that spacing, if known.
        patch: Size of the network's patch (d, h, w), where the recipe says it: cells are no
            deeper than fits.
        most_voxels: Largest number of its voxels, where the recipe does not say it.

    Returns:
        `given`, and what the network takes from the data.

    Raises:
        PumitError: If it does not segment, or is unknown.
    """
    family = family_of(name)
    if any(key in given for key in family.follows) or not fitted_names(name):
        return dict(given)
    field = SeenField(spacing_mm, depth, tuple(patch), most_voxels)
    if not name.endswith(FOR_ANY_DATA):
        own = family.stride({**RECIPES[name].sizes, **given})
        if replace(field, most_voxels=None).has_room(own):
            return dict(given)
    return {**family.fit({**RECIPES[name].sizes, **given}, field), **given}


def network_sizes(
    name: str, given: Mapping[str, Any], *, patch: Shape, channels: int, classes: int
) -> dict[str, Any]:
    """Sizes to build a network with.

    Args:
        given: Those that a recipe changes, or that were fitted to the data.
        patch: Size of the network's patch (d, h, w), voxels.
        classes: Output channels, the background counted in where it is one.

    Raises:
        PumitError: If the recipe says other channels or classes than the data have.
    """
    planned: dict[str, Any] = {"in_channels": channels, "num_classes": classes}
    for key, what in (("in_channels", "image channels"), ("num_classes", "outputs")):
        if given.get(key, planned[key]) != planned[key]:
            raise PumitError(
                f"network_sizes.{key} is {given[key]}, but the data call for {planned[key]} "
                f"{what}; leave it out, it follows from the data."
            )
    known = {**RECIPES[name].sizes, **given}
    return {**planned, **family_of(name).fit_patch(known, patch), **given}


def build_segmentation(name: str, sizes: Mapping[str, Any]) -> nn.Module:
    """Build a network that segments."""
    family_of(name)
    return build_network(name, **sizes)
