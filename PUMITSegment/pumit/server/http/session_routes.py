"""One session's work: a volume, mask priors, predictions, progress, cancel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from pumit.errors import PromptError
from pumit.file_image import finite_voxels
from pumit.inference.interactive.packed_mask import PackedMaskPrompt
from pumit.inference.interactive.session import InteractiveSession
from pumit.prompts import prompt_from_dict
from pumit.server.http.array_body import (
    ARRAY_BODY,
    MetaHeader,
    answer_codec,
    parse_meta,
    receive_array,
)
from pumit.server.http.lease_routes import ActiveLease, LivingLease, State
from pumit.server.http.schemas import (
    MaskIn,
    MaskMeta,
    MaskOut,
    OptionalSegmentIn,
    PredictIn,
    VolumeMeta,
)
from pumit.server.sessions.fair_queue import Job
from pumit.server.sessions.state import no_volume
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.arrays import Array, unpack_array
from pumit.wire.masks import BoundingBox, unpack_mask
from pumit.wire.prompt_answer import pack_answer

router = APIRouter()

_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A bundle: JSON with `bbox`, `shape`, `estimated_iou`, `expected_dice`, "
        "`places` and `choice` (the number of this answer to the prompts, and how many there are), "
        "and the array `mask`, packed bits of the bounding box",
        "content": {protocol.OCTET_STREAM: {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post(protocol.PATH_VOLUME, openapi_extra=ARRAY_BODY)
async def set_volume(
    request: Request, state: State, lease: ActiveLease, meta: MetaHeader
) -> dict[str, list[int]]:
    """Start on a volume: an array of shape (D, H, W) or (C, D, H, W) with its geometry."""
    geometry = parse_meta(VolumeMeta, meta)

    def decode(body: bytearray) -> Array:
        array = unpack_array(body, max_bytes=state.limits.max_array_bytes, axes=(3, 4))
        return finite_voxels(array)

    array = await receive_array(request, state, lease, decode)
    volume = Volume(
        array,
        spacing_mm=geometry.spacing_mm,
        origin_lps=geometry.origin_lps,
        direction=np.asarray(geometry.direction),
    )

    def work(session: InteractiveSession) -> dict[str, list[int]]:
        # One that is refused leaves the session on its earlier volume.
        session.set_volume(volume, channel=geometry.channel)
        lease.begin(volume.shape)
        return {"shape": list(volume.shape)}

    return await state.set_up(lease, work)


@router.post(protocol.PATH_MASK_PRIOR, openapi_extra=ARRAY_BODY)
async def hold_mask_prior(
    request: Request, state: State, lease: ActiveLease, meta: MetaHeader
) -> MaskOut:
    """Hold a mask for prompts to name: packed bits of the bounding box that `X-Meta` gives.

    Each mask is sent once; `/predict` names it by the hash that this answers.
    """
    place = parse_meta(MaskMeta, meta)
    shape = lease.shape
    if shape is None:
        raise no_volume()
    box: BoundingBox = [list(axis) for axis in place.bbox]
    prompt = await receive_array(
        request,
        state,
        lease,
        lambda body: PackedMaskPrompt(unpack_mask(box, body, shape)),
        room_bytes=2 * math.prod(shape),  # the whole grid, and what lies in the box
    )
    lease.priors.add(prompt)
    return MaskOut(sha256=prompt.sha256)


@router.post(protocol.PATH_PREDICT, responses=_ANSWER, response_class=Response)
async def predict(request: Request, state: State, lease: ActiveLease, body: PredictIn) -> Response:
    """Mask of a segment on the volume's own grid, how good it is, and where to check it.

    The prompts come with each request, so that the answer depends on nothing but them and the
    volume. The newest request of a segment wins: an older one that waits or runs is cancelled.
    With `Accept-Encoding: identity` the mask's bits are stored and not compressed.
    """
    if len(body.prompts) > state.limits.max_prompts:
        raise PromptError(f"A segment takes {state.limits.max_prompts} prompts; remove some.")
    prompts = [
        lease.priors.find(prompt.sha256)
        if isinstance(prompt, MaskIn)
        else prompt_from_dict(prompt.model_dump())
        for prompt in body.prompts
    ]

    codec = answer_codec(request, "zstd")

    def work(session: InteractiveSession, job: Job) -> bytes:
        return pack_answer(
            session.answer(prompts, body.segment, place_count=body.places, watch=job.watch),
            codec=codec,
        )

    answer = await state.predict(request, lease, body.segment, work)
    return Response(answer, media_type=protocol.OCTET_STREAM)


@router.get(protocol.PATH_PROGRESS)
async def progress(state: State, lease: LivingLease) -> dict[str, bool | float]:
    """How far the session's prediction is, 0 to 1."""
    jobs = [job for job in state.queue.jobs_of(lease.token) if job.segment is not None]
    return {"running": bool(jobs), "fraction": jobs[0].fraction if jobs else 0.0}


@router.post(protocol.PATH_CANCEL)
async def cancel(state: State, lease: ActiveLease, body: OptionalSegmentIn) -> dict[str, int]:
    """Stop the predictions of a segment, or of the whole session; nothing else changes."""
    return {"cancelled": state.queue.cancel(lease.token, body.segment)}
