"""Ensembles of automatic models: weights in one file, probabilities averaged.

Members may be the folds of a cross-validation, or different networks. The checkpoint's recipe is
that of the first member, with `network: ensemble` and the members' recipes under `members`. The
weights of member N have the prefix "N.".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.errors import CheckpointError
from pumit.models.card import classes_of, kind_of
from pumit.models.checkpoint import (
    Checkpoint,
    fingerprint,
    load_checkpoint,
    save_checkpoint,
)
from pumit.models.overlap import usual_dice

if TYPE_CHECKING:
    from torch import Tensor

NETWORK = "ensemble"


def is_ensemble(recipe: Mapping[str, Any]) -> bool:
    """Return whether a recipe is that of an ensemble."""
    return recipe.get("network") == NETWORK


def members_of(checkpoint: Checkpoint) -> list[Checkpoint]:
    """Return the members of an ensemble, or a list of the model itself.

    Raises:
        CheckpointError: If the recipe does not list the members.
    """
    if not is_ensemble(checkpoint.recipe):
        return [checkpoint]
    recipes = checkpoint.recipe.get("members")
    if not recipes or not isinstance(recipes, list) or any(type(r) is not dict for r in recipes):
        raise CheckpointError("The ensemble does not say what its members are; make it again.")
    members = []
    for number, recipe in enumerate(recipes):
        prefix = f"{number}."
        own = (name for name in checkpoint.state if name.startswith(prefix))
        state = {name.removeprefix(prefix): checkpoint.state[name] for name in own}
        members.append(Checkpoint(state, recipe, checkpoint.sha256))
    return members


def join_models(paths: Sequence[Path], target: Path, *, name: str) -> None:
    """Join automatic models into an ensemble.

    Args:
        paths: Checkpoints; ensembles among them contribute their members.

    Raises:
        CheckpointError: If there are fewer than two models, two are the same, one is not automatic,
            or their outputs are incompatible.
        ExportError: If the target cannot be written.
    """
    members: list[Checkpoint] = []
    seen: set[str] = set()
    for path in paths:
        checkpoint = load_checkpoint(path)
        if kind_of(checkpoint.recipe) != "automatic":
            raise CheckpointError(f"{path.name} is no automatic model; only such are joined.")
        found = members_of(checkpoint)
        if members:
            _require_alike(members[0], found[0], path.name)
        weights = {fingerprint(_halved(member.state)) for member in found}
        if weights & seen:
            raise CheckpointError(f"{path.name} has the weights of another of these models.")
        seen |= weights
        members += found
    if len(members) < 2:
        raise CheckpointError(f"An ensemble needs 2 models or more, got {len(members)}.")
    first = members[0].recipe
    state: dict[str, Tensor] = {}
    recipes = []
    for number, member in enumerate(members):
        header = member.header
        # Store the resolved sizes, so that later versions build the same network.
        recipes.append({**member.recipe, "sizes": header.sizes})
        state |= {f"{number}.{key}": value for key, value in _halved(member.state).items()}
    networks = ", ".join(dict.fromkeys(str(m.header.network) for m in members))
    licences = list(dict.fromkeys(m.header.licence for m in members))
    told = first.get("training", {})
    channels = {k: told[k] for k in ("channels", "repeat_single_channel") if k in told}
    pieces = [set(m.recipe.get("single_piece", [])) for m in members]
    recipe = {
        **{k: v for k, v in first.items() if k not in ("training", "metrics", "step")},
        "name": name,
        "network": NETWORK,
        "sizes": {},
        "kind": "automatic",
        "members": recipes,
        "description": f"The mean of {len(members)} models ({networks}).",
        "licence": licences[0] if len(licences) == 1 else " and ".join(licences),
        "single_piece": sorted(set.intersection(*pieces)),
        "expected_dice": _usual_dice(members),
        "training": channels,
    }
    save_checkpoint(target, state, recipe)


def _usual_dice(members: Sequence[Checkpoint]) -> list[float | None]:
    """Return the members' mean expected Dice by class; empty if it is not known of all."""
    by_class = zip(*(usual_dice(member) for member in members), strict=False)
    return [
        None if None in values else sum(v for v in values if v is not None) / len(members)
        for values in by_class
    ]


def _halved(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights in half precision; whole numbers, such as indices, stay as they are."""
    return {k: v.half() if v.is_floating_point() else v for k, v in state.items()}


def _require_alike(first: Checkpoint, other: Checkpoint, file: str) -> None:
    """Raise CheckpointError if the outputs of two models are incompatible."""
    ours, theirs = ([c.name for c in classes_of(m.recipe)] for m in (first, other))
    if ours != theirs:
        raise CheckpointError(
            f"{file} has other classes ({', '.join(theirs)}) than the first model "
            f"({', '.join(ours)}); an ensemble needs the same in the same order."
        )
    if first.recipe.get("regions") != other.recipe.get("regions"):
        raise CheckpointError(f"{file} has other regions than the first model.")
    plans = [member.recipe.get("plan", {}) for member in (first, other)]
    for key, usual in (("channels", 1), ("orientation", "anatomical")):
        if plans[0].get(key, usual) != plans[1].get(key, usual):
            raise CheckpointError(f"{file} has another {key} than the first model.")
    named = [m.recipe.get("training", {}).get("channels") or [] for m in (first, other)]
    if len(named[0]) == len(named[1]) > 1 and named[0] != named[1]:
        raise CheckpointError(
            f"{file} has the channels {', '.join(named[1])}, the first model {', '.join(named[0])}."
        )
