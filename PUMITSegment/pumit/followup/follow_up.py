"""Follow-up of lesions from an earlier to a later scan, or comparison of two segmentations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Protocol

import numpy as np

from pumit.errors import PumitError
from pumit.followup.changes import LesionChange, changes_of
from pumit.followup.lesions import (
    CarriedLesion,
    KeptMask,
    Lesion,
    Mask,
    carried,
    carried_clicks,
    lesions_of,
)
from pumit.followup.registration import Registration
from pumit.prompts import AnswerPrompt, MaskPrompt, PointPrompt, Prompt
from pumit.segmentation import PromptAnswer
from pumit.volume import Volume

# Residual error of a good registration, mm.
LEAST_TOLERANCE_MM = 5.0
# Largest plausible size of a new lesion, relative to the largest known one.
_NEW_SIZE = 2.5


class Answering(Protocol):
    """An interactive session with the later scan."""

    def answer(self, prompts: Sequence[Prompt], segment: str = "1") -> PromptAnswer:
        """Segment by prompts that the session does not store."""


@dataclass(frozen=True, eq=False)
class FollowUp:
    """Lesions at two dates.

    Attributes:
        changes: One row for each lesion, or group of lesions that merged or split.
        segments: Names and masks on the grid of the later scan: one for each earlier segment that
            is still present, then new lesions.
        prompts_left: Number of prompts that are no clicks, outside the later scan or contradict it.
    """

    registration: Registration
    changes: tuple[LesionChange, ...]
    segments: tuple[tuple[str, Mask], ...]
    prompts_kept: int = 0
    prompts_left: int = 0


def follow_up(
    earlier: Volume,
    segments: Sequence[tuple[str, Mask]],
    later: Volume,
    registration: Registration,
    session: Answering,
    *,
    prompts: Sequence[Prompt] = (),
    new_points: Sequence[Prompt] = (),
    progress: Callable[[str, float], None] | None = None,
) -> FollowUp:
    """Segment the lesions of an earlier scan in a later one, and compare them.

    Args:
        segments: Names and masks of the earlier scan, on its grid.
        prompts: Prompts of the earlier scan, LPS mm. Only clicks are used, for the lesions that
            they still fit.
        new_points: Clicks on lesions that are only in the later scan, LPS mm of that scan.
        progress: Callback with the name of a step and the finished fraction, 0 to 1.

    Raises:
        PumitError: If there is no lesion, or a prompt cannot be used.
    """
    lesions = carried(_lesions(segments), earlier, later, registration)
    clicks = carried_clicks(prompts, later, registration)
    given = [p for p in prompts if not isinstance(p, (AnswerPrompt, MaskPrompt))]
    masks: dict[str, Mask] = {}
    used = 0
    total = len(lesions) + len(new_points)
    for number, lesion in enumerate(lesions):
        if progress is not None:
            progress(f"Lesion {number + 1} of {total}", number / total)
        if not lesion.prompts:
            continue
        own = [p for p in clicks if _is_of(p, lesion, lesions, later)]
        used += len(own)
        answer = session.answer([*lesion.prompts, *own], f"lesion {number + 1}").mask
        segment = lesion.lesion.segment
        masks[segment] = masks[segment] | answer if segment in masks else answer
    largest = max(
        [int(np.count_nonzero(mask)) for mask in masks.values()]
        + [lesion.kept_place.count for lesion in lesions]
    )
    for number, point in enumerate(new_points, start=1):
        if progress is not None:
            progress(f"Lesion {len(lesions) + number} of {total}", (total - 1) / total)
        name = "New lesion" if len(new_points) == 1 else f"New lesion {number}"
        # The lesions of an earlier follow-up may be called so.
        others = (f"{name} ({other})" for other in count(2))
        taken = {*masks, *(known for known, _ in segments)}
        name = next(free for free in chain([name], others) if free not in taken)
        masks[name] = _new_lesion(session, point, f"new {number}", _NEW_SIZE * largest)
    later_segments = tuple((name, mask) for name, mask in masks.items() if mask.any())
    changes = _changes(lesions, later_segments, earlier, later, registration)
    return FollowUp(registration, changes, later_segments, used, len(given) - used)


def compare_dates(
    earlier: Volume,
    segments: Sequence[tuple[str, Mask]],
    later: Volume,
    later_segments: Sequence[tuple[str, Mask]],
    registration: Registration,
) -> FollowUp:
    """Match and measure lesions that were segmented at both dates.

    Raises:
        PumitError: If there is no lesion at the first date.
    """
    lesions = carried(_lesions(segments), earlier, later, registration, by_look=False)
    changes = _changes(lesions, later_segments, earlier, later, registration)
    return FollowUp(registration, changes, tuple(later_segments))


def _new_lesion(session: Answering, point: Prompt, segment: str, most_voxels: float) -> Mask:
    """Return the first answer to a click with the size of a lesion, or else the smallest answer.

    A click on a lesion may also mean the organ.
    """
    answer = session.answer([point], segment)
    masks = [answer.mask]
    for number in range(2, answer.choice.count + 1):
        masks.append(session.answer([point, AnswerPrompt(number)], segment).mask)
    sizes = [int(np.count_nonzero(mask)) for mask in masks]
    fitting = [mask for mask, size in zip(masks, sizes, strict=True) if 0 < size <= most_voxels]
    return fitting[0] if fitting else masks[int(np.argmin(sizes))]


def _lesions(segments: Sequence[tuple[str, Mask]]) -> list[Lesion]:
    found = lesions_of([(name, mask) for name, mask in segments if mask.any()])
    if not found:
        raise PumitError("The earlier segmentation is empty; segment its lesions first.")
    return found


def _changes(
    lesions: Sequence[CarriedLesion],
    segments: Sequence[tuple[str, Mask]],
    earlier: Volume,
    later: Volume,
    registration: Registration,
) -> tuple[LesionChange, ...]:
    tolerance = max(LEAST_TOLERANCE_MM, min(registration.worst_mm, 2 * LEAST_TOLERANCE_MM))
    return tuple(
        changes_of(
            lesions,
            segments,
            earlier_volume=earlier,
            later_volume=later,
            tolerance_mm=tolerance,
        )
    )


def _is_of(
    prompt: PointPrompt, lesion: CarriedLesion, lesions: Sequence[CarriedLesion], later: Volume
) -> bool:
    """Whether a click of the earlier scan is still valid for a lesion in the later one.

    A positive click must be inside the initial mask; a negative one outside all lesions, with this
    one as the nearest.
    """
    index = np.rint(later.world_to_index(prompt.point_lps)).astype(int)
    d, h, w = np.clip(index, 0, np.array(later.shape) - 1).tolist()
    if prompt.is_positive:
        return bool(lesion.mask[d, h, w])
    if any(other.mask[d, h, w] for other in lesions):
        return False
    return lesion is min(lesions, key=lambda each: _distance(each.kept, (d, h, w), later))


def _distance(kept: KeptMask, index: Sequence[int], later: Volume) -> float:
    if not kept.count:
        return float("inf")
    places = np.argwhere(kept.part) + [s.start for s in kept.window]
    return float(np.linalg.norm((places - index) * np.array(later.spacing_mm), axis=1).min())
