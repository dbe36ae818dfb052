"""Saved state of a run, from which it resumes exactly."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from pumit.errors import CheckpointError, DiskFullError, ExportError
from pumit.models.tensor_file import write_tensors
from pumit.system.files import atomic_path
from pumit.training.recipes.schedule import Schedule

logger = logging.getLogger(__name__)

LAST = "last.safetensors"


@dataclass
class Position:
    """Progress of a run.

    Attributes:
        other_clock_s: Time by the clock that the schedule does not use, in the first process, s.
        skipped: Number of latest consecutive steps that were skipped for their gradient.
    """

    step: int = 0
    elapsed_s: float = 0.0
    other_clock_s: float = 0.0
    skipped: int = 0
    best: float | None = None
    best_step: int = 0
    owes_validation: bool = False


# Field names in runs saved by earlier versions.
_EARLIER_NAMES = {"elapsed": "elapsed_s", "beside": "other_clock_s"}


def position_of(values: Mapping[str, Any]) -> Position:
    """Return a saved position of this version or an earlier one."""
    return Position(**{_EARLIER_NAMES.get(name, name): value for name, value in values.items()})


@dataclass
class Saved:
    """Saved run; tensors are unsharded and on the CPU.

    Attributes:
        optimizer: States by parameter name, or by parameter index in runs of older versions.
    """

    network: dict[str, Tensor]
    average: dict[str, Tensor]
    optimizer: dict[str, dict[str, Tensor]]
    position: Position


def parameter_names(network: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Return the parameter names in the optimizer's order."""
    names = {id(p): name for name, p in network.named_parameters()}
    return [names[id(p)] for group in optimizer.param_groups for p in group["params"]]


def save_run(path: Path, saved: Saved, schedule: Schedule) -> None:
    """Save a run atomically.

    Raises:
        ExportError: If the disk is full or the folder cannot be written; the previous save is
            kept.
    """
    tensors = {f"network.{k}": v for k, v in saved.network.items()}
    tensors |= {f"average.{k}": v for k, v in saved.average.items()}
    for name, state in saved.optimizer.items():
        tensors |= {f"state.{name}.{k}": v for k, v in state.items()}
    position = asdict(saved.position)
    metadata = {"step": str(saved.position.step), "schedule": schedule.model_dump_json()}
    metadata["position"] = json.dumps(position)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path, durable=True) as temporary:
            write_tensors(temporary, tensors, metadata)
    except (ExportError, OSError) as error:
        reason = str(error) if isinstance(error, ExportError) else f"{error.strerror}."
        kind = DiskFullError if isinstance(error, DiskFullError) else ExportError
        raise kind(f"Step {saved.position.step} is not saved. {reason}{_before(path)}") from None


def _before(path: Path) -> str:
    step = step_saved(path)
    if step is None:
        return ""
    return f" {path.name} still holds step {step}; the same command resumes it."


def step_saved(path: Path) -> int | None:
    """Return the step of a saved run, or None if it is missing or unreadable."""
    try:
        with safe_open(str(path), framework="pt") as handle:
            return int(handle.metadata()["step"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return None


def read_run(path: Path, schedule: Schedule) -> Saved | None:
    """Read the last save, or return None.

    Raises:
        CheckpointError: If it is damaged, or uses another optimizer.
    """
    if not path.exists():
        return None
    try:
        tensors = load_file(str(path))
        with safe_open(str(path), framework="pt") as handle:
            metadata = handle.metadata()
        position = Position(step=int(metadata["step"]))
        if "position" in metadata:
            position = position_of(json.loads(metadata["position"]))
        optimizer = json.loads(metadata["schedule"]).get("optimizer", "muon")
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, AttributeError):
        raise CheckpointError(
            f"{path.name} in the output folder is damaged; remove it to start again."
        ) from None
    if optimizer != schedule.optimizer:
        raise CheckpointError(
            f"The output folder holds a run with optimizer {optimizer}, not {schedule.optimizer}; "
            "change it back or choose another folder."
        )
    states: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith(("state.", "optimizer.")):
            owner, key = name.split(".", 1)[1].rsplit(".", 1)
            states.setdefault(owner, {})[key] = value
    logger.info("resumed at step %d", position.step)
    return Saved(_part(tensors, "network."), _part(tensors, "average."), states, position)


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def load_network(network: nn.Module, saved: Saved) -> None:
    """Load the saved weights into the network.

    Raises:
        CheckpointError: If they belong to another network.
    """
    try:
        network.load_state_dict(saved.network)
    except RuntimeError:
        raise CheckpointError(
            "The output folder holds the training of another network, or one that began with an "
            "earlier version of its initial model; choose another folder."
        ) from None


def optimizer_states(saved: Saved, names: list[str]) -> dict[int, dict[str, Any]]:
    """Return the saved states by parameter index, as an optimizer expects them."""
    if saved.optimizer.keys() <= {str(i) for i in range(len(names))} - set(names):
        return {int(i): state for i, state in saved.optimizer.items()}  # of an older version
    return {i: saved.optimizer[n] for i, n in enumerate(names) if n in saved.optimizer}
