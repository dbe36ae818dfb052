"""Origin of a training's initial weights, without file names."""

from pathlib import Path

from pumit.errors import CheckpointError
from pumit.models.checkpoint import read_recipe
from pumit.models.index import find_model, list_models
from pumit.system.files import file_sha256


def origin_of(model: str | Path) -> dict[str, str]:
    """Return the fingerprint of a model, and its name if it is in the index.

    Args:
        model: Name in the index, or a file, also one of another program.

    Returns:
        `sha256`, of a checkpoint's weights or of another file's bytes; and `name`.

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
