"""The user's choices: source of cases, goal and duration of a training."""

from __future__ import annotations

import enum


class CaseSource(enum.Enum):
    """Kind of a source of cases; sources can be combined."""

    SCENE = "scene"
    FOLDER = "folder"
    FILES = "files"


class Goal(enum.Enum):
    """Goal of a training; the value is that of `pumit plan --goal`."""

    CLICKS = "clicks"
    AUTOMATIC = "automatic"
    CLASSIFICATION = "classification"


class ClickPart(enum.Enum):
    """Trained weights of the promptable network; the value is that of the recipe."""

    DECODER = "decoder"
    ADAPTERS = "adapters"
    ALL = "all"


class PresetName(enum.Enum):
    """Preset of the training time; the value is that of `pumit plan --preset`."""

    QUICK = "quick"
    BALANCED = "balanced"
    THOROUGH = "thorough"
