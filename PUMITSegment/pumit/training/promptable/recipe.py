"""What a recipe with `task: promptable` says, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pumit.errors import PumitError
from pumit.training.data.labelled_set import DATA_KINDS
from pumit.training.loop.context import COMMON_KINDS
from pumit.training.recipes.reader import Kinds, check_keys

PARTS = ("decoder", "adapters", "all")
CLICK_KINDS: Kinds = {
    **COMMON_KINDS,
    "part": (str,),
    "rank": (int,),
    "real_share": (int, float),
    "keep": (int, float),
    "batch_size": (int,),
    "targets_per_field": (int,),
    "blend": (list,),
    "validation": (dict,),
}
VALIDATION_KINDS: Kinds = {"answers": (int,), "scenes": (int,)}


@dataclass(frozen=True)
class ClickSettings:
    """How a promptable model is fine-tuned.

    Attributes:
        initial: The model to begin with.
        part: What is trained: `decoder` (with the prompt encoder), `adapters` (low-rank ones in
            the linear layers of the image encoder, and the decoder), or `all`.
        rank: Of the adapters.
        real_share: Share of fields that come from the lab's scans, of which a quarter ask for what
            is beside its structures; the others are generated.
        keep: Weight of answering as the initial model does whatever is not labelled.
        batch_size: Fields of a step; thin ones come in larger batches.
        targets_per_field: Targets asked for in one field.
        blend: Shares of the tuned weights to try at the end, the rest being the initial ones.
        answers: Structures of validation cases that are clicked on, most.
        scenes: Generated scans that are clicked on to see what is forgotten.
    """

    initial: str = "default"
    part: str = "all"
    rank: int = 8
    real_share: float = 0.8
    keep: float = 2.0
    batch_size: int = 1
    targets_per_field: int = 2
    blend: tuple[float, ...] = (0.75, 0.5)
    answers: int = 16
    scenes: int = 8

    @staticmethod
    def from_recipe(recipe: Mapping[str, Any], source: str) -> ClickSettings:
        """Read and check a recipe.

        Args:
            recipe: The whole recipe.
            source: Its file's name, for messages.

        Raises:
            PumitError: If a key is misspelt, or a value cannot be used.
        """
        check_keys(recipe, CLICK_KINDS, source)
        if "data" not in recipe:
            raise PumitError(f"{source} needs data: a folder or a list of cases.")
        check_keys(recipe["data"], DATA_KINDS, "data")
        if recipe.get("network", "promptable") != "promptable" or "network_sizes" in recipe:
            raise PumitError(
                f"{source} trains the network of its initial model; leave network and "
                "network_sizes out."
            )
        asked = recipe.get("validation", {})
        check_keys(asked, VALIDATION_KINDS, "validation")
        known = {f.name for f in fields(ClickSettings)}
        given = {k: v for k, v in {**recipe, **asked}.items() if k in known}
        given["blend"] = _shares(given.get("blend", ClickSettings.blend), source)
        settings = ClickSettings(**given)
        if settings.part not in PARTS:
            raise PumitError(
                f"part in {source} must be {', '.join(PARTS[:-1])} or {PARTS[-1]}, got "
                f"{settings.part!r}."
            )
        if not 0 < settings.real_share <= 1:
            raise PumitError(f"real_share in {source} must be above 0 and at most 1.")
        for name in ("rank", "answers"):
            if getattr(settings, name) < 1:
                raise PumitError(f"{name} in {source} must be at least 1.")
        return settings


def _shares(given: Any, source: str) -> tuple[float, ...]:
    """Shares of a blend, falling."""
    is_number = [isinstance(v, (int, float)) and not isinstance(v, bool) for v in given]
    if not given or not all(is_number) or not all(0 < v <= 1 for v in given):
        raise PumitError(
            f"blend in {source} must be a list of shares above 0 and at most 1, got {given}."
        )
    return tuple(sorted({*map(float, given)}, reverse=True))
