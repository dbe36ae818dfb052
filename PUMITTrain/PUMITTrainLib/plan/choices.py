"""What a user chooses between: where cases come from, what is learnt, and how long it may take."""

from __future__ import annotations

import enum


class CaseSource(enum.Enum):
    """Where cases come from; what all of them have adds up."""

    SCENE = "scene"
    FOLDER = "folder"
    FILES = "files"


class Goal(enum.Enum):
    """What is learnt; the value is what `pumit plan --goal` takes."""

    CLICKS = "clicks"
    AUTOMATIC = "automatic"


class ClickPart(enum.Enum):
    """Which weights of the promptable network are trained; the value stands in the recipe."""

    DECODER = "decoder"
    ADAPTERS = "adapters"
    ALL = "all"


class PresetName(enum.Enum):
    """How long a training may take; the value is what `pumit plan --preset` takes."""

    QUICK = "quick"
    BALANCED = "balanced"
    THOROUGH = "thorough"
