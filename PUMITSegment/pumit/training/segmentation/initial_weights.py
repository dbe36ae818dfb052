"""Initialise a segmentation network with the weights of an earlier model."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pumit.errors import CheckpointError
from pumit.models.author_file import is_author_file
from pumit.models.checkpoint import Checkpoint, ModelHeader, load_checkpoint, read_recipe
from pumit.models.index import find_model
from pumit.models.int8_weights import single
from pumit.models.swin_unetr_file import (
    is_public_file,
    load_swin_unetr_file,
    read_swin_unetr_file,
)
from pumit.networks.build import RECIPES
from pumit.networks.nnformer.network import NnFormer, tables_for
from pumit.networks.pumit.segmentation_network import SegmentationNetwork
from pumit.networks.pumit.transfer import load_universal_weights
from pumit.networks.swin_unetr import SwinUnetr
from pumit.training.loop.initial_encoder import load_initial_encoder
from pumit.training.segmentation.networks import (
    FAMILIES,
    PretrainedEncoder,
    class_of,
    family_of,
)

logger = logging.getLogger(__name__)


def load_initial_weights(
    network: nn.Module, model: str, *, sizes: Mapping[str, Any] | None = None
) -> str:
    """Load the weights of an earlier model.

    A segmentation network of the same class provides all weights, except layers for other classes
    or image channels. A pre-training provides the encoder: a universal ViT, also the authors', for
    PUMIT (with its patch embedding summed along depth and its position table resampled), MambaMIM
    for its networks, the promptable network for PUMIT's encoder, Swin UNETR's self-supervision or a
    public file of weights for Swin UNETR.

    Args:
        model: Name in the model index, or a checkpoint file.
        sizes: Sizes of the network; some change the meaning of weights but not their shapes.

    Returns:
        Summary for the user of a public file; else empty.

    Raises:
        CheckpointError: If the model is unknown, or of another width or kind.
    """
    path = find_model(model)
    family = FAMILIES[type(network).__name__]
    if _is_of_others(path, is_swin=isinstance(network, SwinUnetr)):
        if not isinstance(network, SwinUnetr):
            raise CheckpointError(
                f"initial {path.name} is a file of another program, which only Swin UNETR can "
                f"begin with; give a model of {family.title} that pumit has trained."
            )
        return load_swin_unetr_file(network, path)
    checkpoint = load_checkpoint(path)
    theirs = checkpoint.header.network
    ours, given = sizes or {}, checkpoint.header.sizes
    for key in family.alike:
        if key in ours and key in given and ours[key] != given[key]:
            raise CheckpointError(
                f"initial {path.name} has {key}: {given[key]}, this network {ours[key]}; make "
                "network_sizes the same."
            )
    if class_of(theirs) == type(network).__name__:
        _take_all(network, checkpoint, path.name, ours)
    elif isinstance(network, SegmentationNetwork):
        load_initial_encoder(network.vit, str(path))
    elif family.encoder is not None and theirs.startswith(family.encoder.network):
        _take_encoder(network, checkpoint.state, family.encoder, path.name)
    else:
        fits = f" or of a pre-training ({family.encoder.network})" if family.encoder else ""
        raise CheckpointError(
            f"initial {path.name} holds the network {theirs!r}, which is not the one that this "
            f"recipe trains ({family.title}); give one of the same kind{fits}."
        )
    return ""


def sizes_of_initial(name: str, given: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return the sizes to take from an earlier model unless they are given; see `Family.alike`.

    Raises:
        CheckpointError: If the model is unknown or cannot be read.
    """
    left_open = [key for key in family_of(name).alike if key not in given]
    path = find_model(model)
    if not left_open:
        return {}
    is_swin = class_of(name) == SwinUnetr.__name__
    if _is_of_others(path, is_swin=is_swin):
        return {"merging": read_swin_unetr_file(path).merging} if is_swin else {}
    theirs = ModelHeader.of(read_recipe(path)[0]).sizes
    return {key: theirs[key] for key in left_open if key in theirs}


def _is_of_others(path: Path, *, is_swin: bool) -> bool:
    """Return whether a file is in a public format, except files of PUMIT's authors."""
    return is_public_file(path) and (is_swin or not is_author_file(path))


def _take_all(
    network: nn.Module, checkpoint: Checkpoint, file: str, sizes: Mapping[str, Any]
) -> None:
    state = checkpoint.single
    ours = network.state_dict()
    if isinstance(network, SegmentationNetwork):
        vit = {k[4:]: v for k, v in state.items() if k.startswith("vit.")}
        try:
            load_universal_weights(network.vit, vit)
        except CheckpointError:
            raise CheckpointError(
                f"initial {file} has other widths or patches than this network; make "
                f"network_sizes the same{_different(sizes, checkpoint.header.sizes)}."
            ) from None
        ours = {k: v for k, v in ours.items() if not k.startswith("vit.")}
    if isinstance(network, NnFormer):
        header = checkpoint.header
        windows = {**RECIPES[header.network].sizes, **header.sizes}["windows"]
        try:
            state = tables_for(network, state, windows)
        except ValueError as error:
            raise CheckpointError(f"initial {file} has other windows: {error}.") from None
    family = FAMILIES[type(network).__name__]
    fresh = [k for k, v in ours.items() if k not in state or state[k].shape != v.shape]
    for key in fresh:
        if not key.startswith(family.reads_image + family.writes_classes):
            raise CheckpointError(
                f"initial {file} has other widths than this network ({_both(key, state, ours)}); "
                f"make network_sizes the same{_different(sizes, checkpoint.header.sizes)}."
            )
    _load(network, {k: state[k] for k in ours if k not in fresh}, fresh)


def _take_encoder(
    network: nn.Module, given: Mapping[str, Tensor], encoder: PretrainedEncoder, file: str
) -> None:
    """Load the weights of a pre-trained encoder; all others stay random.

    Kernels on the image are averaged over different channels, and summed over the slices if a patch
    has fewer.
    """
    family = FAMILIES[type(network).__name__]
    state = {
        encoder.ours + k.removeprefix(encoder.theirs): v
        for k, v in single(given).items()
        if k.startswith(encoder.theirs)
    }
    whole = network.state_dict()
    ours = {
        k: v
        for k, v in whole.items()
        if k.startswith(encoder.ours) and not k.startswith(encoder.fresh)
    }
    for key, value in ours.items():
        if key in state and state[key].shape == value.shape:
            continue
        if key in state and key.startswith(family.reads_image):
            state[key] = _reading(state[key], value)
            if state[key].shape == value.shape:
                continue
        raise CheckpointError(
            f"initial {file} was pre-trained in other sizes than this network "
            f"({_both(key, state, ours)}); make network_sizes the same."
        )
    _load(network, {k: state[k] for k in ours}, [k for k in whole if k not in ours])


def _reading(kernel: Tensor, target: Tensor) -> Tensor:
    """Adapt a kernel (out, in, d, h, w) to other channels and fewer slices.

    Its response to an image repeated over channels, and to equal slices, is unchanged.
    """
    if kernel.ndim != 5 or target.ndim != 5:
        return kernel
    channels, depth = target.shape[1:3]
    if kernel.shape[1] != channels:
        kernel = kernel.sum(1, keepdim=True).expand(-1, channels, -1, -1, -1) / channels
    if kernel.shape[2] % depth == 0:
        kernel = kernel.reshape(*kernel.shape[:2], depth, -1, *kernel.shape[3:]).sum(3)
    return kernel


def _load(network: nn.Module, state: Mapping[str, Tensor], fresh: list[str]) -> None:
    if fresh:
        logger.info("these start from random weights: %s", ", ".join(fresh))
    network.load_state_dict(state, strict=False)


def _both(key: str, state: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> str:
    """Return a tensor's name and both shapes."""
    here = " x ".join(map(str, ours[key].shape)) or "one number"
    there = " x ".join(map(str, state[key].shape)) or "one number" if key in state else "absent"
    return f"{key}: {there} there, {here} here"


def _different(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return the differing sizes of an earlier model, as the end of a sentence."""
    follow = ("in_channels", "num_classes", "position_table", "windows")
    listed = {k: json.loads(json.dumps(v)) for k, v in ours.items()}  # tuples as lists
    differences = [
        f"{k}: {theirs[k]}"
        for k in listed
        if k in theirs and k not in follow and theirs[k] != listed[k]
    ]
    return f", there {', '.join(differences)}" if differences else ""
