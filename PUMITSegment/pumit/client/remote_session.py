"""An `InteractiveSession` whose computations run on a server."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from pumit.client.http_client import PUMIT, Client
from pumit.client.recoverable_session import Heartbeat, RecoverableSession
from pumit.client.remote_models import (
    AutomaticAnswer,
    Reconstruction,
    SearchFacts,
    StructureAnswer,
    unpack_facts,
    unpack_labels,
    unpack_reconstruction,
)
from pumit.errors import PromptError, ServiceError, VolumeError
from pumit.inference.interactive.index_prompts import check_prompt
from pumit.prompts import AnswerPrompt, MaskPrompt, Prompt
from pumit.segmentation import PromptAnswer, UncertainRegion
from pumit.system.watch import UNWATCHED, Watch
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.arrays import PackedArray, pack_array_in_parts, unpack_bundle
from pumit.wire.prompt_answer import pack_mask, unpack_answer
from pumit.wire.protocol import TooLarge, UnknownMask

Answer = TypeVar("Answer")
Corners = Sequence[Sequence[float]]
# Limit for the response to a check, which holds a few sentences.
_MOST_FACT_BYTES = 1 << 20
# Longer than sending and embedding the largest volume takes.
_VOLUME_TIMEOUT_S = 900.0


class RemoteSession(RecoverableSession):
    """A session on a server, with the methods of `pumit.InteractiveSession`.

    Volume and prompts are also kept on the client, so that nothing is lost with the server. A
    prediction is one request with all prompts of the segment; changing, undoing and redoing prompts
    sends none. An expired session is reopened automatically; if the server is gone, `rebuild`
    continues on another.

    Args:
        heartbeat_s: Interval of heartbeats, within which a crashed server is detected.

    Raises:
        ServiceError: If the server cannot be used, or has no free session.
    """

    def __init__(self, client: Client, *, heartbeat_s: float = 1.0) -> None:
        self._channel = 0
        # Latest answer of each segment without its mask, and its prompts.
        self._latest: dict[str, tuple[tuple[Prompt, ...], PromptAnswer]] = {}
        self._sent_masks: set[str] = set()
        super().__init__(client, heartbeat_s=heartbeat_s)

    def set_volume(self, volume: Volume, *, channel: int = 0) -> None:
        """Upload a volume and clear all prompts.

        Args:
            volume: The scan; a colour image is converted to grey.
            channel: Channel of a multi-channel image, unless it is a colour image.

        Raises:
            VolumeError: If it has no contrast; the earlier volume stays.
            ServiceError: If it exceeds the server's limit, or cannot be sent.
        """
        with self._opening(VolumeError, TooLarge):
            self._keeping(lambda: self._upload(volume, channel))
            self._begin(volume)
            self._channel = channel
            self._latest = {}

    def answer(
        self,
        prompts: Sequence[Prompt],
        segment: str = "1",
        *,
        place_count: int = 0,
        watch: Watch = UNWATCHED,
    ) -> PromptAnswer:
        """Segment by the given prompts; see `RecoverableSession.answer`."""
        volume = self.volume
        kept = tuple(prompts)
        body = {
            "segment": segment,
            "prompts": [prompt.to_dict() for prompt in kept],
            "places": place_count,
        }
        if not self._has_answers and any(isinstance(prompt, AnswerPrompt) for prompt in kept):
            raise PromptError(
                "This server has an older version, which gives one answer; undo the choice of "
                "another answer."
            )
        masks = {p.sha256: p for p in kept if isinstance(p, MaskPrompt)}

        def send() -> bytes | bytearray:
            self._require(volume)
            self._send_masks(masks)
            return self._ask(protocol.PATH_PREDICT, body, volume, job=segment, watch=watch)

        def send_again() -> bytes | bytearray:
            try:
                return send()
            except UnknownMask:
                # The server has dropped it, for example in favour of newer ones.
                self._sent_masks.clear()
                return send()

        self._require(volume)  # without waiting until the other one is sent
        answer = unpack_answer(self._keeping(send_again), volume.shape)
        self._latest[segment] = (kept, replace(answer, mask=np.zeros((0, 0, 0), dtype=bool)))
        return answer

    def estimated_iou(self, segment: str = "1") -> float | None:
        """Return the estimated IoU of a segment's mask, 0 to 1."""
        return self._expected(segment).estimated_iou

    def expected_dice(self, segment: str = "1") -> float | None:
        """Return the expected Dice of a segment's mask, 0 to 1; None if unknown."""
        return self._expected(segment).expected_dice

    def answer_count(self, segment: str = "1") -> int:
        """Return the number of alternative masks for a segment; older servers have one."""
        return self._expected(segment).choice.count

    def uncertain_regions(self, segment: str = "1", *, count: int = 5) -> list[UncertainRegion]:
        """Return the regions on the border of a mask that are most likely wrong, worst first."""
        return list(self.answer(self.prompts(segment), segment, place_count=count).places)

    def segment_automatically(
        self, model: str, roi_corners_lps: Corners | None = None, *, watch: Watch = UNWATCHED
    ) -> AutomaticAnswer:
        """Segment the volume, or a region of it, automatically.

        Args:
            model: Name of an automatic model, or of the promptable one, which then segments
                everything that stands out; see `models` of the server's capabilities.
            roi_corners_lps: Eight corners of a region, which may be rotated, LPS mm; None for the
                whole volume.

        Raises:
            Cancelled: If it was stopped; the session stays usable.
            CheckpointError: If the server has no such model.
            PromptError: If the region is outside the volume.
            ServiceError: If the server is gone.
        """
        body = {"model": model, "roi_corners_lps": _listed(roi_corners_lps)}
        path, job = protocol.PATH_SEGMENT_AUTOMATICALLY, protocol.AUTOMATIC_JOB
        meta, found = unpack_labels(*self._run_job(path, body, job, watch))
        return AutomaticAnswer(found, model, str(meta.get("version", "")))

    def check_structure(
        self,
        structure: str,
        *,
        model: str | None = None,
        modality: str = "",
        anyway: bool = False,
        watch: Watch = UNWATCHED,
    ) -> SearchFacts:
        """Return the model that `find_structure` would use, without running it.

        Arguments and errors are those of `find_structure`.
        """
        body: dict[str, Any] = {"structure": structure, "model": model, "modality": modality}
        body |= {"anyway": anyway, "only_check": True}
        silent = Watch(watch.cancelled)
        content, _ = self._run_job(protocol.PATH_FIND, body, protocol.AUTOMATIC_JOB, silent)
        return unpack_facts(unpack_bundle(content, max_bytes=_MOST_FACT_BYTES)[0])

    def find_structure(
        self,
        structure: str,
        *,
        model: str | None = None,
        modality: str = "",
        roi_corners_lps: Corners | None = None,
        anyway: bool = False,
        watch: Watch = UNWATCHED,
    ) -> StructureAnswer:
        """Segment a structure given by name.

        Args:
            structure: A name (`left kidney`), a group (`kidneys`), a code, Slicer's terminology
                entry, or `everything` for all classes of the model.
            model: Name of an automatic model; None for the best that knows the structure.
            modality: DICOM Modality of the scan; empty if unknown.
            roi_corners_lps: Eight corners of a region of interest, LPS mm; None for the whole
                volume.
            anyway: Whether to skip checks, so that a model of another modality may run.

        Raises:
            Cancelled: If it was stopped; the session stays usable.
            ConsentNeeded: If only models with licences that were not accepted there know it.
            StructureError: If no model knows it, or none is suitable for this scan.
            ServiceError: If the server is gone.
        """
        body: dict[str, Any] = {"structure": structure, "model": model, "modality": modality}
        body |= {"anyway": anyway, "roi_corners_lps": _listed(roi_corners_lps)}
        answer = self._run_job(protocol.PATH_FIND, body, protocol.AUTOMATIC_JOB, watch)
        meta, found = unpack_labels(*answer)
        facts = unpack_facts(meta)
        return StructureAnswer(found, facts.model, facts.version, facts)

    def reconstruct(self, model: str | None = None, *, watch: Watch = UNWATCHED) -> Reconstruction:
        """Encode and decode the volume by a tokenizer.

        Args:
            model: Name of a tokenizer; None for the server's first one.

        Raises:
            Cancelled: If it was stopped; the session stays usable.
            CheckpointError: If the server has no such tokenizer, or none at all.
            ServiceError: If the server is gone.
        """
        path, job = protocol.PATH_RECONSTRUCT, protocol.RECONSTRUCTION_JOB
        return unpack_reconstruction(*self._run_job(path, {"model": model}, job, watch))

    def _claim(self) -> None:
        capabilities = self._client.capabilities()
        if capabilities["kind"] != PUMIT:
            raise ServiceError(
                f"{self._client.url} is an nnInteractive server; open it with NNInteractiveSession."
            )
        self._has_answers = "answer" in capabilities.get("prompts", ())
        limits = capabilities.get("limits", {})
        self._max_array_bytes = int(limits.get("max_array_bytes", 1 << 31))
        self._lease = str(self._client.call_json("POST", protocol.PATH_CLAIM)["lease_token"])
        self._heartbeat = Heartbeat(self._client, self._lease, interval_s=self._heartbeat_s)

    def _send_again(self, volume: Volume) -> None:
        self._upload(volume, self._channel)

    def _ask(
        self, path: str, body: dict[str, Any], volume: Volume, *, job: str, watch: Watch
    ) -> bytes | bytearray:
        client, lease = self._client, self._lease
        return self._watching(
            lambda part: client.ask(path, lease=lease, body=body, watch=part), volume, job, watch
        )

    def _run_job(
        self, path: str, body: dict[str, Any], job: str, watch: Watch
    ) -> tuple[bytes | bytearray, tuple[int, int, int]]:
        """Return the answer about the volume, and the volume's shape."""
        volume = self.volume
        self._require(volume)  # without waiting until the other one is sent
        content = self._keeping(lambda: self._ask(path, body, volume, job=job, watch=watch))
        return content, volume.shape

    def _send_masks(self, masks: Mapping[str, MaskPrompt]) -> None:
        """Send the mask priors, by hash, that the server does not hold yet."""
        for sha256, prompt in masks.items():
            if sha256 not in self._sent_masks:
                check_prompt(prompt, self.volume)
                box, bits = pack_mask(prompt.mask, codec=self._client.codec)
                self._send_array(protocol.PATH_MASK_PRIOR, PackedArray([bits]), {"bbox": box})
                self._sent_masks.add(sha256)

    def _upload(self, volume: Volume, channel: int) -> None:
        if volume.array.nbytes > self._max_array_bytes:
            raise TooLarge(
                f"The volume has {volume.array.nbytes} bytes, the server takes "
                f"{self._max_array_bytes}; crop it, or raise the server's limit."
            )
        meta = {
            "spacing_mm": volume.spacing_mm,
            "origin_lps": volume.origin_lps,
            "direction": volume.direction.tolist(),
            "channel": channel,
        }
        array = pack_array_in_parts(volume.array, codec=self._client.codec)
        self._sent_masks.clear()  # the server drops the masks of an earlier volume
        self._send_array(protocol.PATH_VOLUME, array, meta)

    def _send_array(self, path: str, array: PackedArray, meta: dict[str, Any]) -> None:
        client, lease = self._client, self._lease
        content: dict[str, Any] = {"array": array, "meta": meta, "timeout_s": _VOLUME_TIMEOUT_S}
        self._sending(array, lambda: client.call("POST", path, lease=lease, **content))

    def _expected(self, segment: str) -> PromptAnswer:
        """Return the answer to a segment's current prompts, without its mask."""
        prompts = tuple(self.prompts(segment))
        if not prompts or self._latest.get(segment, ((),))[0] != prompts:
            self.predict(segment)
        return self._latest[segment][1]


def _listed(corners_lps: Corners | None) -> list[list[float]] | None:
    return None if corners_lps is None else np.asarray(corners_lps).tolist()
