"""Recipes of `pumit train` with `task: sam`: SAM's slopes and decoder for a lab's images."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pumit.training.recipes.labelled import TunedRecipe
from pumit.training.recipes.model import AtLeastOne, ShortSchedule


class SamRecipe(TunedRecipe):
    """Recipe of a SAM that knows a lab's structures.

    Attributes:
        task: sam: fine-tune SAM with BA-SAM's attention on images and masks.
        network: That of its initial model.
        initial: SAM's or MedSAM's weights (.pth), or a model made of them, by name or file.
        part: Trained part: the slopes of BA-SAM's bias, or the decoder and the slopes.
        image_size: Pixels that the encoder sees along the longer side; those of the initial model
            without.
        batch_size: Prompts of a step, each on its own image.
        boxes: Share of prompts that are boxes; the others are one random point inside.
        answers: Structures of validation cases that are asked for, most.
    """

    task: Literal["sam"] = "sam"
    network: Literal["sam"] = "sam"
    schedule: ShortSchedule = Field(default_factory=ShortSchedule)
    part: Literal["slopes", "decoder"] = "decoder"
    image_size: AtLeastOne | None = None
    batch_size: AtLeastOne = 1
    boxes: float = Field(0.4, ge=0, le=1)
    answers: AtLeastOne = 16
