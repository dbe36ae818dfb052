"""An interactive session: one volume, several segments, prompts with undo and redo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import PromptError, VolumeError
from pumit.inference.interactive.image_store import ImageStore, OpenScan
from pumit.inference.interactive.index_prompts import check_prompt, to_index
from pumit.inference.interactive.other_answers import with_answer
from pumit.inference.interactive.prompt_solver import PromptSolver
from pumit.inference.interactive.prompted_session import PromptedSession, PromptHistory
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.solver_state import SolverSettings, SolverState
from pumit.inference.interactive.uncertainty import evidence_of, uncertain_regions
from pumit.models.card import calibration_of
from pumit.models.overlap import Evidence, overlap_models
from pumit.prompts import AnswerPrompt, MaskPrompt, PointPrompt, Prompt, without_superseded
from pumit.segmentation import AnswerChoice, PromptAnswer, Quality, UncertainRegion
from pumit.system.machine import fitting_threads
from pumit.system.watch import UNWATCHED, Watch
from pumit.volume import Volume

CACHED_ANSWERS = 64
CACHED_ANSWER_BYTES = 1 << 28


class InteractiveSession(PromptedSession):
    """An interactive segmentation session: prompts in, masks on the volume's grid out.

    Each field (a patch of the volume) is embedded once; segments share the embeddings and may
    overlap. Every change of the prompts can be undone. A session can sleep: it keeps only its
    prompts and the compressed scan, and wakes on the next request. Masks depend only on the
    prompts, so they stay the same.

    Args:
        images: Cache of scans and embeddings. Sessions with the same model may share one within
            one thread. None for a new one.

    Raises:
        CheckpointError: If the model's calibration cannot be used.
    """

    def __init__(
        self,
        segmenter: Segmenter,
        settings: SolverSettings | None = None,
        *,
        images: ImageStore | None = None,
    ) -> None:
        super().__init__()
        self.segmenter = segmenter
        self._calibration = calibration_of(segmenter.recipe)
        self._overlap = overlap_models().get(segmenter.sha256)
        self._settings = settings
        self._images = images or ImageStore()
        self._threads = fitting_threads()
        self._scan: OpenScan | None = None
        self._solver: PromptSolver | None = None
        self._answers: dict[tuple[Prompt, ...], SolverState] = {}

    def set_volume(
        self,
        volume: Volume | str | Path | npt.NDArray[Any],
        *,
        channel: int = 0,
        spacing_mm: Sequence[float] | None = None,
    ) -> None:
        """Open a volume and discard the prompts of the previous one.

        Args:
            volume: A volume, a path as accepted by `Volume.read`, or an array (D, H, W).
                Colour images are converted to grey.
            channel: Channel index of a multi-channel image; ignored for colour images.
            spacing_mm: Voxel size of an array in array order, mm.

        Raises:
            VolumeError: If the volume has no contrast or cannot be read, or a 3D array is given
                without spacing.
        """
        scan = self._images.open(Volume.of(volume, spacing_mm), channel)
        try:
            solver = self._solver_on(scan)
            with self._threads.computing():
                solver.warm_up()
        except BaseException:
            scan.close()
            raise
        self.close()
        self._scan, self._solver = scan, solver

    def close(self) -> None:
        """Release the volume and all prompts."""
        if self._scan is not None:
            self._scan.close()
        self._scan = self._solver = None
        self._history, self._answers = PromptHistory(), {}

    def sleep(self) -> None:
        """Free memory: keep only the compressed volume, the prompts and their history."""
        if self._scan is not None:
            self._answers, self._solver = {}, None
            self._scan.sleep()

    def wake(self) -> None:
        """Restore a sleeping volume; any request does so automatically."""
        if self._scan is not None and self._solver is None:
            self._scan.wake()
            self._solver = self._solver_on(self._scan)

    def _solver_on(self, scan: OpenScan) -> PromptSolver:
        if self.segmenter.make_solver is not None:
            found: PromptSolver = self.segmenter.make_solver(scan)
            return found
        return PromptSolver(self.segmenter, scan, self._settings)

    def forget_answers(self) -> None:
        """Clear the answer cache; answers are recomputed when needed."""
        self._answers = {}

    @property
    def is_asleep(self) -> bool:
        """Whether the session sleeps, with its volume compressed."""
        return self._scan is not None and self._solver is None

    @property
    def kept_bytes(self) -> int:
        """Memory used by prompts and cached answers, bytes."""
        return self._history.nbytes + sum(answer.nbytes for answer in self._answers.values())

    @property
    def volume(self) -> Volume:
        """The open volume; VolumeError if there is none."""
        return self._open_scan().volume

    @property
    def channel(self) -> int:
        """Channel index used of the open volume; ignored for colour images."""
        return 0 if self._scan is None else self._scan.channel

    @property
    def solver(self) -> PromptSolver:
        """Solver of the open volume, with its embeddings; VolumeError if there is none."""
        self._open_scan()
        assert self._solver is not None
        return self._solver

    @property
    def order(self) -> tuple[int, int, int]:
        """Axis order that the solver uses for the open volume, depth first."""
        return (0, 1, 2) if self._scan is None else self._scan.order

    def predict(self, segment: str = "1", *, watch: Watch = UNWATCHED) -> npt.NDArray[np.bool_]:
        """Segment from the prompts of a segment.

        Returns:
            Mask (D, H, W) on the volume's grid.

        Raises:
            PromptError: If there is no prompt yet, or only negative ones.
            Cancelled: If the caller cancelled it; the session stays usable.
        """
        return self._mask(self._answer(self.prompts(segment), watch))

    def answer(
        self,
        prompts: Sequence[Prompt],
        segment: str = "1",
        *,
        place_count: int = 0,
        watch: Watch = UNWATCHED,
    ) -> PromptAnswer:
        """Segment from prompts given by the caller; the session's own prompts do not change.

        Args:
            prompts: All prompts of a segment in order.
            segment: ID of the segment; the answer does not depend on it.
            place_count: Maximum number of uncertain regions to return.

        Raises:
            PromptError: If a prompt does not fit the volume, there is none, or only negative ones.
            Cancelled: If the caller cancelled it; the session stays usable.
        """
        answer = self._answer(prompts, watch)
        places = self._places(answer, place_count) if place_count else []
        dice, choice = self._dice(prompts), AnswerChoice(answer.number, answer.count)
        mask, iou = self._mask(answer), self._iou(answer)
        return PromptAnswer(mask, iou, dice, tuple(places), self._word(dice), choice)

    def foresee(self) -> None:
        """Compute what a click that corrects the latest answer will probably need; answers stay.

        For time in which the user looks at the answer: it takes as long as to embed a field.
        """
        if self._solver is not None and self.segmenter.make_solver is None and self._answers:
            with self._threads.computing():
                self._solver.foresee(next(reversed(self._answers.values())))

    def answer_count(self, segment: str = "1") -> int:
        """Return how many answers the prompts have to choose from: up to four for a first one."""
        return self._answer(self.prompts(segment)).count

    def estimated_iou(self, segment: str = "1") -> float:
        """Return the estimated IoU of the answer with the ground truth, 0 to 1, as calibrated."""
        return self._iou(self._answer(self.prompts(segment)))

    def expected_dice(self, segment: str = "1") -> float | None:
        """Return the expected Dice of the answer with the ground truth, 0 to 1.

        None where no measurements exist: weights other than the shipped ones, 2D images, and
        prompts other than clicks.
        """
        prompts = self.prompts(segment)
        self._answer(prompts)
        return self._dice(prompts)

    def quality(self, segment: str = "1") -> Quality | None:
        """Return `expected_dice` as a word; None where it is unknown."""
        return self._word(self.expected_dice(segment))

    def uncertain_regions(self, segment: str = "1", *, count: int = 5) -> list[UncertainRegion]:
        """Return regions on the answer's border that are probably wrong, the worst first.

        Computed on request from the answer of `predict`.

        Raises:
            PromptError: If there is no prompt yet, or only negative ones.
        """
        return self._places(self._answer(self.prompts(segment)), count)

    def _mask(self, answer: SolverState) -> npt.NDArray[np.bool_]:
        mask = np.zeros(tuple(self.volume.shape[a] for a in self.order), dtype=bool)
        if answer.patch is not None:
            np.greater(answer.patch.logits, 0, out=mask[answer.patch.window])
        return mask.transpose(np.argsort(self.order))

    def _word(self, dice: float | None) -> Quality | None:
        return None if dice is None or self._overlap is None else self._overlap.quality(dice)

    def _iou(self, answer: SolverState) -> float:
        estimate = float(np.clip(answer.iou, 0, 1))
        return estimate if self._calibration is None else self._calibration(estimate)

    def _dice(self, prompts: Sequence[Prompt]) -> float | None:
        are_clicks = all(isinstance(prompt, PointPrompt) for prompt in prompts)
        if self._overlap is None or not are_clicks or self.volume.is_planar:
            return None
        evidence = self.evidence(prompts)
        return None if evidence is None else self._overlap.expected_dice(evidence)

    def evidence(self, prompts: Sequence[Prompt]) -> Evidence | None:
        """Return the features that predict the answer's quality; None if the answer is empty."""
        answer = self._answer(prompts)
        if answer.evidence is None:
            before = None
            if to_index(prompts[:-1], self.volume, self.order).is_answerable:
                before = self._answer(prompts[:-1])
                self._answer(prompts)  # again the latest one, for `foresee`
            image = self._open_scan().pyramid
            answer.evidence = evidence_of(answer, before, image.array, image.spacing_mm)
        return answer.evidence

    def _places(self, answer: SolverState, count: int) -> list[UncertainRegion]:
        volume, image = self.volume, self._open_scan().pyramid
        places = []
        for found in uncertain_regions(answer, image.array.shape, image.spacing_mm, count=count):
            index = found.index[np.argsort(self.order)]
            left, posterior, superior = volume.index_to_world(index).tolist()
            error_ml = None if volume.is_planar else found.share * found.weighed_mm3 / 1000
            point = (left, posterior, superior)
            places.append(UncertainRegion(point, found.share, found.reach_mm, error_ml))
        return places

    def _answer(self, segment_prompts: Sequence[Prompt], watch: Watch = UNWATCHED) -> SolverState:
        volume, solver = self.volume, self.solver
        prompts = tuple(without_superseded(segment_prompts))
        if not prompts:
            raise PromptError("There is no prompt yet; click a point or draw a box.")
        # 1. Find the longest prefix of the prompts with a cached answer; shorter ones may have been
        #    evicted.
        counts = range(len(prompts), 0, -1)
        cached = next((n for n in counts if prompts[:n] in self._answers), 0)
        # 2. Check the prompts after it; cached ones were checked before.
        for prompt in prompts[cached:]:
            check_prompt(prompt, volume)
        if not to_index(prompts, volume, self.order).is_answerable:
            raise PromptError("There are only negative points; add one inside the structure.")
        # 3. Start from the cached answer and mark it as most recently used.
        answer: SolverState | None = None
        if cached:
            answer = self._answers[prompts[:cached]] = self._answers.pop(prompts[:cached])
        # 4. Add the prompts one by one, each refining the previous answer; a mask prompt starts
        #    over.
        for count in range(cached + 1, len(prompts) + 1):
            prefix, newest = to_index(prompts[:count], volume, self.order), prompts[count - 1]
            if isinstance(newest, AnswerPrompt):
                answer = with_answer(answer, newest.number, solver.shape) if answer else None
            elif prefix.is_answerable:
                is_new_mask = isinstance(newest, MaskPrompt)
                with self._threads.computing():
                    answer = solver.answer(prefix, None if is_new_mask else answer, watch)
            if answer is not None:
                self._answers[prompts[:count]] = answer
            if count < len(prompts):
                watch.report(count / len(prompts))
        watch.report(1.0)
        # 5. Evict the least recently used answers beyond the cache limits.
        self._evict_answers()
        assert answer is not None
        return answer

    def _evict_answers(self) -> None:
        sizes = [answer.nbytes for answer in self._answers.values()]
        total = sum(sizes)
        for size in sizes[:-2]:  # the next click and its rating need the newest two
            if len(self._answers) <= CACHED_ANSWERS and total <= CACHED_ANSWER_BYTES:
                return
            self._answers.pop(next(iter(self._answers)))
            total -= size

    def _open_scan(self) -> OpenScan:
        if self._scan is None:
            raise VolumeError("No volume is open; call set_volume first.")
        self.wake()
        return self._scan
