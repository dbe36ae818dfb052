"""Keys of every recipe."""

from typing import Any

from pydantic import Field

from pumit.training.recipes.model import AtLeastOne, RecipeModel
from pumit.training.recipes.schedule import Schedule


class TrainingRecipe(RecipeModel):
    """Keys of every recipe.

    Attributes:
        name: Name of the model file.
        version: Version of the model.
        network_sizes: Network sizes that override the defaults.
        initial: Model to start from, by name or file; random weights by default.
        seed: Random seed.
        threads: CPU threads; all by default.
        device: auto, cpu, cuda or cuda:1.
        workers: Worker processes that prepare batches.
        schedule: Length of training, learning rate and optimizer.
        register: Whether to add the model to your index.
        card: Keys to copy into the checkpoint, such as licence.
    """

    name: str = "model"
    version: str | int | float = "0"
    network_sizes: dict[str, Any] = Field(default_factory=dict)
    initial: str | None = None
    seed: int = 0
    threads: AtLeastOne | None = None
    device: str = "auto"
    workers: int = 0
    schedule: Schedule = Field(default_factory=Schedule)
    register_: bool = Field(True, alias="register")
    card: dict[str, Any] = Field(default_factory=dict)
