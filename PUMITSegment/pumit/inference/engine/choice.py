"""Engine selection: PyTorch on a GPU, OpenVINO on a CPU.

On CPUs with bfloat16 support OpenVINO is 1.6 to 3.5 times faster than PyTorch at the same precision
and Dice (`Testing/lab/records/benchmarks.md`), and starts four seconds sooner. It compiles for a
third of a second per new field shape, if possible while a scan is opened. If one engine is not
installed, the other is used.
"""

from __future__ import annotations

import json
import logging
import os
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pumit.errors import CheckpointError, PumitError
from pumit.inference.devices import has_torch, torch_sees_gpu
from pumit.inference.engine.engine import Engine
from pumit.inference.engine.graph_cache import GraphCache
from pumit.models.weights import Weights, read_weights
from pumit.system.consent import graphs_folder

if TYPE_CHECKING:
    from pumit.models.checkpoint import Checkpoint

logger = logging.getLogger(__name__)

# "openvino" or "torch" forces an engine, for comparisons or where the default choice fails.
VARIABLE = "PUMIT_ENGINE"
LAYER_RANGES = "layer_ranges"  # in the recipe of a checkpoint


def load_engine(path: Path, device: str, *, keeps_graphs: bool = True) -> tuple[Engine, Weights]:
    """Return the engine for a promptable checkpoint, and the checkpoint's weights and metadata.

    Raises:
        CheckpointError: If it is damaged, or of another network.
        PumitError: If the device is absent, or no installed engine supports it.
    """
    requested = os.environ.get(VARIABLE, "auto").lower() or "auto"
    if requested not in ("auto", "openvino", "torch"):
        raise PumitError(f"{VARIABLE} is {requested!r}; use auto, openvino or torch.")
    weights = read_weights(path, "promptable")
    is_for_gpu = device not in ("auto", "cpu") or (device == "auto" and torch_sees_gpu())
    if requested == "torch" or (is_for_gpu and requested == "auto"):
        return _torch_engine(path, weights, device), weights
    if device not in ("auto", "cpu"):
        raise PumitError(
            f"PUMIT uses OpenVINO only on the CPU, not on {device!r}; unset {VARIABLE}."
        )
    try:
        return _openvino_engine(path, weights, keeps_graphs=keeps_graphs), weights
    except PumitError as error:
        if requested == "openvino" or not has_torch():
            raise
        logger.warning("%s PyTorch is used instead.", error)
    return _torch_engine(path, weights, device), weights


def layer_ranges(weights: Weights | Checkpoint) -> dict[str, list[float]]:
    """Return the least and greatest input of each layer that may multiply in eight bits.

    Fine-tuning writes them into the recipe. Those of the shipped weights, measured by
    `fit_ranges.py`, are in one file.
    """
    found = weights.recipe.get(LAYER_RANGES)
    if found is None:
        text = files("pumit.models").joinpath("layer_ranges.json").read_text("utf-8")
        found = json.loads(text).get(weights.sha256, {})
    try:
        ranges = {str(name): [float(least), float(most)] for name, (least, most) in found.items()}
    except (AttributeError, TypeError, ValueError):
        return {}
    return ranges if np.isfinite(list(ranges.values())).all() else {}


def _openvino_engine(path: Path, weights: Weights, *, keeps_graphs: bool) -> Engine:
    try:
        from pumit.inference.engine.openvino_engine import (
            OpenVinoEngine,
            best_precision,
            multiplies_eight_bits,
            sizes_of,
        )
    except ImportError as error:  # not installed, or too old
        remedy = "pip install 'openvino>=2025.0', or pip install torch monai einops for PyTorch"
        raise PumitError(f"OpenVINO cannot be loaded ({_line(error)}); {remedy}.") from None
    try:
        ranges = layer_ranges(weights) if multiplies_eight_bits() else {}
        if ranges:
            logger.info("The network multiplies in eight bits.")
        engine = OpenVinoEngine(
            weights.arrays,
            sizes_of(weights.recipe),
            precision=best_precision(),
            ranges=ranges,
            graphs=lambda identity: GraphCache(
                graphs_folder(), (weights.sha256, *identity), is_read_only=not keeps_graphs
            ),
        )
        engine.foresee()
        return engine
    except CheckpointError:
        raise CheckpointError(
            f"The weights in {path.name} do not fit the network it names; fetch the model again."
        ) from None
    except RuntimeError as error:  # raised by OpenVINO
        raise PumitError(
            f"OpenVINO cannot compute on this CPU ({_line(error)}); "
            "pip install torch monai einops for PyTorch."
        ) from None


def _torch_engine(path: Path, weights: Weights, device: str) -> Engine:
    if not has_torch():
        raise PumitError(
            f"Computing on {device!r} needs PyTorch: pip install torch monai einops; or use cpu."
            if device not in ("auto", "cpu")
            else "This needs PyTorch: pip install torch monai einops."
        )
    from pumit.inference.engine.torch_engine import TorchEngine
    from pumit.inference.loading import build_from, pick_device
    from pumit.models.checkpoint import load_checkpoint
    from pumit.networks.promptable.network import PromptableNetwork

    target = pick_device(device)
    network = build_from(load_checkpoint(path), path, target)
    assert isinstance(network, PromptableNetwork)
    return TorchEngine(network, target)


def _line(error: Exception) -> str:
    """Return the last line of an error, shortened; OpenVINO's errors begin with code locations."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:160].rstrip(".")
