"""One session's work: volume, prompts, prediction, undo, redo, reset, cancel."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from pumit.errors import PromptError
from pumit.prompts import MaskPrompt, Prompt
from pumit.server.http.array_body import ARRAY_BODY, MetaHeader, parse_meta, receive_array
from pumit.server.http.lease_routes import ActiveLease, LivingLease, State
from pumit.server.http.schemas import (
    DoubtfulPlaceOut,
    DoubtIn,
    KeepIn,
    MaskMeta,
    OptionalSegmentIn,
    PlaceIn,
    PlacesOut,
    PromptIn,
    SegmentIn,
    VolumeMeta,
)
from pumit.server.sessions.engine import PromptSession
from pumit.server.sessions.fair_queue import Job
from pumit.server.sessions.leases import Lease
from pumit.server.sessions.state import ServerState, no_volume
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.arrays import Array, unpack_array
from pumit.wire.masks import BoundingBox, pack_mask, unpack_mask

router = APIRouter()

_ARRAY_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Packed bits of the bounding box that `X-Meta` gives",
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
        return unpack_array(body, max_bytes=state.limits.max_array_bytes, axes=(3, 4))

    array = await receive_array(request, state, lease, decode)
    volume = Volume(
        array,
        spacing_mm=geometry.spacing_mm,
        origin_lps=geometry.origin_lps,
        direction=np.asarray(geometry.direction),
    )

    def work(session: PromptSession) -> dict[str, list[int]]:
        # One that is refused leaves the session on its earlier volume.
        session.set_volume(volume, channel=geometry.channel)
        lease.shape, lease.prompt_count, lease.viewer = volume.shape, 0, None
        return {"shape": list(volume.shape)}

    return await state.set_up(lease, work)


@router.post(protocol.PATH_ADD_PROMPT)
async def add_prompt(state: State, lease: ActiveLease, body: PromptIn) -> dict[str, bool]:
    """Add a point, box or scribble to a segment."""
    return await _add(state, lease, body.to_prompt(), body.segment)


@router.post(protocol.PATH_REMOVE_PROMPT)
async def remove_prompt(state: State, lease: ActiveLease, body: PlaceIn) -> dict[str, bool]:
    """Remove one prompt of a segment by its place."""

    def work(session: PromptSession) -> dict[str, bool]:
        session.remove_prompt(body.position, body.segment)
        return {"changed": True}

    state.queue.cancel(lease.token, body.segment)
    return await state.change(lease, work)


@router.post(protocol.PATH_KEEP_PROMPTS)
async def keep_prompts(state: State, lease: ActiveLease, body: KeepIn) -> dict[str, bool]:
    """Keep the first prompts of a segment; the others and what could be undone are gone."""

    def work(session: PromptSession) -> dict[str, bool]:
        session.keep_prompts(body.count, body.segment)
        lease.prompt_count = sum(len(session.prompts(name)) for name in session.segments)
        return {"changed": True}

    state.queue.cancel(lease.token, body.segment)
    return await state.change(lease, work)


@router.post(protocol.PATH_MASK_PRIOR, openapi_extra=ARRAY_BODY)
async def set_mask_prior(
    request: Request, state: State, lease: ActiveLease, meta: MetaHeader
) -> dict[str, bool]:
    """Start a segment from a mask: packed bits of the bounding box that `X-Meta` gives."""
    place = parse_meta(MaskMeta, meta)
    shape = lease.shape
    if shape is None:
        raise no_volume()
    box: BoundingBox = [list(axis) for axis in place.bbox]
    mask = await receive_array(
        request,
        state,
        lease,
        lambda body: unpack_mask(box, body, shape),
        room_bytes=2 * math.prod(shape),  # the whole grid, and what lies in the box
    )
    return await _add(state, lease, MaskPrompt(mask), place.segment)


@router.post(protocol.PATH_PREDICT, responses=_ARRAY_ANSWER, response_class=Response)
async def predict(request: Request, state: State, lease: ActiveLease, body: SegmentIn) -> Response:
    """Mask of a segment on the volume's own grid; the newest request of a segment wins."""

    def work(session: PromptSession, job: Job) -> tuple[dict[str, object], bytes]:
        mask = session.predict(
            body.segment, cancelled=lambda: job.is_cancelled, progress=job.report
        )
        box, bits = pack_mask(np.asarray(mask, dtype=bool))
        meta: dict[str, object] = {"ran_prediction": True, "bbox": box, "shape": mask.shape}
        meta["estimated_iou"] = float(session.estimated_iou(body.segment))
        meta["expected_dice"] = session.expected_dice(body.segment)
        return meta, bits

    meta, bits = await state.predict(request, lease, body.segment, work)
    return Response(
        bits,
        media_type=protocol.OCTET_STREAM,
        headers={protocol.META_HEADER: json.dumps(meta, separators=(",", ":"))},
    )


@router.post(protocol.PATH_DOUBTFUL_PLACES)
async def doubtful_places(
    request: Request, state: State, lease: ActiveLease, body: DoubtIn
) -> PlacesOut:
    """Where to check a segment: places on its border that may well be wrong, worst first.

    A cancelling request names the job's segment, `pumit:doubtful_places`.
    """

    def work(session: PromptSession, job: Job) -> PlacesOut:
        found = session.doubtful_places(body.segment, count=body.count)
        return PlacesOut(places=[DoubtfulPlaceOut(**asdict(place)) for place in found])

    return await state.predict(request, lease, protocol.DOUBT_JOB, work)


@router.get(protocol.PATH_PROGRESS)
async def progress(state: State, lease: LivingLease) -> dict[str, bool | float]:
    """How far the session's prediction is, 0 to 1."""
    jobs = [job for job in state.queue.under_way(lease.token) if job.segment is not None]
    return {"running": bool(jobs), "fraction": jobs[0].fraction if jobs else 0.0}


@router.post(protocol.PATH_CANCEL)
async def cancel(state: State, lease: ActiveLease, body: OptionalSegmentIn) -> dict[str, int]:
    """Stop the predictions of a segment, or of the whole session; nothing else changes."""
    return {"cancelled": state.queue.cancel(lease.token, body.segment)}


@router.post(protocol.PATH_UNDO)
async def undo(state: State, lease: ActiveLease) -> dict[str, bool]:
    """Take back the last change."""
    state.queue.cancel(lease.token)
    return {"changed": await state.change(lease, lambda session: bool(session.undo()))}


@router.post(protocol.PATH_REDO)
async def redo(state: State, lease: ActiveLease) -> dict[str, bool]:
    """Repeat what was taken back."""
    state.queue.cancel(lease.token)
    return {"changed": await state.change(lease, lambda session: bool(session.redo()))}


@router.post(protocol.PATH_RESET)
async def reset(state: State, lease: ActiveLease, body: OptionalSegmentIn) -> dict[str, bool]:
    """Remove the prompts of one segment, or of all."""

    def work(session: PromptSession) -> None:
        session.reset(body.segment)
        if body.segment is None:
            lease.prompt_count = 0

    state.queue.cancel(lease.token, body.segment)
    await state.change(lease, work)
    return {"changed": True}


async def _add(state: ServerState, lease: Lease, prompt: Prompt, segment: str) -> dict[str, bool]:
    if lease.prompt_count >= state.limits.max_prompts:
        raise PromptError(f"A session takes {state.limits.max_prompts} prompts; reset it first.")

    def work(session: PromptSession) -> dict[str, bool]:
        session.add_prompt(prompt, segment)
        lease.prompt_count += 1
        return {"changed": True}

    # A prediction from the earlier prompts is not wanted any more.
    state.queue.cancel(lease.token, segment)
    return await state.change(lease, work)
