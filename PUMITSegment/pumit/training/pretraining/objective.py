"""Objectives of `pumit pretrain`, and how they are built from a recipe."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor, nn

from pumit.errors import CheckpointError
from pumit.models.checkpoint import load_checkpoint
from pumit.models.index import find_model
from pumit.networks.build import RECIPES, build_network
from pumit.networks.promptable.growth import with_class_path
from pumit.networks.promptable.network import PromptableNetwork
from pumit.training.loop.task import Task
from pumit.training.recipes.pretraining import PretrainingRecipe


@dataclass
class Objective:
    """A training task with the content of its checkpoint.

    Attributes:
        degrees: Share of steps of each degree of anisotropy.
        content: Checkpoint metadata: `network`, `sizes` and what inference needs.
        prefix: Prefix of the model's weights, removed in the checkpoint; other weights are left
            out.
    """

    task: Task
    degrees: Mapping[int, float]
    content: dict[str, Any] = field(default_factory=dict)
    prefix: str = ""


N = TypeVar("N", bound=nn.Module)


def sizes_of(recipe: PretrainingRecipe) -> dict[str, Any]:
    """Return the sizes of a recipe's network: defaults, overridden by the recipe."""
    return {**RECIPES[recipe.network].sizes, **recipe.network_sizes}


def begun_network(recipe: PretrainingRecipe, kind: type[N]) -> N:
    """Build a recipe's network, and load its initial model if given.

    Raises:
        CheckpointError: If the initial model is missing, or of another network or size.
    """
    network = build_network(recipe.network, **sizes_of(recipe))
    assert isinstance(network, kind)
    if recipe.initial is not None:
        load_initial_network(network, recipe.initial, recipe.network)
    return network


def load_initial_network(network: nn.Module, model: str, name: str) -> Mapping[str, Tensor]:
    """Load the weights of a model into a network, which keeps its precision; return the weights.

    Args:
        model: Name in the model index, or path of a checkpoint.

    Raises:
        CheckpointError: If the model is missing, or of another network or size.
    """
    path = find_model(model)
    checkpoint = load_checkpoint(path)
    if checkpoint.header.network != name:
        raise CheckpointError(
            f"initial {path.name} holds the network {checkpoint.header.network!r}; this "
            f"recipe trains {name}."
        )
    state = checkpoint.state
    if isinstance(network, PromptableNetwork):
        state = with_class_path(state, network)
    try:
        network.load_state_dict(state)
    except RuntimeError:
        raise CheckpointError(
            f"initial {path.name} has other network_sizes than this recipe; make them the same, or "
            "remove initial to train from scratch."
        ) from None
    return checkpoint.state
