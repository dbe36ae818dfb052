"""Transfer of weights from a network without class vectors to one with them."""

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
    """Extend weights for a network with class vectors so that its answers stay the same.

    New layers keep their initial weights and do not contribute to the answers. Weights that already
    have class vectors stay as they are, except the prototypes of other classes.

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
    # Attention with normalised queries and keys is re-initialised: without normalisation they may
    # have grown so large that training hardly changes their directions.
    scales = [name for name in own if name.endswith(SCALE) and name not in state]
    for scale in scales:
        attention = scale.removesuffix(SCALE)
        fresh = (f"{attention}.{layer}." for layer in ("q", "k"))
        grown |= {name: own[name] for prefix in fresh for name in own if name.startswith(prefix)}
        grown[scale] = own[scale]
    if network.image_encoder.context is None or any(name.startswith(CONTEXT) for name in state):
        return grown
    # 1. In the convolution that joins prompt maps and image, class maps are the last channels.
    grown[f"{DECODER}join_half.weight"] = _spread(
        state[f"{DECODER}join_half.weight"], axis=1, after=0
    )
    # 2. In the layers for shown maps, the prior follows after the class maps; in the weights of
    #    each mask an offset follows, too.
    if f"{DECODER}show.weight" in state:
        grown[f"{DECODER}show.weight"] = _spread(state[f"{DECODER}show.weight"], axis=1, after=1)
        for i in range(network.num_masks):
            for part in ("weight", "bias"):
                name = f"{DECODER}hyper.{i}.2.{part}"
                grown[name] = _spread(state[name], axis=0, after=2)
    # 3. Add the weights that are new.
    return {**{name: own[name] for name in own if name not in grown}, **grown}


def _spread(weight: Tensor, *, axis: int, after: int) -> Tensor:
    """Insert zeros for the class maps along an axis, with `after` entries behind them."""
    shape = list(weight.shape)
    before = weight.narrow(axis, 0, shape[axis] - after)
    behind = weight.narrow(axis, shape[axis] - after, after)
    shape[axis] = CLASS_MAPS
    return torch.cat((before, weight.new_zeros(shape), behind), axis)
