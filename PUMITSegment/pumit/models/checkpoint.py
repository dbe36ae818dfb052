"""Checkpoints: one safetensors file with the whole recipe in its metadata.

The files of PUMIT's authors are pickles, of which only tensors are read.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from pumit.errors import CheckpointError
from pumit.models.author_file import is_author_file, read_author_file
from pumit.models.int8_weights import is_quantised, restored, single
from pumit.models.tensor_file import is_pickle, reading_tensors, write_tensors
from pumit.networks.build import stored_sizes, stored_state
from pumit.system.files import atomic_path

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "pumit-checkpoint-1"
FORMAT_INT8 = "pumit-checkpoint-2"  # some weights are 8-bit integers with scales


@dataclass(frozen=True)
class ModelHeader:
    """Metadata common to all kinds of models.

    Attributes:
        sizes: Network arguments that differ from the published ones.
        description: Purpose in a sentence; may be empty.
        step: Training step of the weights; None if unknown.
        learning_rate: Peak learning rate of the training; None if unknown.
    """

    name: str
    version: str
    network: str
    sizes: dict[str, Any]
    description: str
    licence: str
    step: int | None
    learning_rate: float | None

    @staticmethod
    def of(recipe: Mapping[str, Any]) -> ModelHeader:
        """Read the header from a recipe."""
        training = recipe.get("training")
        network = str(recipe.get("network"))
        return ModelHeader(
            str(recipe.get("name", "")),
            str(recipe.get("version", "0")),
            network,
            stored_sizes(network, recipe.get("sizes", {})),
            " ".join(str(recipe.get("description") or "").split()),
            str(recipe.get("licence", "not stated")),
            recipe.get("step"),
            training.get("learning_rate") if isinstance(training, Mapping) else None,
        )


@dataclass
class Checkpoint:
    """Weights and their recipe.

    Attributes:
        state: Tensors by parameter name; quantised weights are restored to floats.
        recipe: Network name, sizes, training data, metrics, licence and so on; JSON values.
    """

    state: dict[str, Tensor]
    recipe: dict[str, Any]
    sha256: str

    @property
    def single(self) -> dict[str, Tensor]:
        """State with floats in single precision."""
        return single(self.state)

    @property
    def header(self) -> ModelHeader:
        """Metadata common to all kinds of models."""
        return ModelHeader.of(self.recipe)


def fingerprint(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the tensors' names, dtypes, shapes and bytes, in order of the names."""
    import torch

    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().contiguous().cpu()
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def save_checkpoint(path: Path, state: Mapping[str, Tensor], recipe: Mapping[str, Any]) -> str:
    """Write weights with their recipe, and return the fingerprint.

    Raises:
        ExportError: If the target cannot be written.
    """
    tensors = {name: t.detach().contiguous().cpu().clone() for name, t in state.items()}
    sha256 = fingerprint(tensors)
    text = json.dumps(dict(recipe))
    kind = FORMAT_INT8 if is_quantised(tensors) else FORMAT
    metadata = {"format": kind, "sha256": sha256, "recipe": text, "recipe_sha256": _digest(text)}
    with atomic_path(path, durable=True) as temporary:
        write_tensors(temporary, tensors, metadata)
    return sha256


def copy_checkpoint(source: Path, target: Path, recipe: Mapping[str, Any]) -> None:
    """Copy a checkpoint with another recipe, without loading the weights.

    Raises:
        ExportError: If the target cannot be written.
    """
    with source.open("rb") as weights, atomic_path(target, durable=True) as temporary:
        # A safetensors file: length of the header, header as JSON, weights.
        header = json.loads(weights.read(int.from_bytes(weights.read(8), "little")))
        text = json.dumps(dict(recipe))
        header["__metadata__"] |= {"recipe": text, "recipe_sha256": _digest(text)}
        packed = json.dumps(header).encode()
        packed += b" " * (-len(packed) % 8)
        with temporary.open("wb") as copy:
            copy.write(len(packed).to_bytes(8, "little") + packed)
            shutil.copyfileobj(weights, copy, 1 << 20)


def read_recipe(path: Path) -> tuple[dict[str, Any], str]:
    """Read recipe and fingerprint without the weights.

    Raises:
        CheckpointError: If the file is neither a PUMIT checkpoint nor one of PUMIT's authors.
    """
    if not path.is_file():
        # Show the path as typed, but no absolute paths, which contain user names.
        shown = path.name if path.is_absolute() else path
        if path.is_dir():
            raise CheckpointError(f"{shown} is a folder; name the .safetensors file in it.")
        raise CheckpointError(f"There is no checkpoint {shown}; `pumit models list` shows all.")
    if is_author_file(path):
        recipe, state = read_author_file(path)
        return recipe, fingerprint(state)
    if is_pickle(path):
        raise CheckpointError(
            f"{path.name} is a pickle, which could run any code; of those only files of the papers'"
            " authors (.ckpt, .pth) are read, with PyTorch."
        )
    metadata = _metadata(path)
    if metadata.get("format") not in (FORMAT, FORMAT_INT8):
        raise CheckpointError(f"{path.name} holds no PUMIT recipe; it is another program's file.")
    try:
        text = metadata["recipe"]
        recipe = json.loads(text)
        digest = _digest(text)
        # The first checkpoints have no checksum of the recipe.
        if not isinstance(recipe, dict) or metadata.get("recipe_sha256", digest) != digest:
            raise ValueError
        return recipe, metadata["sha256"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise CheckpointError(
            f"The recipe inside {path.name} is damaged; fetch it again."
        ) from None


def is_ours(path: Path) -> bool:
    """Return whether a file has a PUMIT recipe; True if damaged, so its reader raises the error."""
    try:
        return "recipe" in _metadata(path)
    except CheckpointError:
        return True


def _metadata(path: Path) -> dict[str, str]:
    with reading_tensors(path), safe_open(str(path), framework="np") as handle:
        return handle.metadata() or {}


def load_checkpoint(path: Path) -> Checkpoint:
    """Read weights and recipe, and verify the fingerprint.

    Raises:
        CheckpointError: If the file is damaged, incomplete, or neither a checkpoint nor a file of
            PUMIT's authors.
    """
    recipe, sha256 = read_recipe(path)
    if is_author_file(path):
        return Checkpoint(read_author_file(path)[1], recipe, sha256)
    with reading_tensors(path), safe_open(str(path), framework="pt") as handle:
        state = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
    if fingerprint(state) != sha256:
        raise CheckpointError(f"{path.name} is damaged: its checksum differs; fetch it again.")
    network = ModelHeader.of(recipe).network
    return Checkpoint(stored_state(network, restored(state)), recipe, sha256)
