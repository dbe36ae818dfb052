"""Initialise Swin UNETR with published weights trained with MONAI."""

import json
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from pumit.errors import CheckpointError
from pumit.models.checkpoint import is_ours
from pumit.models.public_weights import read_pickled_tensors, read_public_weights
from pumit.models.tensor_file import is_pickle
from pumit.networks.swin_merging import MERGINGS, Merging, merging_evidence
from pumit.networks.swin_unetr import SwinUnetr

logger = logging.getLogger(__name__)

PUBLIC_FILE = "weights of MONAI's SwinUNETR (.pt, .pth or .safetensors)"
ENCODER = "swinViT."
# Renames of other versions' parameters, applied in order; `mlp.fc1` is from early pre-trainings.
RENAMED = (
    (r"^(module\.|model\.|net\.|network\.)+", ""),
    (r"^encoder\.(patch_embed\.|layers\d\.0\.)(0\.)?", r"\1"),
    (r"^(patch_embed|layers\d)\.", rf"{ENCODER}\1."),
    (r"\.mlp\.fc([12])\.", r".mlp.linear\1."),
)
FIXED_IN = (1, 5)  # first MONAI release with the current order, June 2025


@dataclass(frozen=True)
class SwinFile:
    """Weights of a file, by the current names of MONAI's SwinUNETR.

    Attributes:
        merging: Order of patch merging in training; the current one if unknown.
        is_known: Whether the file or the weights reveal the order.
    """

    state: dict[str, Tensor]
    merging: Merging
    reason: str
    is_known: bool


def is_public_file(path: Path) -> bool:
    """Return whether a file is a pickle, or safetensors without a PUMIT recipe."""
    return path.is_file() and (is_pickle(path) or not is_ours(path))


def read_swin_unetr_file(path: Path) -> SwinFile:
    """Read a public file, and infer the order of its patch merging.

    The order is taken from the file's `merging` metadata, else from the weights themselves, else
    from a MONAI version before 1.5 in the file or in its bundle's `configs/metadata.json`. A later
    version is no evidence: bundles are released again with old weights. The default is the current
    order.

    Raises:
        CheckpointError: If the file cannot be read, or is not Swin UNETR.
    """
    content, hints = _read(path)
    state = {}
    for name, tensor in content.items():
        for pattern, new in RENAMED:
            name = re.sub(pattern, new, name)
        state[name] = tensor
    if f"{ENCODER}patch_embed.proj.weight" not in state:
        raise CheckpointError(f"{path.name} holds no Swin UNETR; give {PUBLIC_FILE}.")
    if any(name.startswith(f"{ENCODER}layers1c.") for name in state):
        raise CheckpointError(
            f"{path.name} holds a Swin UNETR of version 2 (use_v2), which has other layers; give "
            "one of version 1."
        )
    merging, reason, is_known = _merging_of(state, hints)
    return SwinFile(state, merging, reason, is_known)


def load_swin_unetr_file(network: SwinUnetr, path: Path) -> str:
    """Load the weights of a public file into Swin UNETR, adapting the input channels.

    A whole network loads everything except a last layer for other classes; a pre-trained encoder
    loads the encoder.

    Args:
        network: Network with any channels and classes, the sizes of the file's encoder, and the
            order of patch merging to use; see `SwinFile.merging`.

    Returns:
        Summary of the loaded weights for the user.

    Raises:
        CheckpointError: If the file cannot be read, is not Swin UNETR, or has other sizes.
    """
    found = read_swin_unetr_file(path)
    ours = network.network.state_dict()
    here = _sizes(ours)
    other = {k: v for k, v in _sizes(found.state).items() if here.get(k) != v}
    if other:
        expected = ", ".join(f"{k}: {v}" for k, v in other.items())
        raise CheckpointError(
            f"{path.name} is of another size than this network; set network_sizes: {{{expected}}}."
        )
    is_encoder = not any(name.startswith("decoder1.") for name in found.state)
    taken: dict[str, Tensor] = {}
    fresh: list[str] = []
    for name, value in ours.items():
        theirs = found.state.get(name)
        if theirs is not None and theirs.ndim == value.ndim:
            theirs = _of_channels(theirs, value, network.in_channels)
        if theirs is not None and theirs.shape == value.shape:
            taken[name] = theirs
        elif name.startswith("out.") or (is_encoder and not name.startswith(ENCODER)):
            fresh.append(name)
        elif not name.endswith("relative_position_index"):  # derived from the window size
            raise CheckpointError(
                f"{path.name} does not fit: {name} is {_shape(theirs)} there, {_shape(value)} here."
            )
    network.network.load_state_dict(taken, strict=False)
    left_out = sorted(found.state.keys() - ours.keys())
    if left_out:
        logger.info("left out: %s", ", ".join(left_out))
    rest = "."
    if is_encoder:
        rest = " to the encoder; all else starts from random weights."
    elif fresh:
        rest = "; the last layer starts from random weights, since the classes differ."
    names = {"current": "as MONAI does since 1.5", "before_2025": "as MONAI did before 1.5"}
    used = network.merging
    order = f"Patches are merged {names[used]} (merging: {used})"
    if used == found.merging:
        order += f": {found.reason}."
    else:
        order += f", as network_sizes say, although {found.reason} ({found.merging})."
    if not found.is_known or used != found.merging:
        logger.warning("initial: %s", order)
    return f"{path.name} gave {len(taken)} weights{rest} {order}"


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the file's tensors by name, and metadata that may reveal the MONAI version."""
    if not path.is_file():
        raise CheckpointError(f"There is no file {path.name}; give {PUBLIC_FILE}.")
    hints: dict[str, Any] = {}
    with suppress(OSError, ValueError):  # of a bundle, if the file is <bundle>/models/model.pt
        bundle = path.parent.parent / "configs" / "metadata.json"
        content = json.loads(bundle.read_text(encoding="utf-8"))
        hints = content if isinstance(content, dict) else {}
    if not is_pickle(path):
        state = read_public_weights(path, instead=PUBLIC_FILE)
        with safe_open(str(path), framework="pt") as handle:
            return state, {**hints, **(handle.metadata() or {})}
    state, texts = read_pickled_tensors(path, instead=PUBLIC_FILE)
    return state, {**hints, **texts}


def _merging_of(state: Mapping[str, Tensor], hints: Mapping[str, Any]) -> tuple[Merging, str, bool]:
    """Return the order of patch merging, the reason, and whether it is known."""
    given = hints.get("merging")
    if given in MERGINGS:
        return given, "the file says so", True
    if state[f"{ENCODER}patch_embed.proj.weight"].ndim == 4:
        return "current", "in two dimensions there never was another", True
    evidence = merging_evidence(state)
    verdict = evidence.verdict
    cosines = f"cosine {evidence.twice:.2f}, of others up to {evidence.others:.2f}"
    if verdict == "before_2025":
        return verdict, f"its weights show two corners that were read twice ({cosines})", True
    if verdict == "current":
        return verdict, f"its weights show no corner that was read twice ({cosines})", True
    version = str(hints.get("monai_version", ""))
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and tuple(map(int, numbers.groups())) < FIXED_IN:
        return "before_2025", f"it names MONAI {version}, and its weights do not show it", True
    return "current", "the file does not show the order; set merging to change it", False


def _sizes(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Infer sizes from tensor shapes, under the names of `network_sizes`."""
    embedding = state[f"{ENCODER}patch_embed.proj.weight"]
    sizes: dict[str, Any] = {
        "feature_size": embedding.shape[0],
        "spatial_dims": embedding.ndim - 2,
        "depths": [],
        "num_heads": [],
    }
    for layer in range(1, 5):
        blocks = f"{ENCODER}layers{layer}.0.blocks."
        tables = [
            tensor
            for name, tensor in state.items()
            if name.startswith(blocks) and name.endswith(".relative_position_bias_table")
        ]
        sizes["depths"].append(len(tables))
        sizes["num_heads"] += [t.shape[1] for t in tables[:1]]
        for table in tables[:1]:
            side = round(table.shape[0] ** (1 / sizes["spatial_dims"]))
            sizes["window_size"] = (side + 1) // 2
    return sizes


def _of_channels(kernel: Tensor, target: Tensor, channels: int) -> Tensor:
    """Adapt a kernel on the image to another number of input channels.

    Its response to an image repeated over all channels is unchanged.
    """
    if kernel.shape == target.shape or kernel.ndim < 4 or target.shape[1] != channels:
        return kernel
    mean = kernel.sum(1, keepdim=True) / channels
    return mean.expand(-1, channels, *mean.shape[2:])


def _shape(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else " x ".join(map(str, tensor.shape))
