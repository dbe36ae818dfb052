"""The browser page: its static files, the scan of `pumit view`, and the export of masks.

The static files need no token; the page's requests do. Nothing is fetched from another host, which
`Content-Security-Policy` also forbids.
"""

import gzip
import html
import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from pumit.errors import ExportError, VolumeError
from pumit.export.nifti import nifti_bytes
from pumit.export.terminology import SegmentTerminology, concept_for
from pumit.export.write import segmentation_bytes
from pumit.inference.interactive.session import InteractiveSession
from pumit.preprocessing.channels import is_colour
from pumit.segmentation import Algorithm, Segment, Segmentation
from pumit.server.http.array_body import binary_answer, take_until_answered
from pumit.server.http.lease_routes import ActiveLease, ScanId, ShownScan, State
from pumit.server.http.schemas import ExportedSegment, ExportIn
from pumit.server.sessions.state import ServerState
from pumit.volume import Volume
from pumit.wire import protocol

PAGE = "/view/"
_FOLDER = Path(__file__).parents[1] / "page"
_TYPES = {
    "": "text/html; charset=utf-8",
    "view.js": "text/javascript; charset=utf-8",
    "stated_grid.js": "text/javascript; charset=utf-8",
    "niivue.umd.js": "text/javascript; charset=utf-8",
    "view.css": "text/css; charset=utf-8",
}
PAGE_PATHS = tuple(PAGE + name for name in _TYPES)
PAGE_WITHOUT_SLASH = PAGE.rstrip("/")
_TOKEN_MARK = "<!-- token -->"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}

router = APIRouter()
page = APIRouter(include_in_schema=False)

_FILE = binary_answer("The file")


async def _file(request: Request) -> Response:
    name = request.url.path.removeprefix(PAGE)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers = {**_HEADERS, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(_packed(name), media_type=_TYPES[name], headers=headers)
    return Response(_content(name), media_type=_TYPES[name], headers=_HEADERS)


for _path in PAGE_PATHS:
    page.add_api_route(_path, _file, methods=["GET"])


@page.get(PAGE_WITHOUT_SLASH)
async def add_slash() -> Response:
    """Redirect an address without the trailing slash to the page."""
    return RedirectResponse(PAGE)


@page.post(PAGE)
async def enter(request: Request) -> Response:
    """Return the page with the posted token, which its script keeps in the tab's memory.

    `pumit view` hands the token to the browser this way, to keep it out of URL and history.
    """
    form = parse_qs((await request.body()).decode("utf-8", errors="replace"))
    token = html.escape(form.get("token", [""])[0])
    text = _content("").decode("utf-8")
    text = text.replace(_TOKEN_MARK, f'<meta name="pumit-token" content="{token}">')
    headers = {**_HEADERS, "Cache-Control": "no-store"}
    return Response(text, media_type=_TYPES[""], headers=headers)


@cache
def _content(name: str) -> bytes:
    file = _FOLDER / (name or "index.html")
    return file.read_bytes() if file.is_file() else gzip.decompress(_packed(name))


@cache
def _packed(name: str) -> bytes:
    file = _FOLDER / f"{name}.gz"
    return file.read_bytes() if file.is_file() else gzip.compress(_content(name), mtime=0)


@router.post(protocol.PATH_SCAN, **_FILE)
async def open_own_scan(state: State, lease: ActiveLease, scan_id: ScanId = None) -> Response:
    """Open the scan of `pumit view` in the session, and return it as NIfTI.

    `X-Meta` has its exact geometry, in the form of `/volume`, and `is_dicom`. `X-Pumit-Scan` has
    its identity: a hash of voxels, grid and DICOM instances. A page that was opened before this
    server was sends it, and is refused (412) if it is another scan's.
    """
    scan = state.scan
    if scan is None:
        raise VolumeError("This server offers no scan; open a file.")
    own_id = await state.scan_id()
    if scan_id not in (None, own_id):
        raise protocol.OtherScan

    def work(session: InteractiveSession) -> None:
        session.set_volume(scan)
        lease.begin(scan.shape, own_id)

    await state.set_up(lease, work)
    meta = {
        "spacing_mm": scan.spacing_mm,
        "origin_lps": scan.origin_lps,
        "direction": scan.direction.tolist(),
        "is_dicom": scan.source is not None,
    }
    body = await state.in_thread(lambda: _shown(scan))
    headers = {
        protocol.META_HEADER: json.dumps(meta),
        protocol.SCAN_HEADER: own_id,
        "Cache-Control": "no-store",
    }
    return Response(body, media_type=protocol.OCTET_STREAM, headers=headers)


def _shown(scan: Volume) -> bytes:
    """Return a scan as NIfTI: in colour if it has colours, else its first channel."""
    array = scan.array
    if array.ndim == 4:
        array = array[:3] if is_colour(scan) else array[0]
    return nifti_bytes(array, scan)


@router.post(protocol.PATH_EXPORT, **_FILE)
async def export(state: State, lease: ActiveLease, scan_id: ShownScan, body: ExportIn) -> Response:
    """Return masks as one file, on the session's scan; they are the hashes of `/mask_prior`.

    DICOM-SEG needs a scan that the server itself read from DICOM. Nothing is written to disk.
    """
    masks = [lease.priors.find(segment.sha256) for segment in body.segments]
    volume = await state.change(lease, lambda session: session.volume, scan_id=scan_id)
    # Each mask is held twice: unpacked, and in the file.
    await take_until_answered(state.uploads, 2 * len(masks) * math.prod(volume.shape))

    def write() -> bytes:
        segments = tuple(
            _segment(wanted, prompt.mask)
            for wanted, prompt in zip(body.segments, masks, strict=True)
        )
        whole = Segmentation(volume, segments, _algorithm(state, body.model))
        return segmentation_bytes(whole, f".{body.format}")

    made = await state.in_thread(write)
    return Response(made, media_type=protocol.OCTET_STREAM, headers={"Cache-Control": "no-store"})


def _segment(wanted: ExportedSegment, mask: Any) -> Segment:
    """Return a segment with its name, colour, and the terminology of its name if there is one."""
    try:
        meaning = concept_for(wanted.terminology or wanted.name)
    except ExportError:
        meaning = SegmentTerminology()
    return replace(meaning.segment(wanted.name, mask), color_rgb=wanted.color_rgb)


def _algorithm(state: ServerState, model: str | None) -> Algorithm:
    if model is not None:
        return Algorithm(f"PUMIT {model}", state.engine.version_of(model), "AUTOMATIC")
    info = state.engine.info
    return Algorithm(f"PUMIT {info.name}", info.version, "SEMIAUTOMATIC")
