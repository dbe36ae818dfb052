"""Routes of one session: volume, mask priors and predictions."""

import math
import secrets

import numpy as np
from fastapi import APIRouter, Request, Response

from pumit.errors import PromptError
from pumit.file_image import finite_voxels
from pumit.inference.interactive.session import InteractiveSession
from pumit.prompts import MaskPrompt, prompt_from_dict
from pumit.server.http.array_body import (
    ARRAY_BODY,
    MetaHeader,
    parse_meta,
    receive_array,
)
from pumit.server.http.job_answer import answer_codec, job_answer, streamed
from pumit.server.http.lease_routes import ActiveLease, ShownScan, State
from pumit.server.http.schemas import (
    MaskIn,
    MaskMeta,
    MaskOut,
    PredictIn,
    VolumeMeta,
)
from pumit.server.sessions.fair_queue import Job
from pumit.server.sessions.state import no_volume
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.arrays import Array, unpack_array
from pumit.wire.prompt_answer import BoundingBox, pack_answer, unpack_mask

router = APIRouter()

_ANSWER = streamed(
    "a bundle: JSON with `bbox`, `shape`, `estimated_iou`, `expected_dice`, `places` and `choice` "
    "(the number of this answer to the prompts, and how many there are), and the array `mask`, "
    "packed bits of the bounding box"
)


@router.post(protocol.PATH_VOLUME, openapi_extra=ARRAY_BODY)
async def set_volume(
    request: Request, response: Response, state: State, lease: ActiveLease, meta: MetaHeader
) -> dict[str, list[int]]:
    """Set the session's volume: an array of shape (D, H, W) or (C, D, H, W) with its geometry.

    The answer's header `X-Pumit-Scan` identifies the volume. A later request with this header is
    refused (412) if the session has another volume by then.
    """
    scan_id = secrets.token_hex(32)
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
        # If this raises, the session keeps its earlier volume.
        session.set_volume(volume, channel=geometry.channel)
        lease.begin(volume.shape, scan_id)
        return {"shape": list(volume.shape)}

    answer = await state.set_up(lease, work)
    response.headers[protocol.SCAN_HEADER] = scan_id
    return answer


@router.post(protocol.PATH_MASK_PRIOR, openapi_extra=ARRAY_BODY)
async def hold_mask_prior(
    request: Request, state: State, lease: ActiveLease, scan_id: ShownScan, meta: MetaHeader
) -> MaskOut:
    """Store a mask for prompts to refer to: packed bits of the bounding box in `X-Meta`.

    Each mask is sent once; prompts of `/predict` refer to it by the returned hash.
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
        lambda body: MaskPrompt(unpack_mask(box, body, shape)),
        room_bytes=2 * math.prod(shape),  # the whole grid, and the box
    )
    lease.require_scan(scan_id)
    lease.priors.add(prompt)
    return MaskOut(sha256=prompt.sha256)


@router.post(protocol.PATH_PREDICT, **_ANSWER)
async def predict(
    request: Request, state: State, lease: ActiveLease, scan_id: ShownScan, body: PredictIn
) -> Response:
    """Return a segment's mask on the volume's grid, its estimated quality and places to check.

    Each request has all prompts, so the answer depends only on them and the volume. A newer
    request for a segment cancels an older one that waits or runs. With `Accept-Encoding: identity`
    the mask's bits are not compressed.
    """
    if len(body.prompts) > state.limits.max_prompts:
        raise PromptError(
            f"A segment takes at most {state.limits.max_prompts} prompts; remove some."
        )
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

    return await job_answer(request, state, lease, body.segment, work)
