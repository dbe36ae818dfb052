"""Transfer of universal ViT weights to a fixed-patch ViT, or to another field size."""

from collections.abc import Mapping

import torch
from torch import Tensor

from pumit.errors import CheckpointError
from pumit.networks.pumit.sac import sum_depth_groups
from pumit.networks.pumit.vit import UniversalViT, resample_positions

PATCH_WEIGHT = "patch_embedding.weight"
POSITION_TABLE = "position_table"


def load_universal_weights(vit: UniversalViT, state: Mapping[str, Tensor]) -> None:
    """Load the state of a universal ViT into one with another patch, channels or field size.

    The patch kernel is summed along depth in contiguous groups. If the number of channels differs,
    the kernel's sum over channels is divided evenly among the new ones, so that an image with equal
    channels gives the same tokens. The position table is resampled.

    Args:
        vit: Target; every other weight has the same shape as in `state`.
        state: State dictionary of the source, a `UniversalViT`.

    Raises:
        CheckpointError: If the state does not fit the network.
    """
    target = vit.state_dict()
    missing, surplus = target.keys() - state.keys(), state.keys() - target.keys()
    if missing or surplus:
        raise CheckpointError(
            "The weights are not those of this ViT: "
            f"{len(missing)} missing, {len(surplus)} unknown (e.g. {min(missing | surplus)})."
        )
    adapted = dict(state)
    adapted[PATCH_WEIGHT] = _adapt_kernel(state[PATCH_WEIGHT], target[PATCH_WEIGHT].shape)
    grid = target[POSITION_TABLE].shape[2:]
    adapted[POSITION_TABLE] = resample_positions(state[POSITION_TABLE], grid)
    for name, value in adapted.items():
        if value.shape != target[name].shape:
            raise CheckpointError(
                f"Weight {name} has shape {tuple(value.shape)}, this ViT needs "
                f"{tuple(target[name].shape)}; load weights of the same width and patch."
            )
    vit.load_state_dict(adapted)


def _adapt_kernel(kernel: Tensor, shape: torch.Size) -> Tensor:
    channels, depth = shape[1], shape[2]
    if kernel.shape[2] % depth == 0:
        kernel = sum_depth_groups(kernel, depth)
    if kernel.shape[1] != channels:
        kernel = (kernel.sum(1, keepdim=True) / channels).expand(-1, channels, -1, -1, -1)
    return kernel
