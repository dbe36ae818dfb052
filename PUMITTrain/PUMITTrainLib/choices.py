"""What a user chooses between: where cases come from, what is learnt, and how long it may take."""

from __future__ import annotations

import enum


class CaseSource(enum.Enum):
    """Kind of a source of cases; cases of all sources add up."""

    SCENE = "scene"
    FOLDER = "folder"
    FILES = "files"


class Goal(enum.Enum):
    """Goal of a training; the value is that of `pumit plan --goal`."""

    CLICKS = "clicks"
    AUTOMATIC = "automatic"


class ClickPart(enum.Enum):
    """Trained weights of the promptable network; the value stands in the recipe."""

    DECODER = "decoder"
    ADAPTERS = "adapters"
    ALL = "all"


class PresetName(enum.Enum):
    """Preset of the training time; the value is that of `pumit plan --preset`."""

    QUICK = "quick"
    BALANCED = "balanced"
    THOROUGH = "thorough"
