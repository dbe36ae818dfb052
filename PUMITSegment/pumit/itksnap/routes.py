"""HTTP routes for ITK-SNAP, on the same sessions as PUMIT's own API.

ITK-SNAP works on one object, here segment "1"; each response is the whole mask. An image is a
multipart form with gzipped voxels and metadata. Prompts are voxel indices: column, row and slice.
Most routes exist under the paths of released versions and of `v2`.
"""

import base64
import gzip
import json
import re
import secrets
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Depends, Path, Query, Request, Response

from pumit import __version__
from pumit.errors import PromptError, VolumeError
from pumit.file_image import finite_voxels
from pumit.gestures.prompts import lasso_prompts, scribble_prompts
from pumit.inference.interactive.session import InteractiveSession
from pumit.itksnap.paths import MODEL
from pumit.nninteractive.server.image import volume_of
from pumit.prompts import PointPrompt, Prompt, has_positive
from pumit.server.http.array_body import receive_array
from pumit.server.http.lease_routes import State
from pumit.server.sessions.fair_queue import Job
from pumit.server.sessions.leases import Lease
from pumit.server.sessions.state import ServerState, no_volume
from pumit.volume import Volume
from pumit.wire import protocol

_MOST_PARTS = 8
_ITEM_BYTES = 4  # voxels are 32-bit floats
_DAMAGED = "The upload is not a form with `file` and `metadata` as ITK-SNAP sends it."
router = APIRouter()
SEGMENT = "1"
MakePrompts = Callable[[Volume], list[Prompt]]


@dataclass(frozen=True, eq=False)
class SentImage:
    """An image of a form, still compressed.

    Attributes:
        packed: Voxels, gzip of 32-bit floats; the first axis is the fastest.
        shape: (D, H, W).
        components: Components per voxel.
        spacing_mm: (D, H, W); None if not stated, as the protocol does not require it.
    """

    packed: memoryview
    shape: tuple[int, int, int]
    components: int
    spacing_mm: tuple[float, ...] | None

    @property
    def nbytes(self) -> int:
        """Uncompressed size of the voxels, bytes."""
        d, h, w = self.shape
        return d * h * w * self.components * _ITEM_BYTES

    def array(self) -> npt.NDArray[np.float32]:
        """Decompress the voxels to (C, D, H, W), at most the announced size.

        Raises:
            VolumeError: If they are not gzip, or of another size.
        """
        unpack = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            voxels = unpack.decompress(self.packed, self.nbytes + 1)
        except zlib.error:
            raise VolumeError("The voxels are not packed as ITK-SNAP packs them (gzip).") from None
        if len(voxels) != self.nbytes:
            raise VolumeError(
                f"The voxels are not {self.nbytes} bytes, as the image's dimensions say."
            )
        array = np.frombuffer(voxels, "<f4").reshape(*self.shape, self.components)
        return np.ascontiguousarray(np.moveaxis(array, -1, 0), dtype=np.float32)


def sent_image(body: bytearray, content_type: str) -> SentImage:
    """Parse a form and return its image.

    Raises:
        VolumeError: If it is another form, or its dimensions are invalid.
    """
    parts = _parts(body, content_type)
    if not {"file", "metadata"} <= parts.keys():
        raise VolumeError(_DAMAGED)
    try:
        facts = json.loads(bytes(parts["metadata"][: 1 << 16]))
        sizes = [int(n) for n in facts["dimensions"]]
        components = int(facts.get("components_per_pixel", 1))
        spacing = facts.get("spacing")
        steps = None if spacing is None else tuple(float(s) for s in spacing)[::-1]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise VolumeError(_DAMAGED) from None
    sizes += [1] * (3 - len(sizes))
    if len(sizes) != 3 or min(sizes) < 1 or max(sizes) > 1 << 20 or not 1 <= components <= 64:
        raise VolumeError("An image needs two or three dimensions of one voxel or more.")
    w, h, d = sizes
    return SentImage(parts["file"], (d, h, w), components, steps)


def _parts(body: bytearray, content_type: str) -> dict[str, memoryview]:
    """Split a form into its parts by name, without copying (RFC 7578)."""
    found = re.search(r'boundary="?([^";,\s]{1,200})"?', content_type)
    if found is None:
        raise VolumeError(_DAMAGED)
    line, view = b"--" + found[1].encode("utf-8"), memoryview(body)
    parts: dict[str, memoryview] = {}
    start = body.find(line)
    for _ in range(_MOST_PARTS):
        begin = body.find(b"\r\n\r\n", start)
        end = body.find(b"\r\n" + line, begin + 2)
        if start < 0 or begin < 0 or end < 0 or begin - start > 1 << 14:
            raise VolumeError(_DAMAGED)
        name = re.search(rb'[;\s]name="([^"]{0,100})"', body[start:begin])
        if name is not None:
            parts[name[1].decode("latin-1")] = view[min(begin + 4, end) : end]
        start = end + 2
        after = start + len(line)
        if body[after : after + 2] == b"--":
            return parts
    raise VolumeError(_DAMAGED)


async def _lease(state: State, session_id: Annotated[str, Path(max_length=128)]) -> Lease:
    return state.leases.get(session_id)


ActiveLease = Annotated[Lease, Depends(_lease)]


@router.get("/status")
async def status() -> dict[str, str]:
    """Return the status and version of the server."""
    return {"status": "ok", "version": f"PUMIT {__version__}"}


@router.get("/v2/models")
async def models() -> dict[str, list[dict[str, Any]]]:
    """Return the only model, and the interactions that it accepts."""
    takes = ["point", "scribble", "lasso"]
    return {"models": [{"id": MODEL, "channels": [], "dimensions": 3, "interactions": takes}]}


@router.get("/start_session")
async def start_session(state: State) -> dict[str, str]:
    """Open a session, whose secret ID is part of every later path."""
    return {"session_id": state.leases.claim(is_silent=True).token}


@router.get("/v2/start_session/{model_id}")
async def start_session_v2(
    state: State, model_id: Annotated[str, Path(max_length=128)]
) -> dict[str, str]:
    """Open a session; the model ID is ignored, as there is only one model."""
    return await start_session(state)


@router.post("/upload_raw/{session_id}")
@router.post("/v2/upload_raw/{session_id}")
async def upload_raw(request: Request, state: State, lease: ActiveLease) -> dict[str, str]:
    """Open an image; a missing spacing is estimated from the voxels."""
    content_type = request.headers.get("content-type", "")

    def decode(body: bytearray) -> Volume:
        sent = sent_image(body, content_type)
        return volume_of(finite_voxels(sent.array()), sent.spacing_mm)

    volume = await receive_array(
        request, state, lease, decode, size_of=lambda body: sent_image(body, content_type).nbytes
    )

    def work(session: InteractiveSession) -> dict[str, str]:
        session.set_volume(volume)
        lease.begin(volume.shape)
        return {"message": "The image is open."}

    return await state.set_up(lease, work)


@router.get("/v2/process_point_interaction/{session_id}")
async def point_v2(
    request: Request,
    state: State,
    lease: ActiveLease,
    point: Annotated[list[int], Query(min_length=2, max_length=3)],
    foreground: bool = False,
) -> Response:
    """Add a click: column, row and slice."""
    return await _point(request, state, lease, point, foreground)


@router.get("/process_point_interaction/{session_id}")
async def point(
    request: Request,
    state: State,
    lease: ActiveLease,
    x: int,
    y: int,
    z: int,
    foreground: bool = False,
) -> Response:
    """Add a click: column, row and slice."""
    return await _point(request, state, lease, [x, y, z], foreground)


@router.post("/process_scribble_interaction/{session_id}")
@router.post("/process_lasso_interaction/{session_id}")
async def drawn(
    request: Request, state: State, lease: ActiveLease, foreground: bool = False
) -> Response:
    """Add a scribble or a lasso, drawn as nonzero voxels in an image of the same size."""
    if lease.shape is None:
        raise no_volume()
    content_type = request.headers.get("content-type", "")

    def sent_by(body: bytearray) -> SentImage:
        sent = sent_image(body, content_type)
        if sent.shape != lease.shape or sent.components != 1:
            raise PromptError("The drawn mask must have the size of the image.")
        return sent

    def decode(body: bytearray) -> Any:
        array = sent_by(body).array()[0]
        return (array != 0) & (array == array)  # NaN counts as not drawn

    mask = await receive_array(
        request, state, lease, decode, size_of=lambda body: sent_by(body).nbytes
    )

    def make(volume: Volume) -> list[Prompt]:
        if mask.shape != volume.shape:
            raise PromptError("The drawn mask must have the size of the image.")
        if not mask.any():
            return []
        is_lasso = request.url.path.startswith("/process_lasso")
        prompts_of = lasso_prompts if is_lasso else scribble_prompts
        return prompts_of(mask, (0, 0, 0), volume, is_positive=foreground)

    return await _interact(request, state, lease, make)


@router.get("/reset_interactions/{session_id}")
@router.get("/v2/reset_interactions/{session_id}")
async def reset_interactions(state: State, lease: ActiveLease) -> dict[str, str]:
    """Start a new object on the same image."""

    def work(session: InteractiveSession) -> dict[str, str]:
        session.keep_prompts(0, SEGMENT)
        lease.prompt_count = 0
        return {"status": "success"}

    # ITK-SNAP sends this whenever another label is chosen, even before an image is uploaded.
    return {"status": "success"} if lease.shape is None else await state.change(lease, work)


@router.get("/end_session/{session_id}")
@router.get("/v2/end_session/{session_id}")
async def end_session(
    state: State, session_id: Annotated[str, Path(max_length=128)]
) -> dict[str, str]:
    """Release a session; a repeated call is not an error."""
    state.leases.release(session_id)
    return {"message": "Session ended"}


async def _point(
    request: Request, state: ServerState, lease: Lease, place: list[int], is_positive: bool
) -> Response:
    def make(volume: Volume) -> list[Prompt]:
        index = np.array([*place, 0][:3][::-1])
        if (index < 0).any() or (index >= volume.shape).any():
            raise PromptError(
                f"The point {place} is outside of the image, which has "
                f"{' x '.join(str(n) for n in volume.shape[::-1])} voxels."
            )
        x, y, z = volume.index_to_world(index).tolist()
        return [PointPrompt((x, y, z), is_positive)]

    return await _interact(request, state, lease, make)


async def _interact(
    request: Request, state: ServerState, lease: Lease, make: MakePrompts
) -> Response:
    """Add prompts and return the whole mask; on error, undo the prompts."""
    if lease.prompt_count >= state.limits.max_prompts:
        raise PromptError(
            f"A session takes at most {state.limits.max_prompts} prompts; start a new label."
        )

    def work(session: InteractiveSession, job: Job) -> Response:
        prompts = make(session.volume)
        session.add_prompts(prompts, SEGMENT)
        try:
            mask = np.zeros(session.volume.shape, bool)
            # With negative prompts only, the mask is empty.
            if has_positive(session.prompts(SEGMENT)):
                mask = session.predict(SEGMENT, watch=job.watch)
        except BaseException:
            if prompts:
                session.undo()
            raise
        lease.prompt_count = len(session.prompts(SEGMENT))
        packed = gzip.compress(np.asarray(mask, np.int8).tobytes(), 1)
        result = {"status": "success", "result": base64.b64encode(packed).decode("ascii")}
        return Response(json.dumps(result), media_type="application/json")

    name = f"{protocol.VIEWER_JOB}:{secrets.token_hex(4)}"
    return await state.predict(request, lease, name, work)
