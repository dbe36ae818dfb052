"""Which networks can be trained to segment, what fits them, and what they may begin with."""

from __future__ import annotations

import logging
from collections.abc import Mapping
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


def _class_of(name: str) -> str:
    return RECIPES[name].class_name if name in RECIPES else ""


def patch_divisor(name: str, sizes: Mapping[str, Any]) -> Shape:
    """What the patch of a network must be a multiple of along (d, h, w).

    Args:
        name: Of the network, as `build_network` knows it.
        sizes: Those that a recipe changes.

    Raises:
        PumitError: If it does not segment, or is unknown.
    """
    if _class_of(name) != "SegmentationNetwork":
        known = [key for key in RECIPES if _class_of(key) == "SegmentationNetwork"]
        raise PumitError(f"{name!r} cannot be trained to segment; choose {', '.join(known)}.")
    d, h, w = {**RECIPES[name].sizes, **sizes}["fixed_patch"]
    return (2 * d, 2 * h, 2 * w)  # the coarsest level of the pyramid has half the tokens' grid


def network_sizes(
    name: str, given: Mapping[str, Any], *, patch: Shape, channels: int, classes: int
) -> dict[str, Any]:
    """Sizes to build a network with.

    Args:
        name: Of the network.
        given: Those that a recipe changes.
        patch: What the network sees at once (d, h, w), voxels.
        channels: Image channels.
        classes: Classes, the background left out.
    """
    divisor = patch_divisor(name, given)
    table = [2 * n // step for n, step in zip(patch, divisor, strict=True)]
    planned = {"in_channels": channels, "num_classes": classes + 1, "position_table": table}
    return {**planned, **given}


def build_segmentation(name: str, sizes: Mapping[str, Any]) -> SegmentationNetwork:
    """Build a network that segments."""
    network = build_network(name, **sizes)
    assert isinstance(network, SegmentationNetwork)
    return network


def begin_with(network: SegmentationNetwork, model: str) -> None:
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
    if _class_of(str(checkpoint.recipe.get("network"))) != "SegmentationNetwork":
        begin_with_encoder(network.vit, str(path))
        return
    state = {k: v.float() if v.is_floating_point() else v for k, v in checkpoint.state.items()}
    _load_vit(network, {k[4:]: v for k, v in state.items() if k.startswith("vit.")}, path.name)
    _load_decoder(network, state, path.name)


def _load_vit(network: SegmentationNetwork, state: Mapping[str, Tensor], file: str) -> None:
    try:
        load_universal_weights(network.vit, state)
    except CheckpointError as error:
        raise CheckpointError(f"initial {file} does not fit the network: {error}") from None


def _load_decoder(network: nn.Module, state: Mapping[str, Tensor], file: str) -> None:
    target = network.state_dict()
    ours = {k: v for k, v in target.items() if not k.startswith("vit.")}
    theirs = {k: v for k, v in state.items() if not k.startswith("vit.")}
    anew = [k for k, v in ours.items() if k not in theirs or theirs[k].shape != v.shape]
    if any(not k.startswith(("heads.", "detail_full.0.")) for k in anew):
        raise CheckpointError(
            f"initial {file} has a decoder of other widths than this network ({anew[0]}); make "
            "network_sizes alike."
        )
    if anew:
        logger.info("these begin anew: %s", ", ".join(anew))
    network.load_state_dict({k: theirs[k] for k in ours if k not in anew}, strict=False)
