"""Whether a model suits a scan: known before it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pumit.errors import PumitError
from pumit.models.card import ModelCard
from pumit.volume import Volume

if TYPE_CHECKING:
    from pumit.inference.tokenizer.reconstruction import Tokenizer

logger = logging.getLogger(__name__)

# Below this no other modality than CT has its air.
_HOUNSFIELD_AIR = -500.0
_WORDS = {"CT": "CT", "MR": "MR", "PT": "PET", "US": "ultrasound"}


def modality_of_scan(volume: Volume) -> str:
    """What made a scan, as DICOM writes it: by its header, else CT by its air; else empty."""
    if volume.source is not None and volume.source.files:
        from pumit.io.dicom.files import first_value, read_header

        try:
            modality = str(
                first_value(read_header(volume.source.files[0]).header, "Modality") or ""
            )
        except (PumitError, OSError):
            modality = ""
        if modality:
            return modality.upper()
    is_signed = volume.array.dtype.kind in "if"
    return "CT" if is_signed and float(volume.array.min()) <= _HOUNSFIELD_AIR else ""


def other_modality(card: ModelCard, modality: str) -> str:
    """One sentence where a model learnt from another modality than the scan's, else empty."""
    if not card.modality or not modality or card.modality == modality:
        return ""
    learnt, seen = (_WORDS.get(m, m) for m in (card.modality, modality))
    return f"{card.name} learnt from {learnt}, and this scan is {seen} by its header"


def unfamiliar(volume: Volume, load: Callable[[], Tokenizer], *, channel: int = 0) -> str:
    """One sentence where the scan looks like none that the tokenizer knows, else empty.

    The score tells odd and damaged scans; it is of the tokenizer, not of the model that will run.
    """
    from pumit.inference.tokenizer.familiarity import UNFAMILIAR

    try:
        judged = load().reconstruct(volume, channel=channel).familiarity
    except PumitError as error:  # no tokenizer, or nothing to tell apart: no reason to stop
        logger.info("no familiarity score: %s", error)
        return ""
    if judged is None or judged.score >= UNFAMILIAR:
        return ""
    return judged.sentence
