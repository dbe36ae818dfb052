"""Networks that can be trained to segment, and the sizes that fit data and recipe."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from pumit.errors import PumitError
from pumit.networks.build import RECIPES, build_network
from pumit.networks.nnformer import field_stride, global_windows, stage_grids
from pumit.networks.promptable.segmentation import encoded_stride
from pumit.networks.pumit.anisotropy import MAX_DEGREE, Anisotropy
from pumit.training.recipes.segmentation import DEFAULT_NETWORK

Shape = tuple[int, int, int]
ROUNDING = 1e-6  # a ratio of exactly two is one halving
Sizes = Mapping[str, Any]
TOKEN = 16  # voxels of PUMIT's token in-plane
MOST_FLAT = 2  # halvings of that, for its depth where slices are far apart
# Published for one spacing, with which their tokens go.
PUBLISHED_TOKENS = ("pumit_segmentation_btcv", "pumit_segmentation_chaos")
FOR_ANY_DATA = "_small"  # ends the names of networks that were not published for one data set


@dataclass(frozen=True)
class SeenField:
    """The patch of a network, as far as it is known before its sizes.

    Attributes:
        depth: Slices of a usual case at that spacing; None where it is unknown.
        patch: Size of its patch (d, h, w), where the recipe says it.
        most_voxels: Largest number of voxels of a patch, where the recipe does not say its size.
    """

    spacing_mm: tuple[float, float, float]
    depth: int | None = None
    patch: tuple[Any, ...] = ()
    most_voxels: int | None = None

    @property
    def ratio(self) -> float:
        """Distance of the slices over that of the pixels."""
        d, h, w = self.spacing_mm
        return d / math.sqrt(h * w)

    @property
    def given_patch(self) -> Shape | None:
        """The recipe's patch, where it is one."""
        if len(self.patch) != 3 or not all(isinstance(n, int) and n > 0 for n in self.patch):
            return None
        return (self.patch[0], self.patch[1], self.patch[2])

    def has_room(self, stride: Shape) -> bool:
        """Return whether a patch holds more than one step of this stride, and a case its depth.

        Args:
            stride: Divisor of a patch (d, h, w).
        """
        patch = self.given_patch
        if patch is not None:
            steps = math.prod(n // s for n, s in zip(patch, stride, strict=True))
            return patch[0] % stride[0] == 0 and steps > 1
        if self.depth is not None and self.depth < stride[0]:
            return False
        return self.most_voxels is None or 2 * math.prod(stride) <= self.most_voxels


def depth_halvings(plane: Shape, field: SeenField) -> int:
    """How many of the halvings in the plane the depth takes too.

    As many fewer as slices lie more often twice as far apart as pixels, so that a cell of the
    coarsest level is about as deep as it is wide; none for a single slice.

    Args:
        plane: The stride of a network that leaves the depth alone, (1, h, w), powers of two.
        field: Field that it is to see.

    Source:
        PUMIT, section "Spatially Adaptive Convolution": depth is halved last.
    """
    most = int(math.log2(plane[1]))
    spared = math.floor(math.log2(max(field.ratio, 1.0)) + ROUNDING)
    count = max(most - spared, 0)
    while count > 0 and not field.has_room((1 << count, plane[1], plane[2])):
        count -= 1
    return count


def depth_factors(plane: Sequence[int], halvings: int) -> list[int]:
    """By how much each stage reduces the depth: the first leave it alone.

    Args:
        plane: Factor by which each stage reduces the plane, a power of two.
        halvings: Halvings of the depth, all stages together; see `depth_halvings`.
    """
    each = [int(math.log2(n)) for n in plane]
    spared = sum(each) - halvings
    factors = []
    for count in each:
        kept = max(count - spared, 0)
        spared -= count - kept
        factors.append(1 << kept)
    return factors


@dataclass(frozen=True)
class PretrainedEncoder:
    """The pre-training that a network may begin with, and the names that its weights get.

    Attributes:
        network: Beginning of the names of the pre-training's networks, as `build_network` knows
            them.
        theirs: Prefix of the encoder's weights there.
        ours: Prefix of the same weights here.
        again: Prefixes of weights here that the pre-training does not have.
    """

    network: str
    theirs: str
    ours: str
    anew: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """A class of networks, with the rule that gives its sizes from the data.

    Attributes:
        stride: Divisor of a patch (d, h, w), a function of the sizes.
        reads_image: Beginnings of the names of what depends on the image channels.
        writes_classes: Beginnings of the names of what depends on the classes.
        follows: Sizes that follow from the data where a recipe leaves them open.
        fit: Function from the sizes and the field to the sizes that fit.
        fit_patch: Sizes that follow from the patch, once that is planned, or that a checkpoint is
            to state.
        encoder: Pre-trained encoder that it may begin with, if there is one for it.
        alike: Sizes in which weights of another meaning have the same shape: an earlier model must
            have the same.
    """

    title: str
    stride: Callable[[Sizes], Shape]
    reads_image: tuple[str, ...]
    writes_classes: tuple[str, ...]
    follows: tuple[str, ...] = ()
    fit: Callable[[Sizes, SeenField], dict[str, Any]] = lambda sizes, field: {}
    fit_patch: Callable[[Sizes, Shape], dict[str, Any]] = lambda sizes, patch: {}
    encoder: PretrainedEncoder | None = None
    alike: tuple[str, ...] = ()


def coarsest_tokens(sizes: Sizes) -> int:
    """PUMIT's tokens along a cell of its pyramid's coarsest level."""
    return 2 if len(sizes["pyramid_widths"]) == 4 else 1


def _times(steps: Sequence[Sequence[int]]) -> Shape:
    """Product of (d, h, w) each."""
    d, h, w = (math.prod(step[axis] for step in steps) for axis in range(3))
    return (d, h, w)


# --- PUMIT ---


def _pumit_stride(sizes: Sizes) -> Shape:
    return _times([(coarsest_tokens(sizes),) * 3, sizes["fixed_patch"]])


def _pumit_fit(sizes: Sizes, field: SeenField) -> dict[str, Any]:
    """Tokens about as deep as they are wide in mm, as the published network's at its spacing.

    A case of few slices is put into a deeper patch, unless a single token were deeper than it.
    """
    halvings = min(max(round(math.log2(field.ratio)), 0), MOST_FLAT)
    if field.depth is not None:
        while halvings < MOST_FLAT and field.depth < TOKEN >> halvings:
            halvings += 1
    field = replace(field, depth=None)
    steps = [(2 * (TOKEN >> i), 2 * TOKEN, 2 * TOKEN) for i in range(MOST_FLAT + 1)]
    while halvings < MOST_FLAT and not field.has_room(steps[halvings]):
        halvings += 1
    return {"fixed_patch": [TOKEN >> halvings, TOKEN, TOKEN]}


def _pumit_positions(sizes: Sizes, patch: Shape) -> dict[str, Any]:
    """Return a place of the position table for every token."""
    cell, stride = coarsest_tokens(sizes), _pumit_stride(sizes)
    return {"position_table": [cell * n // step for n, step in zip(patch, stride, strict=True)]}


def _encoder_fit(sizes: Sizes, field: SeenField) -> dict[str, Any]:
    """Return the degree of anisotropy of the spacing, higher where a case has few slices."""
    da0 = Anisotropy.from_spacing(field.spacing_mm).da0
    while da0 < MAX_DEGREE and not field.has_room(encoded_stride(da0)):
        da0 += 1
    return {"da0": da0}


# --- MONAI's ---


def _monai_stride(side: int) -> Callable[[Sizes], Shape]:
    return lambda sizes: (side if sizes["spatial_dims"] == 3 else 1, side, side)


def _monai_fit(side: int) -> Callable[[Sizes, SeenField], dict[str, Any]]:
    """Slice by slice where the depth would be padding for the most part."""

    def fit(sizes: Sizes, field: SeenField) -> dict[str, Any]:
        depth = field.given_patch[0] if field.given_patch else field.depth
        least = side if field.given_patch else side // 2
        return {"spatial_dims": 2 if depth is not None and depth < least else 3}

    return fit


# --- nnFormer ---


def _nnformer_fit(sizes: Sizes, field: SeenField) -> dict[str, Any]:
    """Flatter tokens."""
    patch, *merges = _flattened([sizes["patch"], *sizes["merges"]], field)
    return {"patch": patch, "merges": merges}


def _nnformer_windows(sizes: Sizes, patch: Shape) -> dict[str, Any]:
    """Volumes of attention of which those of the last two stages cover the patch."""
    down = sizes["rounds_down"]
    grids = stage_grids(sizes["patch"], sizes["merges"], patch, rounds_down=down)
    windows = global_windows(sizes["windows"], grids)
    return {"windows": [list(w) for w in windows], "rounds_down": down}


def _flattened(steps: Sequence[Sequence[int]], field: SeenField) -> list[list[int]]:
    """Return the steps of a network with another depth each."""
    _, h, w = _times(steps)
    factors = depth_factors([step[1] for step in steps], depth_halvings((1, h, w), field))
    return [[factor, *step[1:]] for factor, step in zip(factors, steps, strict=True)]


# --- MambaMIM's two ---


def _hymamba_fit(sizes: Sizes, field: SeenField) -> dict[str, Any]:
    return {"poolings": _flattened(sizes["poolings"], field)}


def _hymamba_norm(sizes: Sizes, patch: Shape) -> dict[str, Any]:
    """Return a checkpoint states it: without, it is of the time before there was a choice."""
    return {"last_norm": sizes["last_norm"]}


def _unetr_mamba_fit(sizes: Sizes, field: SeenField) -> dict[str, Any]:
    return {"patch": _flattened([sizes["patch"]], field)[0]}


FAMILIES: dict[str, Family] = {
    "SegmentationNetwork": Family(
        "PUMIT",
        _pumit_stride,
        ("detail_full.0.", "vit.patch_embedding."),
        ("heads.",),
        follows=("fixed_patch",),
        fit=_pumit_fit,
        fit_patch=_pumit_positions,
    ),
    "EncodedSegmentation": Family(
        "PUMIT's encoder",
        lambda sizes: encoded_stride(sizes["da0"]),
        ("mix.", "detail."),
        ("heads.",),
        follows=("da0",),
        fit=_encoder_fit,
        encoder=PretrainedEncoder("promptable", "image_encoder.", "encoder."),
    ),
    "PlainUnet": Family(
        "U-Net",
        _monai_stride(16),
        ("network.conv_0.conv_0.conv.",),
        ("network.final_conv.",),
        follows=("spatial_dims",),
        fit=_monai_fit(16),
    ),
    "SwinUnetr": Family(
        "Swin UNETR",
        _monai_stride(32),
        ("network.swinViT.patch_embed.", "network.encoder1.layer.conv"),
        ("network.out.",),
        follows=("spatial_dims",),
        fit=_monai_fit(32),
        encoder=PretrainedEncoder("swin_ssl", "swinViT.", "network.swinViT."),
        alike=("merging",),
    ),
    "NnFormer": Family(
        "nnFormer",
        lambda sizes: field_stride(sizes["patch"], sizes["merges"]),
        ("encoder.embedding.convolutions.0.",),
        ("heads.",),
        follows=("patch", "merges"),
        fit=_nnformer_fit,
        fit_patch=_nnformer_windows,
        alike=("rounds_down", "official_index", "official_unmasked_shift"),
    ),
    "HyMamba": Family(
        "HyMamba",
        lambda sizes: _times(sizes["poolings"]),
        ("encoder.stem.0.",),
        ("head.",),
        follows=("poolings",),
        fit=_hymamba_fit,
        fit_patch=_hymamba_norm,
        encoder=PretrainedEncoder("mamba_mim", "encoder.", "encoder.", ("encoder.skips.0.",)),
        alike=("last_norm",),
    ),
    "UnetrMamba": Family(
        "UNETR-Mamba",
        lambda sizes: _times([sizes["patch"]]),
        ("encoder.embedding.", "image_block.layer.conv"),
        ("head.",),
        follows=("patch",),
        fit=_unetr_mamba_fit,
        encoder=PretrainedEncoder("mamba_mim", "encoder.", "encoder."),
    ),
}


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
