"""Give the weights of a network without class vectors to one that has them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pumit.networks.promptable.constants import CLASS_MAPS
from pumit.networks.promptable.network import PromptableNetwork

CONTEXT = "image_encoder.context."
DECODER = "mask_decoder."
PROTOTYPES = "prototypes.weight"
SCALE = ".scale"


def with_class_path(state: Mapping[str, Tensor], network: PromptableNetwork) -> dict[str, Tensor]:
    """Weights for a network with class vectors that answers as the one without did.

    What is new keeps the network's own first weights, and weighs nothing in its answers. Weights
    that have class vectors stay as they are, but for the prototypes of other classes.

    Args:
        state: Weights of a network with or without class vectors.
        network: Network of the same sizes, with class vectors or without.
    """
    grown, own = dict(state), network.state_dict()
    if PROTOTYPES in own and (
        PROTOTYPES not in state or own[PROTOTYPES].shape != state[PROTOTYPES].shape
    ):
        grown[PROTOTYPES] = own[PROTOTYPES]
    if PROTOTYPES not in own:
        grown.pop(PROTOTYPES, None)
    # Attention that compares directions starts over: the queries and keys of attention that did not
    # may have grown so large that hardly a step of training turns them.
    scales = [name for name in own if name.endswith(SCALE) and name not in state]
    for scale in scales:
        attention = scale.removesuffix(SCALE)
        anew = (f"{attention}.{layer}." for layer in ("q", "k"))
        grown |= {name: own[name] for prefix in anew for name in own if name.startswith(prefix)}
        grown[scale] = own[scale]
    if network.image_encoder.context is None or any(name.startswith(CONTEXT) for name in state):
        return grown
    # 1. Where prompt maps meet the image, class maps are the last channels.
    grown[f"{DECODER}join_half.weight"] = _spread(
        state[f"{DECODER}join_half.weight"], axis=1, after=0
    )
    # 2. Where answers are made from maps directly, the earlier answer follows after them, and in
    #    the weights of each mask an offset, too.
    if f"{DECODER}show.weight" in state:
        grown[f"{DECODER}show.weight"] = _spread(state[f"{DECODER}show.weight"], axis=1, after=1)
        for i in range(network.num_masks):
            for part in ("weight", "bias"):
                name = f"{DECODER}hyper.{i}.2.{part}"
                grown[name] = _spread(state[name], axis=0, after=2)
    # 3. What there was not at all.
    return {**{name: own[name] for name in own if name not in grown}, **grown}


def _spread(weight: Tensor, *, axis: int, after: int) -> Tensor:
    """Insert zeros for the class maps along an axis, with `after` entries behind them."""
    shape = list(weight.shape)
    before = weight.narrow(axis, 0, shape[axis] - after)
    behind = weight.narrow(axis, shape[axis] - after, after)
    shape[axis] = CLASS_MAPS
    return torch.cat((before, weight.new_zeros(shape), behind), axis)
