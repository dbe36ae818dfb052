"""Which networks can be trained to segment, what fits them, and what they may begin with."""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from pumit.errors import CheckpointError, PumitError
from pumit.models.checkpoint import load_checkpoint
from pumit.models.index import find_model
from pumit.networks.build import RECIPES, build_network
from pumit.networks.pumit.segmentation_network import SegmentationNetwork
from pumit.networks.pumit.transfer import load_universal_weights
from pumit.training.data_plan import Shape
from pumit.training.initial_encoder import begin_with_encoder

logger = logging.getLogger(__name__)

DEFAULT_NETWORK = "pumit_segmentation_small"
TOKEN = 16  # voxels of a token in-plane
MOST_FLAT = 2  # halvings of that, for its depth where slices are far apart


@dataclass(frozen=True)
class Family:
    """What the trainer has to know of a class of networks.

    Attributes:
        stride: What a patch must be a multiple of, where it is the same for all sizes.
        reads_image: Beginnings of the names of what depends on the image channels.
        writes_classes: Beginnings of the names of what depends on the classes.
    """

    stride: int
    reads_image: tuple[str, ...]
    writes_classes: tuple[str, ...]


FAMILIES: dict[str, Family] = {
    "SegmentationNetwork": Family(0, ("detail_full.0.", "vit.patch_embedding."), ("heads.",)),
    "PlainUnet": Family(16, ("network.conv_0.conv_0.conv.",), ("network.final_conv.",)),
    "SwinUnetr": Family(
        32,
        ("network.swinViT.patch_embed.", "network.encoder1.layer.conv"),
        ("network.out.",),
    ),
}


def _class_of(name: str) -> str:
    return RECIPES[name].class_name if name in RECIPES else ""


def trainable_names() -> list[str]:
    """Networks that can be trained to segment, the default first."""
    names = [key for key in RECIPES if _class_of(key) in FAMILIES]
    return sorted(names, key=lambda name: (name != DEFAULT_NETWORK, name))


def patch_divisor(name: str, sizes: Mapping[str, Any]) -> Shape:
    """What the patch of a network must be a multiple of along (d, h, w).

    Args:
        name: Of the network, as `build_network` knows it.
        sizes: Those that a recipe changes.

    Raises:
        PumitError: If it does not segment, or is unknown.
    """
    if _class_of(name) not in FAMILIES:
        near = difflib.get_close_matches(name, trainable_names(), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise PumitError(
            f"{name!r} cannot be trained to segment{hint} Choose {', '.join(trainable_names())}."
        )
    stride = FAMILIES[_class_of(name)].stride
    if stride:
        return (stride, stride, stride)
    known = {**RECIPES[name].sizes, **sizes}
    d, h, w = known["fixed_patch"]
    n = _coarsest(known)
    return (n * d, n * h, n * w)


def patch_step(name: str, sizes: Mapping[str, Any]) -> Shape:
    """What a planned patch is a multiple of: two tokens at least.

    A pyramid of three levels takes patches of one token too, but is normalised over the places of
    its coarsest level, of which there should be several.

    Args:
        name: Of the network.
        sizes: Those that a recipe changes.
    """
    d, h, w = patch_divisor(name, sizes)
    n = 1
    if _class_of(name) == "SegmentationNetwork":
        n = 2 // _coarsest({**RECIPES[name].sizes, **sizes})
    return (n * d, n * h, n * w)


def _coarsest(sizes: Mapping[str, Any]) -> int:
    """Tokens along a cell of the pyramid's coarsest level."""
    return 2 if len(sizes["pyramid_widths"]) == 4 else 1


def fitted_sizes(
    name: str,
    given: Mapping[str, Any],
    spacing_mm: tuple[float, float, float],
    *,
    patch: Sequence[Any] = (),
    most_voxels: int | None = None,
) -> dict[str, Any]:
    """Sizes that follow from the spacing where a recipe leaves them open.

    The tokens of the small network are about as deep as they are wide in millimetres, as those of
    the published network are at its spacing.

    Args:
        name: Of the network.
        given: Sizes that the recipe changes.
        spacing_mm: Voxel size (d, h, w) that the network sees.
        patch: What the network sees at once (d, h, w), where the recipe says it: tokens are no
            deeper than fits.
        most_voxels: Where it does not say it, how many voxels it may have: so are they then.

    Returns:
        `given`, and `fixed_patch` where the network takes it from the data.
    """
    if name != DEFAULT_NETWORK or "fixed_patch" in given:
        return dict(given)
    ratio = spacing_mm[0] / math.sqrt(spacing_mm[1] * spacing_mm[2])
    halvings = min(max(round(math.log2(ratio)), 0), MOST_FLAT)
    while halvings < MOST_FLAT and not _has_room(TOKEN >> halvings, patch, most_voxels):
        halvings += 1
    return {**given, "fixed_patch": [TOKEN >> halvings, TOKEN, TOKEN]}


def _has_room(depth: int, patch: Sequence[Any], most_voxels: int | None) -> bool:
    """Whether more than one step of the coarsest level fits a patch, or its voxels."""
    steps = (2 * depth, 2 * TOKEN, 2 * TOKEN)
    if len(patch) == 3 and all(isinstance(n, int) for n in patch):
        whole = patch[0] % steps[0] == 0
        return whole and math.prod(n // s for n, s in zip(patch, steps, strict=True)) > 1
    return most_voxels is None or 2 * math.prod(steps) <= most_voxels


def network_sizes(
    name: str, given: Mapping[str, Any], *, patch: Shape, channels: int, classes: int
) -> dict[str, Any]:
    """Sizes to build a network with.

    Args:
        name: Of the network.
        given: Those that a recipe changes.
        patch: What the network sees at once (d, h, w), voxels.
        channels: Image channels.
        classes: Output channels, the background counted in where it is one.
    """
    planned: dict[str, Any] = {"in_channels": channels, "num_classes": classes}
    if "position_table" in RECIPES[name].sizes:
        divisor = patch_divisor(name, given)
        cell = _coarsest({**RECIPES[name].sizes, **given})
        table = [cell * n // step for n, step in zip(patch, divisor, strict=True)]
        planned["position_table"] = table
    return {**planned, **given}


def build_segmentation(name: str, sizes: Mapping[str, Any]) -> nn.Module:
    """Build a network that segments."""
    patch_divisor(name, sizes)
    return build_network(name, **sizes)


def begin_with(network: nn.Module, model: str) -> None:
    """Take over the weights of an earlier model.

    A pre-trained universal ViT gives its blocks, its patch embedding (summed along depth) and its
    position table (resampled). A segmentation network gives all; where it has other classes or
    image channels, what reads or writes these begins anew.

    Args:
        network: What is to be trained.
        model: A name of the model index, or a checkpoint file.

    Raises:
        CheckpointError: If there is no such model, or it is of another width or kind.
    """
    path = find_model(model)
    checkpoint = load_checkpoint(path)
    theirs, ours = _class_of(str(checkpoint.recipe.get("network"))), type(network).__name__
    if isinstance(network, SegmentationNetwork) and theirs != ours:
        begin_with_encoder(network.vit, str(path))
        return
    if theirs != ours:
        raise CheckpointError(
            f"initial {path.name} holds the network {checkpoint.recipe.get('network')!r}, which "
            "is not the one that this recipe trains; give one of the same kind."
        )
    state = {k: v.float() if v.is_floating_point() else v for k, v in checkpoint.state.items()}
    if isinstance(network, SegmentationNetwork):
        _load_vit(network, {k[4:]: v for k, v in state.items() if k.startswith("vit.")}, path.name)
        state = {k: v for k, v in state.items() if not k.startswith("vit.")}
    _load_rest(network, state, path.name)


def _load_vit(network: SegmentationNetwork, state: Mapping[str, Tensor], file: str) -> None:
    try:
        load_universal_weights(network.vit, state)
    except CheckpointError as error:
        raise CheckpointError(f"initial {file} does not fit the network: {error}") from None


def _load_rest(network: nn.Module, state: Mapping[str, Tensor], file: str) -> None:
    """What is not a universal ViT's."""
    is_universal = isinstance(network, SegmentationNetwork)
    ours = {
        k: v for k, v in network.state_dict().items() if not (is_universal and k.startswith("vit."))
    }
    family = FAMILIES[type(network).__name__]
    anew = [k for k, v in ours.items() if k not in state or state[k].shape != v.shape]
    if any(not k.startswith(family.reads_image + family.writes_classes) for k in anew):
        raise CheckpointError(
            f"initial {file} has a decoder of other widths than this network ({anew[0]}); make "
            "network_sizes alike."
        )
    if anew:
        logger.info("these begin anew: %s", ", ".join(anew))
    network.load_state_dict({k: state[k] for k in ours if k not in anew}, strict=False)
