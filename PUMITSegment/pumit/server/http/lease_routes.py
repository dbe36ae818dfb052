"""Health, capabilities and leases: the endpoints that follow the nnInteractive protocol."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Header, Request

from pumit import __version__
from pumit.errors import CheckpointError
from pumit.models.index import list_models
from pumit.server.http.schemas import CapabilitiesOut, ClaimOut
from pumit.server.sessions.leases import Lease
from pumit.server.sessions.state import ServerState
from pumit.wire import protocol

if TYPE_CHECKING:
    from pumit.models.card import ModelCard

router = APIRouter()

# The protocol's placeholder for an unknown licence.
_NO_LICENCE = "!!MISSING!!"

LeaseToken = Annotated[str | None, Header(alias=protocol.LEASE_HEADER)]


async def server_state(request: Request) -> ServerState:
    """Return the application's server state."""
    state: ServerState = request.app.state.server
    return state


State = Annotated[ServerState, Depends(server_state)]


async def _lease(state: State, token: LeaseToken = None) -> Lease:
    return state.leases.get(token)


async def _lease_alive(state: State, token: LeaseToken = None) -> Lease:
    return state.leases.get(token, is_action=False)


# Active: the request is a user's action. Living: it only shows that the client is alive.
ActiveLease = Annotated[Lease, Depends(_lease)]
LivingLease = Annotated[Lease, Depends(_lease_alive)]


ScanId = Annotated[str | None, Header(alias=protocol.SCAN_HEADER)]


async def _shown_scan(lease: ActiveLease, scan_id: ScanId = None) -> str | None:
    lease.require_scan(scan_id)
    return scan_id


# Identity of the scan that a request is about, and that the session has; None if not sent.
ShownScan = Annotated[str | None, Depends(_shown_scan)]


@router.get(protocol.PATH_HEALTHZ)
async def healthz() -> dict[str, bool]:
    """Return `ok` if the server runs; needs no token."""
    return {"ok": True}


# Load balancers use HEAD.
router.head(protocol.PATH_HEALTHZ, include_in_schema=False)(healthz)


@router.get(protocol.PATH_CAPABILITIES)
async def capabilities(state: State) -> CapabilitiesOut:
    """Return version, models, limits and memory of this server."""
    # This reads files: keep it off the event loop.
    cards = await asyncio.to_thread(state.engine.models)
    licence = await asyncio.to_thread(_licence, state.engine.info.name)
    pumit: dict[str, Any] = {
        "api_version": protocol.API_VERSION,
        "version": __version__,
        "model": asdict(state.engine.info),
        "models": [_card(card) for card in cards],
        "limits": asdict(state.limits),
        "sessions": len(state.leases),
        "memory": asdict(state.memory()),
        "protocols": {"nninteractive": protocol.NNINTERACTIVE_VERSION},
        "prompts": ["point", "box", "scribble", "mask", "answer"],
        # `doubtful_places` is the earlier name of `uncertain_regions`.
        "answers": [
            "mask",
            "estimated_iou",
            "expected_dice",
            "quality",
            "choice",
            "uncertain_regions",
            "doubtful_places",
        ],
    }
    return CapabilitiesOut(license=licence, pumit=pumit)


def _licence(model: str) -> str:
    try:
        found = [entry.licence for entry in list_models() if entry.name == model]
    except CheckpointError:  # clicks must work with a damaged model index
        found = []
    return found[0] if found and found[0] else _NO_LICENCE


def _card(card: ModelCard) -> dict[str, Any]:
    return {
        "name": card.name,
        "kind": card.kind,
        "version": card.version,
        "description": card.description,
        "classes": [label.name for label in card.classes],
        "licence": card.licence,
        "modality": card.modality,
    }


@router.post(protocol.PATH_CLAIM)
async def claim(state: State) -> ClaimOut:
    """Open a session; its lease token goes into every later request."""
    lease = state.leases.claim()
    return ClaimOut(
        lease_token=lease.token,
        idle_timeout_seconds=state.limits.idle_timeout_s,
        liveness_timeout_seconds=state.limits.liveness_timeout_s,
        max_sessions=state.limits.max_sessions,
    )


@router.post(protocol.PATH_RELEASE)
async def release(state: State, token: LeaseToken = None) -> dict[str, bool]:
    """Free a session; releasing it twice is not an error."""
    state.leases.release(token)
    return {"released": True}


@router.post(protocol.PATH_HEARTBEAT)
async def heartbeat(state: State, lease: LivingLease) -> dict[str, float]:
    """Show that the client is alive; does not postpone the idle timeout."""
    return {"remaining_seconds": state.leases.remaining_s(lease.token)}


@router.get(protocol.PATH_LEASE_STATUS)
async def lease_status(state: State, token: LeaseToken = None) -> dict[str, float]:
    """Return the time until the idle timeout; changes nothing."""
    return {
        "remaining_seconds": state.leases.remaining_s(token),
        "idle_timeout_seconds": state.limits.idle_timeout_s,
    }
