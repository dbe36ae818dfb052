"""Files of the papers' authors, as a recipe and weights that a checkpoint of ours can hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.models.author_file import is_author_file, read_author_file
from pumit.models.sam_file import is_sam_file, read_sam_file

if TYPE_CHECKING:
    from torch import Tensor


def foreign_model(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """Read a file of PUMIT's, SAM's or MedSAM's authors; None for a file or folder of ours.

    Raises:
        CheckpointError: If it cannot be read safely, or holds another network.
    """
    found = read_sam_file(path) if is_sam_file(path) else None
    if found is None and path.is_file() and is_author_file(path):
        return read_author_file(path)
    return found
