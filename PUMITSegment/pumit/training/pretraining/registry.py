"""What `pumit pretrain` can train, by the network of the recipe."""

from __future__ import annotations

from pumit.errors import PumitError
from pumit.training.pretraining.mamba_mim import MAMBA_MIM_OBJECTIVE
from pumit.training.pretraining.mim import MIM_OBJECTIVE
from pumit.training.pretraining.objective import ObjectiveKind
from pumit.training.pretraining.promptable import PROMPTABLE_OBJECTIVE
from pumit.training.pretraining.swin_ssl import SWIN_SSL_OBJECTIVE
from pumit.training.pretraining.tokenizer import TOKENIZER_OBJECTIVE


def objective_kind(network: str) -> ObjectiveKind:
    """The objective that trains a network of this name.

    Raises:
        PumitError: If none does.
    """
    if network == "promptable":
        return PROMPTABLE_OBJECTIVE
    if network in ("pumit_tokenizer", "pumit_tokenizer_small"):
        return TOKENIZER_OBJECTIVE
    if network in ("pumit_vit_b_mim", "pumit_vit_small_mim"):
        return MIM_OBJECTIVE
    if network in ("swin_ssl", "swin_ssl_small"):
        return SWIN_SSL_OBJECTIVE
    if network in ("mamba_mim", "mamba_mim_small", "mamba_mim_unetr", "mamba_mim_unetr_small"):
        return MAMBA_MIM_OBJECTIVE
    raise PumitError(
        f"{network!r} is not pretrained; networks that are: mamba_mim, mamba_mim_small, "
        "mamba_mim_unetr, mamba_mim_unetr_small, promptable, pumit_tokenizer, "
        "pumit_tokenizer_small, pumit_vit_b_mim, pumit_vit_small_mim, swin_ssl, swin_ssl_small."
    )
