"""The answer of `/capabilities` to clients of the nnInteractive protocol."""

from __future__ import annotations

from typing import Any

from pumit.errors import CheckpointError
from pumit.models.index import list_models
from pumit.wire.protocol import NNINTERACTIVE_VERSION

# The protocol's placeholder for an unknown licence.
_NO_LICENCE = "!!MISSING!!"


def nninteractive_capabilities(model: str) -> dict[str, Any]:
    """Return all fields that the protocol's client reads.

    Args:
        model: Name of the promptable model, whose licence is reported.
    """
    return {
        "supported_interactions": {
            "points": True,
            "bbox2d": True,
            "bbox3d": True,
            "scribble": True,
            "lasso": True,
        },
        "channel_mapping": {
            "prev_seg": 0,
            "bbox2d": [1, 2],
            "bbox3d": [1, 2],
            "lasso": [1, 2],
            "points": [3, 4],
            "scribble": [5, 6],
        },
        "num_interaction_channels": 7,
        "supports_initial_label": True,
        "supports_zero_shot_label_refinement": True,
        # The server uses only the centre line of a stroke.
        "preferred_scribble_thickness": [2, 2, 2],
        "interaction_decay": None,
        "patch_size": None,
        "do_autozoom": True,
        "inference_session_version": NNINTERACTIVE_VERSION,
        "license": _licence(model),
        "supports_undo": True,
    }


def _licence(model: str) -> str:
    try:
        found = [entry.licence for entry in list_models() if entry.name == model]
    except CheckpointError:  # clicks must work with a damaged model index
        found = []
    return found[0] if found and found[0] else _NO_LICENCE
