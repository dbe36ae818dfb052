"""Origin of a training's initial weights, without file names."""

from pathlib import Path

from pumit.errors import CheckpointError
from pumit.models.checkpoint import ModelHeader, read_recipe
from pumit.models.index import find_model, list_models
from pumit.models.tensor_file import is_pickle
from pumit.system.consent import is_restricted
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


def restricted_licence(model: str | Path) -> str:
    """Return the licence of a model if it forbids some uses; else "".

    What is trained from such a model has to be shared under the same licence.
    """
    try:
        path = find_model(model)
        licence = "" if is_pickle(path) else ModelHeader.of(read_recipe(path)[0]).licence
    except CheckpointError:  # another program's file, which states none, or one that is gone
        return ""
    return licence if is_restricted(licence) else ""
