"""Selection of the scan to annotate next."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pumit.campaign.entry import ScanEntry

ScanOrder = Literal["uncertain", "list", "random"]
EMBEDDING = "embedding.json"
# Assumed certainty of a scan without a prediction.
_UNKNOWN_CERTAINTY = 0.5
_VARIETY_WEIGHT = 0.5


def choose_scan(
    scans: Sequence[ScanEntry],
    *,
    order: ScanOrder,
    seed: str,
    embeddings: Mapping[str, Sequence[float]],
) -> ScanEntry | None:
    """Return the scan to open next; None if none is left or others have the rest open.

    One validation scan follows every two others, so that the validation set is complete early.
    Postponed scans come last.
    """
    free = [s for s in scans if s.state in ("open", "predicted", "later")]
    first = [s for s in free if s.stored_state != "later"]
    pool: Sequence[ScanEntry] = first or free
    if not pool:
        return None
    pool = _turn(pool, scans)
    if order == "list":
        return min(pool, key=lambda s: s.order)
    if order == "random":
        return min(pool, key=lambda s: random.Random(f"{seed} {s.id}").random())
    done = [embeddings[s.id] for s in scans if s.is_truth and s.id in embeddings]
    return min(pool, key=lambda s: (-_worth(s, embeddings.get(s.id), done), s.order))


def _turn(pool: Sequence[ScanEntry], scans: Sequence[ScanEntry]) -> Sequence[ScanEntry]:
    kept = [s for s in pool if s.is_validation]
    others = [s for s in pool if not s.is_validation]
    if not kept or not others:
        return pool
    drawn = [s for s in scans if s.stored_state == "accepted"]
    of_validation = sum(s.is_validation for s in drawn)
    return kept if 2 * of_validation < len(drawn) - of_validation else others


def _worth(
    scan: ScanEntry, embedding: Sequence[float] | None, done: Sequence[Sequence[float]]
) -> float:
    certainty = _UNKNOWN_CERTAINTY if scan.certainty is None else scan.certainty
    worth = 1 - certainty
    if embedding is not None and done:
        nearest = max(_cosine(embedding, other) for other in done)
        worth += _VARIETY_WEIGHT * (1 - nearest)
    return worth


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    norm = sum(x * x for x in one) * sum(y * y for y in other)
    return sum(x * y for x, y in zip(one, other, strict=False)) / norm**0.5 if norm else 0.0


def read_embedding(folder: Path) -> list[float] | None:
    """Read the embedding of a scan from its folder; None if missing or unreadable."""
    with suppress(OSError, ValueError):
        values = json.loads((folder / EMBEDDING).read_text(encoding="utf-8"))
        return [float(v) for v in values]
    return None
