"""All values of the presets Quick, Balanced and Thorough.

CPU presets were tested on two cores. GPU presets follow published recipes and are untested.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pumit.errors import PumitError

NAMES = ("quick", "balanced", "thorough")
ENCODED, ENCODED_CLASS = "pumit_encoder_small", "EncodedSegmentation"
NARROW = {"pyramid_widths": [32, 64, 96], "taps": [2, 5, 8]}


# Factor on a preset's learning rate (AdamW) for networks of published size. Not measured; it keeps
# the rate within what the papers use at such widths. All other networks use the full rate: in short
# runs on a CPU, 0.004 was better than 0.001 or 0.002 for every small network
# (see recipes/compare_hippocampus.yaml).
PUBLISHED_RATE_SHARE = {"SwinUnetr": 0.5, "NnFormer": 0.25, "HyMamba": 0.25, "UnetrMamba": 0.25}
# Factor for `ENCODED` that starts from trained weights, and its optimizer. In quick runs on a CPU,
# Muon was better than AdamW in the mean of four kinds of scans, and had fewer steps there
# (Testing/lab/records/papers.md). Longer presets and GPUs were not measured.
PRETRAINED_RATE_SHARE, PRETRAINED_OPTIMIZER = 0.5, "muon"


@dataclass(frozen=True, kw_only=True)
class Length:
    """Duration, learning rate and optimizer of a run that a plan starts from.

    Attributes:
        seconds: Time from the start to the final validation.
        most_steps: Maximum number of steps; more bring little.
        learning_rate: Peak of the cosine schedule.
        validations: Number of validations, including the final one.
    """

    seconds: float
    most_steps: int
    learning_rate: float = 4e-3
    optimizer: str = "adamw"
    warm_up: int = 20
    weight_decay: float = 0.05
    average: float = 0.99
    validations: int = 5


@dataclass(frozen=True, kw_only=True)
class Preset(Length):
    """Values that a plan starts from and adapts to the data and the machine's speed.

    Attributes:
        step_voxels: Voxels per step over all patches; fewer if too few steps would fit or memory is
            short, more if steps are fast.
        case_voxels: Maximum voxels of a typical case; above it, the spacing is made coarser.
        fewest_steps: Steps shrink until this many fit, and grow if more than `most_steps` fit.
        overlap: Overlap of windows in validations, a fraction.
        final_overlap: Overlap of windows in the final validation, a fraction.
        starts_from_clicks: Whether to train `ENCODED`, starting from the encoder of the model
            `default`, unless a recipe names a network or its sizes, an initial model or unlabelled
            scans.
        network_sizes: Sizes of `network` that override the defaults.
    """

    step_voxels: int
    case_voxels: int
    fewest_steps: int
    overlap: float = 0.25
    final_overlap: float = 0.5
    flips: bool = False
    starts_from_clicks: bool = False
    network: str = "pumit_segmentation_small"
    network_sizes: Mapping[str, Any] = field(default_factory=dict)


# Values of each name in all families.
BALANCED: dict[str, Any] = {"seconds": 3600, "average": 0.995, "validations": 10}
THOROUGH: dict[str, Any] = {"seconds": 8 * 3600, "average": 0.999, "validations": 20}
PRESETS: dict[str, dict[str, Preset]] = {
    "cpu": {
        "quick": Preset(
            seconds=600,
            step_voxels=1 << 17,
            case_voxels=1 << 20,
            fewest_steps=300,
            most_steps=4000,
            starts_from_clicks=True,
            network_sizes=NARROW,
        ),
        "balanced": Preset(
            **BALANCED,
            step_voxels=1 << 17,
            case_voxels=1 << 22,
            fewest_steps=600,
            most_steps=10_000,
            learning_rate=3e-3,
            warm_up=50,
            final_overlap=0.75,
            network_sizes=NARROW,
        ),
        "thorough": Preset(
            **THOROUGH,
            step_voxels=1 << 18,
            case_voxels=1 << 24,
            fewest_steps=2000,
            most_steps=40_000,
            learning_rate=2e-3,
            warm_up=100,
            overlap=0.5,
            final_overlap=0.75,
        ),
    },
    "gpu": {
        "quick": Preset(
            seconds=600,
            step_voxels=1 << 20,
            case_voxels=1 << 23,
            fewest_steps=500,
            most_steps=5000,
            learning_rate=2e-3,
            warm_up=50,
        ),
        "balanced": Preset(
            **BALANCED,
            step_voxels=1 << 21,
            case_voxels=1 << 25,
            fewest_steps=2000,
            most_steps=20_000,
            learning_rate=2e-3,
            warm_up=100,
            overlap=0.5,
            final_overlap=0.75,
        ),
        "thorough": Preset(
            **THOROUGH,
            step_voxels=2 * 48 * 192 * 192,
            case_voxels=1 << 27,
            fewest_steps=5000,
            most_steps=100_000,
            learning_rate=1e-3,
            warm_up=200,
            overlap=0.5,
            final_overlap=0.75,
            flips=True,
        ),
    },
}


@dataclass(frozen=True, kw_only=True)
class ClickPreset(Length):
    """Values that a plan for fine-tuning the promptable model starts from.

    Attributes:
        part: Trained part of the network; see `FineTuningRecipe`.
        answers: Maximum number of structures clicked in a validation.
        scenes: Number of generated scans clicked in a validation.
    """

    part: str = "all"
    answers: int = 16
    scenes: int = 8
    learning_rate: float = 1.5e-3
    weight_decay: float = 0.0
    average: float = 0.98


CLICK_PRESETS: dict[str, dict[str, ClickPreset]] = {
    "cpu": {
        "quick": ClickPreset(seconds=600, most_steps=600, answers=8, scenes=4, validations=3),
        "balanced": ClickPreset(seconds=3600, most_steps=3000),
        "thorough": ClickPreset(seconds=8 * 3600, most_steps=10_000, validations=10),
    },
    "gpu": {
        "quick": ClickPreset(seconds=600, most_steps=2000, validations=3),
        "balanced": ClickPreset(seconds=3600, most_steps=6000),
        "thorough": ClickPreset(seconds=8 * 3600, most_steps=20_000, validations=10),
    },
}


# Values of the shipped recipe `classification`, trained for longer.
_CLASSIFIER: dict[str, Any] = {"learning_rate": 1e-3, "warm_up": 100, "weight_decay": 0.01}
CLASSIFIER_PRESETS: dict[str, Length] = {
    "quick": Length(seconds=600, most_steps=1500, **_CLASSIFIER),
    "balanced": Length(most_steps=6000, **_CLASSIFIER, **BALANCED),
    "thorough": Length(most_steps=20_000, **_CLASSIFIER, **THOROUGH),
}


def adapted_to(
    preset: Preset, network_class: str, *, is_small: bool, is_pretrained: bool = False
) -> Preset:
    """Return a preset with learning rate and optimizer for a network, which may be pre-trained.

    See `PUBLISHED_RATE_SHARE` and `PRETRAINED_RATE_SHARE`.
    """
    share = 1.0 if is_small else PUBLISHED_RATE_SHARE.get(network_class, 1.0)
    optimizer = preset.optimizer
    if is_pretrained and network_class == ENCODED_CLASS:
        share, optimizer = PRETRAINED_RATE_SHARE, PRETRAINED_OPTIMIZER
    return replace(preset, learning_rate=preset.learning_rate * share, optimizer=optimizer)


def preset_for(name: str, kind: str) -> Preset:
    """Return a preset for CPU or GPU.

    Raises:
        PumitError: If there is no such preset.
    """
    if name not in NAMES:
        raise PumitError(f"There is no preset {name!r}; choose {', '.join(NAMES)}.")
    return PRESETS[kind][name]
