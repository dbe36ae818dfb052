"""The endpoints of the nnInteractive protocol, on the same sessions as PUMIT's own.

A client works on one object, here the segment "1", and on a target buffer: each answer is the
box of the buffer that changed. Prompts are voxel indices in array order; they are converted to
the library's prompts.
"""

import json
import math
import secrets
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Header, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from pumit.errors import PromptError, VolumeError
from pumit.file_image import finite_voxels
from pumit.gestures.prompts import box_prompts, lasso_prompts, scribble_prompts
from pumit.inference.interactive.session import InteractiveSession
from pumit.nninteractive.server.image import buffer_dtype, range_inside, volume_of
from pumit.prompts import MaskPrompt, PointPrompt, Prompt, has_positive
from pumit.server.http.array_body import (
    ARRAY_BODY,
    MetaHeader,
    binary_answer,
    parse_meta,
    receive_array,
)
from pumit.server.http.lease_routes import ActiveLease, State
from pumit.server.sessions.fair_queue import Job
from pumit.server.sessions.leases import Lease
from pumit.server.sessions.state import ServerState, no_volume
from pumit.server.sessions.viewer_object import ObjectMask, ViewerObject, change
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.arrays import pack_array, unpack_array
from pumit.wire.prompt_answer import BoundingBox, Mask
from pumit.wire.protocol import TooLarge

# JSON bodies of version 2.6 of the protocol (PyPI `nninteractive-client`). Unlike PUMIT's own they
# ignore unknown fields, which a newer client may send.

# Far outside any grid; rounding still gives a valid integer.
_FAR = 2**31 - 1
Place = Annotated[float, Field(ge=-_FAR, le=_FAR, allow_inf_nan=False)]
Places = Annotated[list[Place], Field(min_length=3, max_length=3)]
Span = Annotated[list[Place], Field(min_length=2, max_length=2)]
Bounds = Annotated[list[Span], Field(min_length=3, max_length=3)]
WholeSpan = Annotated[
    list[Annotated[int, Field(ge=-_FAR, le=_FAR)]], Field(min_length=2, max_length=2)
]
WholeBounds = Annotated[list[WholeSpan], Field(min_length=3, max_length=3)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Interaction(_Body):
    """Keys of every prompt.

    `override_capability_checks` requests prompts that a model was not trained for. It has no
    effect: this server supports every prompt of the protocol.
    """

    include_interaction: bool
    run_prediction: bool = True
    override_capability_checks: bool = False


class PointInteraction(_Interaction):
    """A click on a voxel, in array order."""

    coordinates: Places


class BoxInteraction(_Interaction):
    """A box as half-open voxel ranges, in array order; a 2D box is one voxel thick."""

    bbox_coords: Bounds


class DrawnInteraction(_Interaction):
    """Metadata of a drawn mask: the part of the grid that it covers, by default all."""

    interaction_bbox: WholeBounds | None = None


class InitialSegmentation(_Body):
    """Metadata of an initial mask."""

    run_prediction: bool = False
    override_capability_checks: bool = False


class ImageMeta(_Body):
    """Metadata of an image; only `spacing` of its properties is used, mm in array order."""

    image_properties: dict[str, Any] | None = None


class TargetBuffer(_Body):
    """The client's target buffer: its grid, and an integer type or bool."""

    shape: Annotated[list[Annotated[int, Field(ge=1, le=_FAR)]], Field(min_length=3, max_length=3)]
    dtype: Annotated[str, Field(min_length=1, max_length=32)]


class AutoZoom(_Body):
    """Whether the field of view may grow beyond the prompt's surroundings."""

    do_autozoom: bool


class PredictPendingIn(_Body):
    """Request a prediction from prompts that were added without one."""

    force_full_refine: bool = False


class ImageOut(BaseModel):
    """Answer of `/set_image`."""

    original_image_shape: list[int]


router = APIRouter()

SEGMENT = "1"
# The protocol draws a point as a ball of this radius, voxels: one just outside the image counts.
_POINT_RADIUS = 4

MakePrompts = Callable[[Volume], list[Prompt]]
OptionalMeta = Annotated[str, Header(alias=protocol.META_HEADER, max_length=8192)]

_DRAWN = {
    protocol.PATH_ADD_SCRIBBLE: scribble_prompts,
    protocol.PATH_ADD_LASSO: lasso_prompts,
}
_CHANGED = binary_answer("The target buffer inside the changed box, which `X-Meta` states")


@router.post(protocol.PATH_SET_IMAGE, openapi_extra=ARRAY_BODY)
async def set_image(
    request: Request, state: State, lease: ActiveLease, meta: OptionalMeta = "{}"
) -> ImageOut:
    """Set the session's image: an array of shape (C, X, Y, Z). The target buffer is dropped.

    Only `spacing` of `image_properties` is used, mm in array order; if missing, it is guessed.
    """
    properties = parse_meta(ImageMeta, meta).image_properties or {}

    def decode(body: bytearray) -> Volume:
        array = unpack_array(body, max_bytes=state.limits.max_array_bytes, axes=(4,))
        return volume_of(finite_voxels(array), properties.get("spacing"))

    volume = await receive_array(request, state, lease, decode)

    def work(session: InteractiveSession) -> ImageOut:
        session.set_volume(volume)
        lease.begin(volume.shape)
        return ImageOut(original_image_shape=[volume.channels, *volume.shape])

    return await state.set_up(lease, work)


@router.post(protocol.PATH_SET_TARGET_BUFFER)
async def set_target_buffer(
    state: State, lease: ActiveLease, body: TargetBuffer
) -> dict[str, bool]:
    """Set the grid and type of the buffer that answers are written into."""
    dtype = buffer_dtype(body.dtype)
    size = math.prod(body.shape) * dtype.itemsize
    if size > state.limits.max_array_bytes:
        raise TooLarge(
            f"The target buffer would need {size} bytes, the limit is "
            f"{state.limits.max_array_bytes}."
        )

    def work(session: InteractiveSession) -> dict[str, bool]:
        if tuple(body.shape) != lease.shape:
            raise VolumeError(
                f"The target buffer needs the image's grid {lease.shape}, got {tuple(body.shape)}."
            )
        if lease.viewer is None:
            lease.viewer = ViewerObject(dtype)
        else:
            lease.viewer.renew(dtype)
        return {}

    return await state.change(lease, work)


@router.post(protocol.PATH_SET_DO_AUTOZOOM)
async def set_do_autozoom(lease: ActiveLease, body: AutoZoom) -> dict[str, bool]:
    """Accept the setting without effect; every answer is computed at several sizes."""
    return {}


@router.post(protocol.PATH_ADD_POINT, **_CHANGED)
async def add_point(
    request: Request, state: State, lease: ActiveLease, body: PointInteraction
) -> Response:
    """Add a click."""

    def make(volume: Volume) -> list[Prompt]:
        index = np.array([round(place) for place in body.coordinates])
        nearest = index.clip(0, np.array(volume.shape) - 1)
        if np.abs(index - nearest).max() <= _POINT_RADIUS:
            index = nearest
        if (index != nearest).any():
            raise PromptError(
                f"The point {list(body.coordinates)} (voxels) is outside of the image's grid "
                f"{volume.shape}; remove it and click inside the image."
            )
        place = volume.index_to_world(index).tolist()
        return [PointPrompt(tuple(place), body.include_interaction)]

    return await _interact(request, state, lease, make, runs=body.run_prediction)


@router.post(protocol.PATH_ADD_BBOX, **_CHANGED)
async def add_box(
    request: Request, state: State, lease: ActiveLease, body: BoxInteraction
) -> Response:
    """Add a box, flat or not."""
    if any(start == stop for start, stop in body.bbox_coords):
        raise PromptError(f"The box {body.bbox_coords} has no size along an axis; draw it wider.")

    def make(volume: Volume) -> list[Prompt]:
        bounds = [
            range_inside(round(span[0]), round(span[1]), size)
            for span, size in zip(body.bbox_coords, volume.shape, strict=True)
        ]
        return box_prompts(bounds, volume, is_positive=body.include_interaction)

    return await _interact(request, state, lease, make, runs=body.run_prediction)


@router.post(protocol.PATH_ADD_SCRIBBLE, openapi_extra=ARRAY_BODY, **_CHANGED)
@router.post(protocol.PATH_ADD_LASSO, openapi_extra=ARRAY_BODY, **_CHANGED)
async def add_drawn(
    request: Request, state: State, lease: ActiveLease, meta: MetaHeader
) -> Response:
    """Add a drawn stroke or area: a mask of the whole grid, or of the part that `X-Meta` gives."""
    wish = parse_meta(DrawnInteraction, meta)
    drawn = await _receive_mask(request, state, lease)

    def make(volume: Volume) -> list[Prompt]:
        bounds = wish.interaction_bbox or [[0, size] for size in volume.shape]
        extent = tuple(stop - start for start, stop in bounds)
        if extent != drawn.shape:
            raise PromptError(
                f"The drawn mask has shape {drawn.shape}, which does not match its "
                f"interaction_bbox {bounds}."
            )
        if not all(a >= 0 and b <= size for (a, b), size in zip(bounds, volume.shape, strict=True)):
            raise PromptError(f"interaction_bbox {bounds} leaves the image's grid {volume.shape}.")
        if not drawn.any():  # the protocol allows an empty drawing, which changes nothing
            return []
        start = [start for start, _ in bounds]
        prompts_of = _DRAWN[request.url.path]
        return prompts_of(drawn, start, volume, is_positive=wish.include_interaction)

    return await _interact(request, state, lease, make, runs=wish.run_prediction)


@router.post(protocol.PATH_ADD_INITIAL_SEG, openapi_extra=ARRAY_BODY, **_CHANGED)
async def add_initial_seg(
    request: Request, state: State, lease: ActiveLease, meta: OptionalMeta = "{}"
) -> Response:
    """Start from a mask of the whole grid, which replaces buffer and prompts; one undo step."""
    wish = parse_meta(InitialSegmentation, meta)
    drawn = await _receive_mask(request, state, lease)

    def work(session: InteractiveSession, job: Job) -> Response:
        if drawn.shape != lease.shape:
            raise PromptError(
                f"The segmentation needs the image's grid {lease.shape}, got {drawn.shape}."
            )
        viewer, packed = _viewer(lease), ObjectMask.of(drawn)
        prior = [] if packed.box is None else [MaskPrompt(drawn)]
        earlier = session.prompts(SEGMENT)
        if earlier:
            session.reset(SEGMENT)
        try:
            if prior:
                session.add_prompts(prior, SEGMENT)
        except BaseException:
            if earlier:
                session.undo()
            raise
        viewer.begin(bool(earlier) + len(prior), earlier)
        # The client writes the mask into its buffer itself.
        viewer.settle(packed, session.prompts(SEGMENT))
        _count_prompts(session, lease)
        return _predict_step(session, viewer, job, runs=wish.run_prediction)

    return await _run(request, state, lease, work)


@router.post(protocol.PATH_VIEWER_UNDO, **_CHANGED)
async def undo(request: Request, state: State, lease: ActiveLease) -> Response:
    """Undo the last interaction and its change of the buffer; several levels can be undone."""

    def work(session: InteractiveSession, job: Job) -> Response:
        viewer = _viewer(lease)
        before = viewer.mask
        if not _take_back(session, viewer):
            return _answer(viewer, None, has_run=False)
        _count_prompts(session, lease)
        return _answer(viewer, change(before, viewer.mask), has_run=True)

    return await _run(request, state, lease, work)


@router.post(protocol.PATH_RESET_INTERACTIONS)
async def reset_interactions(state: State, lease: ActiveLease) -> dict[str, bool]:
    """Start a new object on the same image: no prompts, an empty buffer, no undo steps."""
    # napari calls this whenever another image is selected, even before it has sent one.
    if lease.shape is None:
        return {}

    def work(session: InteractiveSession) -> dict[str, bool]:
        session.keep_prompts(0, SEGMENT)
        if lease.viewer is not None:
            lease.viewer.clear()
        _count_prompts(session, lease)
        return {}

    return await state.change(lease, work)


@router.post(protocol.PATH_VIEWER_PREDICT, **_CHANGED)
async def predict(
    request: Request, state: State, lease: ActiveLease, body: PredictPendingIn
) -> Response:
    """Predict from the prompts that were added without a prediction, if there are any."""

    def work(session: InteractiveSession, job: Job) -> Response:
        viewer = _viewer(lease)
        if viewer.is_answered(session.prompts(SEGMENT)):
            return _answer(viewer, None, has_run=False)
        return _predict(session, viewer, job)

    return await _run(request, state, lease, work)


async def _interact(
    request: Request, state: ServerState, lease: Lease, make: MakePrompts, *, runs: bool
) -> Response:
    """Add prompts as one undo step, and predict if requested."""
    if lease.prompt_count >= state.limits.max_prompts:
        raise PromptError(
            f"A session takes at most {state.limits.max_prompts} prompts; reset it first."
        )

    def work(session: InteractiveSession, job: Job) -> Response:
        viewer = _viewer(lease)
        earlier = session.prompts(SEGMENT)
        prompts = make(session.volume)
        session.add_prompts(prompts, SEGMENT)
        viewer.begin(1 if prompts else 0, earlier)
        _count_prompts(session, lease)
        return _predict_step(session, viewer, job, runs=runs)

    return await _run(request, state, lease, work)


async def _run(
    request: Request,
    state: ServerState,
    lease: Lease,
    work: Callable[[InteractiveSession, Job], Response],
) -> Response:
    # A unique name: unlike PUMIT's own predictions, these never supersede one another.
    name = f"{protocol.VIEWER_JOB}:{secrets.token_hex(4)}"
    return await state.predict(request, lease, name, work)


def _predict(session: InteractiveSession, viewer: ViewerObject, job: Job) -> Response:
    prompts = session.prompts(SEGMENT)
    if has_positive(prompts):
        mask = session.predict(SEGMENT, watch=job.watch)
        after = ObjectMask.of(np.asarray(mask, dtype=bool))
        job.watch.check()  # if the client has left, the server's copy of its buffer must not change
    else:
        after = ObjectMask()  # the protocol answers only negative prompts with an empty mask
    before = viewer.mask
    viewer.settle(after, prompts)
    return _answer(viewer, change(before, after), has_run=True)


def _predict_step(
    session: InteractiveSession, viewer: ViewerObject, job: Job, *, runs: bool
) -> Response:
    """Predict if requested; undo the step if it fails, so that client and server stay in step."""
    if not runs:
        return _answer(viewer, None, has_run=False)
    try:
        return _predict(session, viewer, job)
    except BaseException:
        _take_back(session, viewer)
        raise


def _take_back(session: InteractiveSession, viewer: ViewerObject) -> bool:
    """Undo the last step, unless PUMIT's own endpoints have changed the session since."""
    changes = viewer.changes
    if changes is None:
        return False
    undone = 0
    while undone < changes and session.undo():
        undone += 1
    if viewer.undo_step(session.prompts(SEGMENT)):
        return True
    for _ in range(undone):
        session.redo()
    return False


def _answer(
    viewer: ViewerObject, changed: tuple[BoundingBox, Mask] | None, *, has_run: bool
) -> Response:
    meta: dict[str, object] = {"ran_prediction": has_run, "bbox": None}
    content = b""
    if changed is not None:
        meta["bbox"], mask = changed
        meta["dtype"], meta["shape"] = viewer.dtype.name, list(mask.shape)
        content = pack_array(mask.astype(viewer.dtype), codec="zstd")
    return Response(
        content,
        media_type=protocol.OCTET_STREAM,
        headers={protocol.META_HEADER: json.dumps(meta, separators=(",", ":"))},
    )


async def _receive_mask(request: Request, state: ServerState, lease: Lease) -> Mask:
    if lease.shape is None:
        raise no_volume()

    def decode(body: bytearray) -> Mask:
        drawn = unpack_array(body, max_bytes=state.limits.max_array_bytes, axes=(3,))
        return (drawn != 0) & (drawn == drawn)  # NaN counts as not drawn

    return await receive_array(request, state, lease, decode)


def _viewer(lease: Lease) -> ViewerObject:
    if lease.viewer is None:
        raise PromptError(
            "There is no target buffer to write answers into; send its shape and type first."
        )
    return lease.viewer


def _count_prompts(session: InteractiveSession, lease: Lease) -> None:
    lease.prompt_count = sum(len(session.prompts(name)) for name in session.segments)
