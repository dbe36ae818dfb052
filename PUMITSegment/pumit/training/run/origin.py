"""The origin of a training's first weights, without names of files."""

from __future__ import annotations

from pathlib import Path

from pumit.errors import CheckpointError
from pumit.models.checkpoint import read_recipe
from pumit.models.index import find_model, list_models
from pumit.system.checksum import file_sha256


def origin_of(model: str | Path) -> dict[str, str]:
    """Tell of an earlier model: its fingerprint, and its name where it is one of the index.

    Args:
        model: A name of the index, or a file, which may be another program's.

    Returns:
        `sha256`, of the weights of a checkpoint or of another file's bytes; and `name`.

    Raises:
        CheckpointError: If there is no such model.
    """
    path = find_model(model)
    named = {e.name: e.path for e in list_models()}
    known = {"name": str(model)} if named.get(str(model)) == path else {}
    try:
        return {**known, "sha256": read_recipe(path)[1]}
    except CheckpointError:
        if not path.is_file():
            raise
        return {**known, "sha256": file_sha256(path)}
