"""Classes of networks that can be trained to segment, and how their sizes follow from the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pumit.networks.nnformer import field_stride, global_windows, stage_grids
from pumit.networks.promptable.segmentation import encoded_stride
from pumit.networks.pumit.anisotropy import MAX_DEGREE, Anisotropy
from pumit.training.segmentation.depth_halvings import (
    SeenField,
    Shape,
    depth_factors,
    depth_halvings,
)

Sizes = Mapping[str, Any]
TOKEN = 16  # voxels of PUMIT's token in-plane
MOST_FLAT = 2  # halvings of that, for its depth where slices are far apart


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
