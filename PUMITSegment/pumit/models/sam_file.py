"""SAM's weights: `.pth` of segment-anything and MedSAM, and PUMIT checkpoints made from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.errors import CheckpointError
from pumit.models.author_file import is_author_file, read_author_file
from pumit.models.tensor_file import is_pickle

if TYPE_CHECKING:
    from torch import Tensor

NETWORK = "sam"
WEIGHTS = "model.safetensors"
PUBLIC_FILE = "segment-anything's or MedSAM's weights of ViT-B, L or H (.pth)"
DESCRIPTION = "Segments 2D images and slices by clicks and boxes; SAM, of any scan and photograph."
MISSING = "SAM needs the transformers package; install it with: pip install torch transformers."


def read_sam_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """Read SAM's weights from a public file; None if it holds another network.

    Args:
        path: A pickle, of which only tensors are read; a safetensors file without a PUMIT recipe,
            or a folder with `model.safetensors`, as the transformers package writes them.

    Returns:
        A recipe as in our checkpoints, and the weights by our names.

    Raises:
        CheckpointError: If the file cannot be read safely, or weights are missing.
    """
    from pumit.models.public_weights import (
        read_pickled_tensors,
        read_public_weights,
        unfitting_weights,
    )
    from pumit.networks.sam_names import named, sam_sizes, sam_state

    name, path = (path.name, path / WEIGHTS) if path.is_dir() else (path.stem, path)
    if is_pickle(path):
        state, _ = read_pickled_tensors(path, instead=PUBLIC_FILE)
    else:
        state = read_public_weights(path, instead=PUBLIC_FILE)
    if all(name.startswith("module.") for name in state):
        state = {name.removeprefix("module."): tensor for name, tensor in state.items()}
    by_name = named(state)
    if by_name is None:
        return None
    try:
        sizes = sam_sizes(by_name)
        found = sam_state(by_name, sizes)
        wrong = unfitting_weights(NETWORK, sizes, found)
    except ImportError:
        raise CheckpointError(MISSING) from None
    except CheckpointError as error:
        raise CheckpointError(f"{path.name} cannot be used: {error}.") from None
    if wrong:
        raise CheckpointError(
            f"{path.name} is not whole: {len(wrong)} weights are missing or of another shape, such "
            f"as {wrong[0]}; give {PUBLIC_FILE}."
        )
    recipe = {
        "name": name,
        "version": "of its authors",
        "network": NETWORK,
        "kind": "promptable",
        "sizes": sizes,
        "description": DESCRIPTION,
        "licence": "not stated in the file; ask its authors",
    }
    return recipe, found


def is_sam_file(path: Path) -> bool:
    """Return whether a file or folder may hold SAM's weights in a public format.

    Whether it holds another network is only detected when it is read.
    """
    from pumit.models.checkpoint import is_ours

    if path.is_dir():
        return (path / WEIGHTS).is_file()
    if not path.is_file():
        return False
    is_disguised = path.suffix == ".safetensors" and is_pickle(path)
    return not is_disguised and (is_pickle(path) or not is_ours(path))


def is_sam_model(path: Path) -> bool:
    """Return whether a model may be SAM in a public format, or is a PUMIT checkpoint of SAM."""
    from pumit.models.checkpoint import ModelHeader, read_recipe

    if is_sam_file(path):
        return True
    try:
        return ModelHeader.of(read_recipe(path)[0]).network == NETWORK
    except CheckpointError:  # reported when it is loaded
        return False


def foreign_model(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """Read a file of PUMIT's, SAM's or MedSAM's authors; None for a PUMIT checkpoint.

    Raises:
        CheckpointError: If the file cannot be read safely, or holds another network.
    """
    found = read_sam_file(path) if is_sam_file(path) else None
    if found is None and path.is_file() and is_author_file(path):
        return read_author_file(path)
    return found
