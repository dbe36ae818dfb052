"""What `pumit pretrain` can train, by the network of the recipe."""

from __future__ import annotations

from typing import Any

from pumit.errors import PumitError
from pumit.training.pretraining.mamba_mim import MAMBA_MIM_OBJECTIVE
from pumit.training.pretraining.mim import MIM_OBJECTIVE
from pumit.training.pretraining.objective import ObjectiveKind
from pumit.training.pretraining.promptable import PROMPTABLE_OBJECTIVE
from pumit.training.pretraining.swin_ssl import SWIN_SSL_OBJECTIVE
from pumit.training.pretraining.tokenizer import TOKENIZER_OBJECTIVE

# Network of a recipe to the objective that trains it.
_OBJECTIVES: dict[str, ObjectiveKind[Any]] = {
    "mamba_mim": MAMBA_MIM_OBJECTIVE,
    "mamba_mim_small": MAMBA_MIM_OBJECTIVE,
    "mamba_mim_unetr": MAMBA_MIM_OBJECTIVE,
    "mamba_mim_unetr_small": MAMBA_MIM_OBJECTIVE,
    "promptable": PROMPTABLE_OBJECTIVE,
    "pumit_tokenizer": TOKENIZER_OBJECTIVE,
    "pumit_tokenizer_small": TOKENIZER_OBJECTIVE,
    "pumit_vit_b_mim": MIM_OBJECTIVE,
    "pumit_vit_small_mim": MIM_OBJECTIVE,
    "swin_ssl": SWIN_SSL_OBJECTIVE,
    "swin_ssl_small": SWIN_SSL_OBJECTIVE,
}
NETWORKS = tuple(_OBJECTIVES)


def objective_kind(network: str) -> ObjectiveKind[Any]:
    """The objective that trains a network of this name.

    Raises:
        PumitError: If none does.
    """
    if network not in _OBJECTIVES:
        raise PumitError(
            f"{network!r} is not pretrained; networks that are: {', '.join(NETWORKS)}."
        )
    return _OBJECTIVES[network]
