"""Networks that can be trained for segmentation, and their sizes for data and recipe."""

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pumit.errors import PumitError
from pumit.networks.build import RECIPES
from pumit.networks.nnformer.network import field_stride, global_windows, stage_grids
from pumit.networks.promptable.segmentation import encoded_stride
from pumit.networks.pumit.anisotropy import MAX_DEGREE, Anisotropy
from pumit.training.recipes.segmentation import DEFAULT_NETWORK

Shape = tuple[int, int, int]
ROUNDING = 1e-6  # so that a ratio of exactly two counts as one halving
Sizes = Mapping[str, Any]
TOKEN = 16  # in-plane size of PUMIT's tokens, voxels
MOST_FLAT = 2  # maximum halvings of a token's depth for thick slices
# Networks published for one spacing, which determines their tokens.
PUBLISHED_TOKENS = ("pumit_segmentation_btcv", "pumit_segmentation_chaos")
FOR_ANY_DATA = "_small"  # suffix of networks that were not published for one data set


@dataclass(frozen=True)
class SeenField:
    """Constraints on a network's patch, before its sizes are known.

    Attributes:
        depth: Number of slices of a typical case at that spacing; None if unknown.
        patch: Patch size (d, h, w), if the recipe gives it; limits the depth of cells.
        most_voxels: Maximum number of voxels of a patch; None for no limit.
    """

    spacing_mm: tuple[float, float, float]
    depth: int | None = None
    patch: Sequence[int] | None = None
    most_voxels: int | None = None

    @property
    def ratio(self) -> float:
        """Ratio of slice spacing to pixel spacing."""
        d, h, w = self.spacing_mm
        return d / math.sqrt(h * w)

    def has_room(self, stride: Shape) -> bool:
        """Return whether a patch holds more than one multiple of a stride, and a case its depth.

        Args:
            stride: Divisor of a patch (d, h, w).
        """
        if self.patch is not None:
            steps = math.prod(n // s for n, s in zip(self.patch, stride, strict=True))
            return self.patch[0] % stride[0] == 0 and steps > 1
        if self.depth is not None and self.depth < stride[0]:
            return False
        return self.most_voxels is None or 2 * math.prod(stride) <= self.most_voxels


def depth_halvings(plane: Shape, field: SeenField) -> int:
    """Return the number of downsamplings that also halve the depth.

    It is reduced by log2 of the ratio of slice to pixel spacing, so that a cell of the coarsest
    level is about as deep as it is wide. It is 0 for a single slice.

    Args:
        plane: In-plane stride of the network, (1, h, w), powers of two.

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
    """Return the depth stride of each stage from its in-plane stride, a power of two.

    The first stages do not reduce the depth; `halvings` is the sum over all stages.
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
    """Pre-training that can initialise a network, and the mapping of its weight names.

    Attributes:
        network: Prefix of the names of the pre-training's networks, as in `build_network`.
        theirs: Prefix of the encoder's weights in the pre-training.
        ours: Prefix of the same weights in the network.
        fresh: Prefixes of encoder weights that the pre-training does not have.
    """

    network: str
    theirs: str
    ours: str
    fresh: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """A class of networks, with the rules for its sizes.

    Attributes:
        stride: Computes the divisor of a patch (d, h, w) from the sizes.
        reads_image: Prefixes of weights that depend on the image channels.
        writes_classes: Prefixes of weights that depend on the classes.
        follows: Sizes that follow from the data unless the recipe gives them.
        fit: Computes the sizes in `follows`.
        fit_patch: Computes sizes that follow from the planned patch, or that a checkpoint must
            state.
        alike: Sizes that change the meaning of weights but not their shapes; an initial model must
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
    """Return the number of PUMIT's tokens along a cell of the pyramid's coarsest level."""
    return 2 if len(sizes["pyramid_widths"]) == 4 else 1


def _product(steps: Sequence[Sequence[int]]) -> Shape:
    """Return the product of strides (d, h, w)."""
    d, h, w = (math.prod(step[axis] for step in steps) for axis in range(3))
    return (d, h, w)


# --- PUMIT ---


def _pumit_stride(sizes: Sizes) -> Shape:
    return _product([(coarsest_tokens(sizes),) * 3, sizes["fixed_patch"]])


def _pumit_fit(sizes: Sizes, field: SeenField) -> dict[str, Any]:
    """Choose tokens about as deep as wide in mm, like the published network's at its spacing.

    A case of few slices is padded to a deeper patch, unless a single token would exceed its depth.
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
    """Return a position table with one entry per token."""
    cell, stride = coarsest_tokens(sizes), _pumit_stride(sizes)
    return {"position_table": [cell * n // step for n, step in zip(patch, stride, strict=True)]}


def _encoder_fit(sizes: Sizes, field: SeenField) -> dict[str, Any]:
    """Return the degree of anisotropy of the spacing, increased for cases of few slices."""
    da0 = Anisotropy.from_spacing(field.spacing_mm).da0
    while da0 < MAX_DEGREE and not field.has_room(encoded_stride(da0)):
        da0 += 1
    return {"da0": da0}


# --- MONAI's ---


def _monai_stride(side: int) -> Callable[[Sizes], Shape]:
    return lambda sizes: (side if sizes["spatial_dims"] == 3 else 1, side, side)


def _monai_fit(side: int) -> Callable[[Sizes, SeenField], dict[str, Any]]:
    """Choose a 2D network, slice by slice, if most of the depth would be padding."""

    def fit(sizes: Sizes, field: SeenField) -> dict[str, Any]:
        depth = field.depth if field.patch is None else field.patch[0]
        least = side // 2 if field.patch is None else side
        return {"spatial_dims": 2 if depth is not None and depth < least else 3}

    return fit


# --- nnFormer ---


def _nnformer_fit(sizes: Sizes, field: SeenField) -> dict[str, Any]:
    """Choose flatter tokens for thick slices."""
    patch, *merges = _flattened([sizes["patch"], *sizes["merges"]], field)
    return {"patch": patch, "merges": merges}


def _nnformer_windows(sizes: Sizes, patch: Shape) -> dict[str, Any]:
    """Choose attention windows that cover the whole patch in the last two stages."""
    down = sizes["rounds_down"]
    grids = stage_grids(sizes["patch"], sizes["merges"], patch, rounds_down=down)
    windows = global_windows(sizes["windows"], grids)
    return {"windows": [list(w) for w in windows], "rounds_down": down}


def _flattened(steps: Sequence[Sequence[int]], field: SeenField) -> list[list[int]]:
    """Return the strides of a network with the depth fitted to the data."""
    _, h, w = _product(steps)
    factors = depth_factors([step[1] for step in steps], depth_halvings((1, h, w), field))
    return [[factor, *step[1:]] for factor, step in zip(factors, steps, strict=True)]


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
        lambda sizes: _product(sizes["poolings"]),
        ("encoder.stem.0.",),
        ("head.",),
        follows=("poolings",),
        fit=lambda sizes, field: {"poolings": _flattened(sizes["poolings"], field)},
        # A checkpoint must state it: older ones without it had no choice.
        fit_patch=lambda sizes, patch: {"last_norm": sizes["last_norm"]},
        encoder=PretrainedEncoder("mamba_mim", "encoder.", "encoder.", ("encoder.skips.0.",)),
        alike=("last_norm",),
    ),
    "UnetrMamba": Family(
        "UNETR-Mamba",
        lambda sizes: _product([sizes["patch"]]),
        ("encoder.embedding.", "image_block.layer.conv"),
        ("head.",),
        follows=("patch",),
        fit=lambda sizes, field: {"patch": _flattened([sizes["patch"]], field)[0]},
        encoder=PretrainedEncoder("mamba_mim", "encoder.", "encoder."),
    ),
}


def class_of(name: str) -> str:
    """Return the class name of a network, or empty if it is unknown."""
    return RECIPES[name].class_name if name in RECIPES else ""


def trainable_names() -> list[str]:
    """Return the networks that can be trained for segmentation, the default first."""
    names = [key for key in RECIPES if class_of(key) in FAMILIES]
    return sorted(names, key=lambda name: (name != DEFAULT_NETWORK, name))


def family_of(name: str) -> Family:
    """Return the family of a network.

    Raises:
        PumitError: If the network is unknown or cannot segment.
    """
    if class_of(name) not in FAMILIES:
        near = difflib.get_close_matches(name, trainable_names(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise PumitError(
            f"{name!r} cannot be trained to segment{hint} Choose {', '.join(trainable_names())}."
        )
    return FAMILIES[class_of(name)]


def patch_divisor(name: str, sizes: Mapping[str, Any]) -> Shape:
    """Return the divisor of a network's patch along (d, h, w).

    Raises:
        PumitError: If the network is unknown or cannot segment, or the sizes are invalid.
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
    """Return the divisor of a planned patch, which is at least two tokens for PUMIT.

    A pyramid of three levels accepts patches of one token, but normalises over the positions of its
    coarsest level, of which there should be several.
    """
    d, h, w = patch_divisor(name, sizes)
    n = 1
    if class_of(name) == "SegmentationNetwork":
        n = 2 // coarsest_tokens({**RECIPES[name].sizes, **sizes})
    return (n * d, n * h, n * w)


def fitted_names(name: str) -> tuple[str, ...]:
    """Return the sizes of a network that follow from the data unless the recipe gives them."""
    family = family_of(name)
    return () if name in PUBLISHED_TOKENS else family.follows


def fitted_sizes(
    name: str,
    given: Mapping[str, Any],
    spacing_mm: tuple[float, float, float],
    *,
    depth: int | None = None,
    patch: Sequence[int] = (),
    most_voxels: int | None = None,
) -> dict[str, Any]:
    """Return the given sizes with those that follow from the spacing and the number of slices.

    Cells of the coarsest level become about as deep as wide in mm, and no deeper than the data. A
    published network keeps its own sizes if they fit. If a recipe gives one of the sizes that
    follow from the data, all of them are left to it. The other arguments are those of `SeenField`.

    Raises:
        PumitError: If the network is unknown or cannot segment.
    """
    family = family_of(name)
    if any(key in given for key in family.follows) or not fitted_names(name):
        return dict(given)
    field = SeenField(spacing_mm, depth, patch if len(patch) == 3 else None, most_voxels)
    if not name.endswith(FOR_ANY_DATA):
        own = family.stride({**RECIPES[name].sizes, **given})
        if replace(field, most_voxels=None).has_room(own):
            return dict(given)
    return {**family.fit({**RECIPES[name].sizes, **given}, field), **given}


def network_sizes(
    name: str, given: Mapping[str, Any], *, patch: Shape, channels: int, classes: int
) -> dict[str, Any]:
    """Return the sizes to build a network with, from those of the recipe or fitted to the data.

    Args:
        patch: Patch size (d, h, w), voxels.
        classes: Number of output channels, including the background if it is one.

    Raises:
        PumitError: If the recipe's channels or classes differ from the data's.
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
