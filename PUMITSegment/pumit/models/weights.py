"""Weights as NumPy arrays, read without torch."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import deserialize

from pumit.errors import CheckpointError
from pumit.models.card import ModelKind, kind_of
from pumit.models.checkpoint import ModelHeader, read_recipe
from pumit.models.int8_weights import restored
from pumit.models.tensor_file import reading_tensors

# Dtype in the file to its names in torch, which fingerprints include, and in NumPy.
_TYPES = {
    "F64": ("float64", "<f8"),
    "F32": ("float32", "<f4"),
    "F16": ("float16", "<f2"),
    "BF16": ("bfloat16", "<u2"),
    "I64": ("int64", "<i8"),
    "I32": ("int32", "<i4"),
    "I16": ("int16", "<i2"),
    "I8": ("int8", "|i1"),
    "U8": ("uint8", "|u1"),
    "BOOL": ("bool", "|b1"),
}
_MISMATCH: dict[ModelKind, str] = {
    "promptable": "takes no prompts; choose a promptable model",
    "automatic": "segments nothing by itself; choose an automatic model",
    "tokenizer": "reconstructs nothing; choose a tokenizer",
    "encoder": "is no pre-trained encoder; choose one",
    "classifier": "tells no classes of a whole scan; choose a classifier",
}


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights as arrays, with their recipe."""

    arrays: dict[str, npt.NDArray[np.float32]]
    recipe: dict[str, Any]
    sha256: str


def require_kind(recipe: dict[str, Any], file: str, kind: ModelKind) -> None:
    """Raise CheckpointError unless a model is of the given kind."""
    if kind_of(recipe) != kind:
        raise CheckpointError(
            f"{file} holds the network {ModelHeader.of(recipe).network!r}, which {_MISMATCH[kind]}."
        )


def not_finite(file: str) -> CheckpointError:
    """Return the error for weights that are not finite."""
    return CheckpointError(
        f"{file} holds weights that are not finite numbers: its training failed; "
        "use an earlier checkpoint."
    )


def read_weights(path: Path, kind: ModelKind | None) -> Weights:
    """Read weights and recipe, and verify the fingerprint.

    Args:
        kind: Required kind of the model, or None for any.

    Raises:
        CheckpointError: If the file is damaged, incomplete, a pickle, not a checkpoint, or of
            another kind.
    """
    recipe, sha256 = read_recipe(path)
    with reading_tensors(path):
        stored = dict(deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
    digest = hashlib.sha256()
    arrays = {}
    for name in sorted(stored):
        entry = stored[name]
        if entry["dtype"] not in _TYPES:
            raise CheckpointError(f"{path.name} holds weights of the type {entry['dtype']}.")
        in_torch, in_numpy = _TYPES[entry["dtype"]]
        shape = tuple(entry["shape"])
        digest.update(f"{name}:torch.{in_torch}:{shape};".encode())
        digest.update(entry["data"])
        values = np.frombuffer(entry["data"], dtype=in_numpy).reshape(shape)
        if in_torch == "bfloat16":  # the upper half of a float32
            values = (values.astype(np.uint32) << 16).view(np.float32)
        arrays[name] = values.astype(np.float32)
    if digest.hexdigest() != sha256:
        raise CheckpointError(f"{path.name} is damaged: its checksum differs; fetch it again.")
    if kind is not None:
        require_kind(recipe, path.name, kind)
    arrays = restored(arrays)
    if not all(np.isfinite(values).all() for values in arrays.values()):
        raise not_finite(path.name)
    return Weights(arrays, recipe, sha256)
