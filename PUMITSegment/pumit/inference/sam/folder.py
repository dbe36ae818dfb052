"""SAM and MedSAM weights from a local folder: config.json and safetensors, never a pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pumit.errors import CheckpointError

if TYPE_CHECKING:
    from transformers import SamModel

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def load_sam(path: str | Path) -> SamModel:
    """Load a SAM model as the transformers package stores it; nothing is fetched or unpickled.

    Args:
        path: Folder with config.json and model.safetensors (or its shards and their index).

    Returns:
        The model in evaluation mode, on the CPU, in float32.

    Raises:
        CheckpointError: If transformers is missing, a file is missing or damaged, the weights are
            a pickle, or the model is not a SAM or lacks weights.
    """
    folder = Path(path)
    _check_folder(folder)
    try:
        from transformers import SamModel
    except ImportError:
        raise CheckpointError(
            "SAM needs the transformers package; install it with: pip install 'pumit[sam]'."
        ) from None
    try:
        model, info = SamModel.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, output_loading_info=True
        )
    except Exception as error:  # transformers and safetensors raise classes of many packages
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"The SAM weights cannot be read ({type(error).__name__}: {_without(reason, folder)}); "
            "copy the model again."
        ) from error
    missing = sorted(info["missing_keys"]) + sorted(map(str, info["mismatched_keys"]))
    if missing:
        raise CheckpointError(
            f"The SAM weights lack {len(missing)} tensors, such as {missing[0]}; "
            "they belong to another network."
        )
    return model.eval().float()


def _check_folder(folder: Path) -> None:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"A SAM model is a folder with a readable config.json ({type(error).__name__}); "
            "choose the folder, not a file in it."
        ) from None
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind != "sam":
        raise CheckpointError(f"config.json describes a model of type {kind!r}, expected 'sam'.")
    if not any((folder / name).is_file() for name in _WEIGHTS):
        raise CheckpointError(
            "The folder has no model.safetensors; pickled weights (.bin, .pth) are not loaded, "
            "convert them with save_pretrained(safe_serialization=True)."
        )


def _without(reason: str, folder: Path) -> str:
    """Return the reason without the path, which may name a person."""
    return reason.replace(str(folder), "the folder")
