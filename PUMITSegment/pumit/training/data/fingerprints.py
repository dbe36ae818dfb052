"""What identifies the cases of a run without naming a patient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pumit.training.data.case import CaseFacts


def fingerprints(facts: Sequence[CaseFacts], classes: Sequence[str]) -> list[dict[str, Any]]:
    """What the log of a run says of each case, so that its data can be recognised.

    Args:
        facts: Of all cases.
        classes: Names of the classes, in order.
    """
    return [
        {
            "case": fact.name,
            "shape": list(fact.shape),
            "spacing_mm": [round(s, 4) for s in fact.spacing_mm],
            "sha256": fact.digest,
            "class_voxels": dict(zip(classes, fact.class_voxels[1:], strict=True)),
        }
        for fact in facts
    ]
