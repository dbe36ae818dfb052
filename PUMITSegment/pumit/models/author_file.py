"""Weights published by PUMIT's authors, converted to our checkpoint format."""

from __future__ import annotations

import logging
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.errors import CheckpointError
from pumit.models.tensor_file import is_pickle

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)

KINDS = {"pumit_tokenizer": "tokenizer", "pumit_vit_b": "encoder", "pumit_vit_b_mim": "encoder"}
# Window size that their tokenizer was trained with.
PLAN = {"in_plane": 128, "depth": 64}
READABLE = (
    "PUMIT's tokenizer and ViT (.ckpt of its authors), MONAI's SwinUNETR in `initial`, and "
    "segment-anything's and MedSAM's (.pth) in `pumit segment --model` and `pumit train sam`"
)


def is_author_file(path: Path) -> bool:
    """Return whether a file may be a pickle of PUMIT's authors, and PyTorch is installed.

    A pickle named .safetensors is disguised and not accepted.
    """
    is_named = path.suffix != ".safetensors"
    return is_named and is_pickle(path) and find_spec("torch") is not None


def read_author_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the weights of PUMIT's authors from a pickle; only tensors are read.

    Returns:
        A recipe as in our checkpoints, and the weights by our names.

    Raises:
        CheckpointError: If the file cannot be read safely, or holds another network.
    """
    status = path.stat()
    return _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1)  # recipe and weights are requested one after the other
def _read(path: Path, changed: int, size: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from pumit.models.public_weights import read_pickled_tensors, unfitting_weights
    from pumit.networks.pumit.authors import authors_weights

    state, _ = read_pickled_tensors(path, instead=READABLE)
    try:
        found = authors_weights(_stripped(state))
    except CheckpointError as error:
        raise CheckpointError(f"{path.name} cannot be used: {error}.") from None
    if found is None:
        raise CheckpointError(
            f"{path.name} is a pickle of a network that is not known here. Files of others that "
            f"are read: {READABLE}."
        )
    wrong = unfitting_weights(found.network, found.sizes, found.state)
    if wrong:
        raise CheckpointError(
            f"{path.name} is not PUMIT's release: {len(wrong)} weights are missing or of another "
            f"shape, such as {wrong[0]}."
        )
    if found.left_out:
        logger.info("left out: %s", ", ".join(found.left_out))
    recipe = {
        "name": path.stem,
        "version": "of its authors",
        "network": found.network,
        "sizes": {k: list(v) if isinstance(v, tuple) else v for k, v in found.sizes.items()},
        "kind": KINDS[found.network],
        "plan": PLAN,
        "description": "Weights of PUMIT's authors.",
        "licence": "not stated in the file; ask its authors",
    }
    return recipe, found.state


def _stripped(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Remove the prefixes that wrappers add to parameter names."""
    prefixes = ("module.", "_orig_mod.", "model.", "tokenizer.")
    while prefix := next(
        (p for p in prefixes if state and all(n.startswith(p) for n in state)), ""
    ):
        state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state
