"""Check every case before training starts, and report all problems at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pumit.errors import VolumeError
from pumit.preprocessing.network_axes import Orientation
from pumit.system.wording import listed
from pumit.training.data.case import CaseFacts, facts_of, read_labelled
from pumit.training.data.found_cases import CaseProblem, LabelledSet, all_at_once

SPACING_OUTLIER = 10.0  # times the median
SHOWN_CLASSES = 6
SHOWN_CASES = 6


@dataclass(frozen=True)
class DataFacts:
    """Facts about a data set that can be trained on.

    Attributes:
        channels: Number of input channels of the network.
    """

    cases: tuple[CaseFacts, ...]
    channels: int
    warnings: tuple[str, ...]


def examine(
    data: LabelledSet,
    *,
    orientation: Orientation = "anatomical",
    progress: Callable[[int], None] | None = None,
) -> DataFacts:
    """Read and check every case once; `progress` gets each case's number, from 1 on.

    Raises:
        PumitError: If any case cannot be used; the message lists all of them.
    """
    facts, problems = [], []
    for number, case in enumerate(data.cases, start=1):
        if progress is not None:
            progress(number)
        try:
            read = read_labelled(case, data.classes)
        except VolumeError as error:
            problems.append(str(error))
            continue
        facts.append(facts_of(read, classes=data.classes, orientation=orientation))
    problems += map(str, disagreements(facts, data))
    all_at_once(problems)
    names = [c.label.name for c in data.classes]
    channels = _channel_count(facts, data)
    doubts = [*data.doubts, *map(str, doubtful(facts, names))]
    parts = [f"{f.name} ({text})" for f in facts if (text := part_in_words(f, names))]
    if parts:
        shown = listed(parts, SHOWN_CASES)
        doubts.append(f"labelled in part, what is unknown is left out: {shown}")
    return DataFacts(tuple(facts), channels, tuple(doubts))


def part_in_words(fact: CaseFacts, classes: Sequence[str]) -> str:
    """Describe how much of a case is annotated; empty for a fully annotated case."""
    percent = min(100 * fact.known_share, 99.9)  # never round a partial case up to 100
    known = f"{percent:.0f}" if 1 <= percent <= 99 else f"{percent:.3g}"
    words = [] if fact.known_share == 1 else [f"{known} % known"]
    undrawn = fact.undrawn(classes)
    if undrawn:
        words.append(f"{listed(undrawn, SHOWN_CLASSES)} not drawn")
    return ", ".join(words)


def _channel_count(facts: Sequence[CaseFacts], data: LabelledSet) -> int:
    """Return the number of channels in the recipe, else that of most cases."""
    counts = [f.channels for f in facts]
    return len(data.channels) or max(set(counts), key=counts.count)


def disagreements(facts: Sequence[CaseFacts], data: LabelledSet) -> list[CaseProblem]:
    """Return inconsistencies that keep the cases from being trained on together."""
    if not facts:
        return []
    problems = []
    expected = _channel_count(facts, data)
    for fact in facts:
        if fact.channels != expected and not (data.repeats_single and fact.channels == 1):
            text = f"has {fact.channels} channels instead of {expected}"
            problems.append(CaseProblem(fact.name, text))
    planar = [f.name for f in facts if 1 in f.shape]
    if 0 < len(planar) < len(facts):
        text = "is one slice, others are volumes; train them apart"
        problems.append(CaseProblem(planar[0], text))
    seen: dict[str, str] = {}
    for fact in facts:
        if fact.digest in seen:
            text = f"is the same image as {seen[fact.digest]}; remove one"
            problems.append(CaseProblem(fact.name, text))
        seen.setdefault(fact.digest, fact.name)
    if not any(sum(f.class_voxels[1:]) for f in facts):
        problems.append(CaseProblem("", "every label map is empty: there is nothing to learn"))
    return problems


def lacking(fact: CaseFacts, classes: Sequence[str]) -> list[str]:
    """Return what the labels of a case lack, if anything, phrased as a predicate."""
    undrawn = fact.undrawn(classes)
    if not fact.known_share or len(undrawn) == len(classes):
        return ["nothing of it is known"]
    if not sum(fact.class_voxels[1:]):
        return ["its label map is empty"]
    found = zip(classes, fact.class_voxels[1:], strict=True)
    missing = [name for name, voxels in found if not voxels and name not in undrawn]
    return [f"has no {listed(missing, SHOWN_CLASSES)}"] if missing else []


def doubtful(facts: Sequence[CaseFacts], classes: Sequence[str]) -> list[CaseProblem]:
    """Return suspicious findings that do not prevent training."""
    doubts = []
    median = np.median([f.spacing_mm for f in facts], axis=0)
    for fact in facts:
        texts = list(fact.doubts)
        ratio = np.asarray(fact.spacing_mm) / median
        if ratio.max() >= SPACING_OUTLIER or ratio.min() <= 1 / SPACING_OUTLIER:
            shown = " x ".join(f"{s:.3g}" for s in fact.spacing_mm)
            typical = " x ".join(f"{s:.3g}" for s in median)
            texts.append(f"spacing {shown} mm where {typical} mm is usual")
        texts += lacking(fact, classes)
        doubts += [CaseProblem(fact.name, text) for text in texts]
    for i, name in enumerate(classes, start=1):
        if not any(f.class_voxels[i] for f in facts):
            doubts.append(CaseProblem("", f"no case has any {name}"))
    return doubts
