"""Initialise a universal ViT with EVA-02's published weights."""

import logging
from pathlib import Path

import torch
from torch import nn

from pumit.errors import CheckpointError
from pumit.models.public_weights import read_public_weights
from pumit.networks.pumit.eva02 import convert_eva02
from pumit.networks.pumit.transfer import load_universal_weights
from pumit.networks.pumit.vit import MaskedImageModel, UniversalViT

logger = logging.getLogger(__name__)

PUBLIC_FILE = (
    "EVA-02-B's safetensors file, model.safetensors of timm/eva02_base_patch14_224.mim_in22k on "
    "the Hugging Face hub"
)


def load_eva02(network: nn.Module, path: Path) -> str:
    """Load EVA-02's weights into a universal ViT, or into the `vit` of another network.

    The parameter names of timm and of the original repository are supported. The original file is
    a pickle, which is not accepted; timm publishes the same weights as safetensors.

    Args:
        network: A `UniversalViT`, or a network whose `vit` is one, such as those for masked image
            modelling, classification and segmentation. The ViT must have EVA-02's width and depth;
            position table, patch depth and number of channels may differ.

    Returns:
        Summary of the weights that were loaded, kept and left out, for the user.

    Raises:
        CheckpointError: If the file is missing, a pickle, or not EVA-02's of this size.
        TypeError: If the network has no universal ViT.
    """
    vit = getattr(network, "vit", network)
    if not isinstance(vit, UniversalViT):
        raise TypeError(f"EVA-02's weights are for a universal ViT, got {type(network).__name__}.")
    public = read_public_weights(path, instead=PUBLIC_FILE)
    weights, mask_token, left_out = convert_eva02(public, vit.patch_embedding.kernel_size[-1])
    expected = vit.cls_token.shape
    if mask_token is not None and mask_token.shape != expected:
        raise CheckpointError(
            f"{path.name} does not fit: its mask token has shape "
            f"{tuple(mask_token.shape)}, not {tuple(expected)}. Give {PUBLIC_FILE}."
        )
    # EVA-02 has no BA-SAM slopes; keep the initial ones.
    slopes = {n: t for n, t in vit.state_dict().items() if n.endswith(".slope")}
    try:
        load_universal_weights(vit, {**weights, **slopes})
    except CheckpointError as error:
        raise CheckpointError(f"{path.name} does not fit: {error} Give {PUBLIC_FILE}.") from None
    prefix = "" if vit is network else "vit."
    loaded = {f"{prefix}{name}" for name in weights}
    if mask_token is not None:
        if isinstance(network, MaskedImageModel):
            with torch.no_grad():
                network.mask_token.copy_(mask_token)
            loaded.add("mask_token")
        else:
            left_out.append("mask_token")
    kept = network.state_dict().keys() - loaded
    summary = f"EVA-02: loaded {len(loaded)} weights"
    for word, names in (("kept", kept), ("left out", left_out)):
        summary += f", {word} {', '.join(sorted(names))}" if names else ""
    logger.info("%s", summary)
    return summary
