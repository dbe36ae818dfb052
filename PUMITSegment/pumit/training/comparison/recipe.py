"""The recipe of `pumit compare`: networks that are trained alike, checked before anything is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.training.recipes.model import check_schedule
from pumit.training.recipes.reader import Kinds, check_keys, read_yaml
from pumit.training.recipes.schedule import DEFAULT_SCHEDULE, Schedule
from pumit.training.validate import check_recipe

COMPARISON_KINDS: Kinds = {
    "title": (str,),
    "data": (dict,),
    "plan": (dict,),
    "augmentation": (dict, bool),
    "balanced_share": (int, float),
    "validation": (dict,),
    "schedule": (dict,),
    "seeds": (list,),
    "seconds": (int, float),
    "clock": (str,),
    "threads": (int,),
    "processes": (int,),
    "device": (str,),
    "pictures": (bool,),
    "networks": (list,),
}
NETWORK_KINDS: Kinds = {
    "name": (str,),
    "network": (str,),
    "network_sizes": (dict,),
    "schedule": (dict,),
    "initial": (str,),
    "share": (int, float),
    "tuning": (str,),
}
# What a network may have of its own of the schedule: how a step is taken, not how many there are.
OWN_SCHEDULE = (
    "learning_rate",
    "optimizer",
    "momentum",
    "betas",
    "weight_decay",
    "clip",
    "largest_norm",
)
# What of a schedule the comparison itself decides, and where a recipe says it.
NOT_IN_SCHEDULE = {
    "seconds": "give seconds beside schedule, for all networks",
    "clock": "give clock beside schedule, for all networks",
    "validate_every": "only the end of a training is judged",
    "parallel": "each training is one process",
}
DEFAULT_SEEDS = (0, 1, 2)
FOREVER = 1_000_000  # steps, where seconds end a training
LOG_EVERY = 10
NAME = re.compile(r"\w[\w .+()-]*")


@dataclass(frozen=True)
class ComparedNetwork:
    """A network of a comparison, and all that it does not share with the others.

    Attributes:
        name: What the tables call it.
        network: What `build_network` calls it.
        sizes: Those that the recipe changes.
        schedule: Values of `OWN_SCHEDULE`.
        initial: What its training begins with; None for random weights.
        share: Part of the training cases that it is trained on.
        tuning: How its settings were chosen, in a sentence for the page; "" where nobody says.
    """

    name: str
    network: str
    sizes: Mapping[str, Any] = field(default_factory=dict)
    schedule: Mapping[str, Any] = field(default_factory=dict)
    initial: str | None = None
    share: float | None = None
    tuning: str = ""

    @property
    def slug(self) -> str:
        """The name as part of a file's."""
        return re.sub(r"[^\w.-]+", "_", self.name).strip("_.")


@dataclass(frozen=True)
class Comparison:
    """What is to be compared.

    Attributes:
        recipe: As it was given, with what the command line replaces.
        source: Its file's name, for messages.
        networks: In the recipe's order; differences are to the first.
        seeds: Each network is trained once with each.
        schedule: What all networks share of it, whole.
    """

    recipe: Mapping[str, Any]
    source: str
    networks: tuple[ComparedNetwork, ...]
    seeds: tuple[int, ...]
    schedule: Mapping[str, Any]

    @property
    def draws(self) -> bool:
        """Whether the page may show pictures of the cases."""
        return bool(self.recipe.get("pictures", False))

    @property
    def processes(self) -> int:
        """How many trainings run at a time."""
        return int(self.recipe.get("processes", 1))

    def training_recipe(self, network: ComparedNetwork, seed: int) -> dict[str, Any]:
        """The recipe of one training, as `pumit train` follows it.

        Args:
            network: What is trained.
            seed: Of everything random.
        """
        kept = ("data", "plan", "augmentation", "balanced_share", "validation", "device", "threads")
        recipe: dict[str, Any] = {
            "task": "segmentation",
            "name": network.slug,
            "network": network.network,
            "network_sizes": dict(network.sizes),
            "seed": seed,
            "workers": 0,  # whose time would be nobody's
            "register": False,
            **{key: self.recipe[key] for key in kept if key in self.recipe},
            "schedule": {**self.schedule, **network.schedule},
        }
        if network.initial is not None:
            recipe["initial"] = network.initial
        if network.share is not None:
            recipe["data"] = {**recipe["data"], "share": network.share}
        return recipe


def read_comparison(path: Path, *, data: Mapping[str, Any] | None = None) -> Comparison:
    """Read the recipe of a comparison and check every key; reads no scan.

    Args:
        path: YAML recipe.
        data: Keys of its `data` to replace.

    Raises:
        PumitError: If a key is misspelt (the nearest right one is named), a value is unusable, or
            what is asked for is no comparison.
    """
    recipe = read_yaml(path)
    recipe["data"] = {**recipe.get("data", {}), **(data or {})}
    return checked_comparison(recipe, path.name)


def checked_comparison(recipe: Mapping[str, Any], source: str) -> Comparison:
    """A comparison from its recipe.

    Args:
        recipe: All of it.
        source: Its file's name, for messages.

    Raises:
        PumitError: See `read_comparison`.
    """
    check_keys(recipe, COMPARISON_KINDS, source)
    if recipe.get("processes", 1) < 1:
        raise PumitError(f"processes in {source} must be at least 1.")
    if "share" in recipe.get("data", {}):
        raise PumitError("Give share with the network that is to learn from fewer cases.")
    schedule = _common_schedule(recipe, source)
    networks = _networks(recipe.get("networks", []), source)
    found = Comparison(recipe, source, networks, _seeds(recipe, source), schedule)
    for network in networks:
        training = found.training_recipe(network, found.seeds[0])
        try:
            check_recipe(training, source)
            Schedule(**training["schedule"])
        except PumitError as error:
            raise PumitError(f"{network.name}: {error}") from None
    return found


def _common_schedule(recipe: Mapping[str, Any], source: str) -> dict[str, Any]:
    given = recipe.get("schedule", {})
    check_schedule(given)
    for key, remedy in NOT_IN_SCHEDULE.items():
        if key in given:
            raise PumitError(f"{key} cannot stand in schedule of a comparison: {remedy}.")
    seconds = recipe.get("seconds")
    if seconds is None and "steps" not in given:
        raise PumitError(
            f"{source} needs seconds: how long each training is (or steps in schedule)."
        )
    if seconds == 0:
        raise PumitError(f"seconds in {source} must be above 0.")
    usual = {**DEFAULT_SCHEDULE, "log_every": LOG_EVERY}
    if seconds is not None:
        usual["steps"] = FOREVER
    schedule = {**usual, **given, "clock": recipe.get("clock", "wall"), "validate_every": 0}
    if seconds is not None:
        schedule["seconds"] = float(seconds)
    falls = schedule["shape"] == "cosine" or schedule.get("decay_seconds")
    if seconds is not None and "steps" not in given and not falls:
        raise PumitError(
            f"shape: {schedule['shape']} falls by steps, and seconds end these trainings; choose "
            "cosine, or give decay_seconds."
        )
    return schedule


def _networks(rows: Sequence[Any], source: str) -> tuple[ComparedNetwork, ...]:
    if not rows:
        raise PumitError(f"{source} needs networks: a list of at least one.")
    networks: list[ComparedNetwork] = []
    for number, row in enumerate(rows, start=1):
        where = f"networks, number {number}"
        if not isinstance(row, Mapping) or "network" not in row:
            raise PumitError(f"{where}: it needs the key network, and may have a name.")
        check_keys(row, NETWORK_KINDS, where)
        networks.append(_network(row, where))
    seen: dict[str, str] = {}
    for network in networks:
        key = network.slug.lower()  # some file systems do not tell cases apart
        if key in seen:
            same = f"Two networks are called {network.name!r}"
            alike = f"The names {seen[key]!r} and {network.name!r} are one folder's"
            what = same if seen[key] == network.name else alike
            raise PumitError(f"{what}; give each a name of its own.")
        seen[key] = network.name
    return tuple(networks)


def _network(row: Mapping[str, Any], where: str) -> ComparedNetwork:
    name = row.get("name", row["network"])
    if not NAME.fullmatch(name):
        raise PumitError(f"{where}: the name {name!r} cannot be that of a folder.")
    schedule = row.get("schedule", {})
    check_schedule(schedule, f"schedule of {name}")
    shared = [key for key in schedule if key not in OWN_SCHEDULE]
    if shared:
        raise PumitError(
            f"{shared[0]} in schedule of {name} must be the same for all networks; one may have "
            f"its own {', '.join(OWN_SCHEDULE)}."
        )
    share = row.get("share")
    if share is not None and not 0 < share <= 1:
        raise PumitError(f"share of {name} must be above 0 and at most 1, got {share}.")
    return ComparedNetwork(
        name,
        row["network"],
        row.get("network_sizes", {}),
        schedule,
        row.get("initial"),
        share,
        row.get("tuning", ""),
    )


def _seeds(recipe: Mapping[str, Any], source: str) -> tuple[int, ...]:
    given = recipe.get("seeds", list(DEFAULT_SEEDS))
    seeds = [s for s in given if isinstance(s, int) and not isinstance(s, bool) and s >= 0]
    if not seeds or len(seeds) != len(given) or len(set(seeds)) < len(seeds):
        raise PumitError(f"seeds in {source} must be different whole numbers, got {given!r}.")
    return tuple(seeds)
