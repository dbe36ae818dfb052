"""Clients of version 2 of the API; this file goes with the release after version 3 came.

In version 2 a long request was answered with its result alone, and two other endpoints told its
progress and cancelled it. Everything else is the same, so paths of version 2 lead to version 3.
"""

from fastapi import APIRouter, Request
from starlette.types import Scope

from pumit.server.http.lease_routes import ActiveLease, LivingLease, State
from pumit.server.http.schemas import OptionalSegmentIn
from pumit.wire.protocol import EARLIER_VERSION, PREFIX

_PREFIX = f"/pumit/v{EARLIER_VERSION}"
_OWN_PATHS = (f"{_PREFIX}/progress", f"{_PREFIX}/cancel")
_IS_VERSION_2 = "pumit_is_version_2"

router = APIRouter(include_in_schema=False)


def lead_to_version_3(scope: Scope) -> None:
    """Replace a path of version 2 by that of the current version."""
    path = scope["path"]
    if path.startswith(f"{_PREFIX}/") and path not in _OWN_PATHS:
        scope["path"] = PREFIX + path.removeprefix(_PREFIX)
        scope.setdefault("state", {})[_IS_VERSION_2] = True


def is_version_2(request: Request) -> bool:
    """Return whether a request came by a path of version 2."""
    return _IS_VERSION_2 in request.scope["state"]


@router.get(_OWN_PATHS[0])
async def progress(state: State, lease: LivingLease) -> dict[str, bool | float]:
    """Return the progress of the session's prediction, 0 to 1."""
    jobs = [job for job in state.queue.jobs_of(lease.token) if job.segment is not None]
    return {"running": bool(jobs), "fraction": jobs[0].fraction if jobs else 0.0}


@router.post(_OWN_PATHS[1])
async def cancel(state: State, lease: ActiveLease, body: OptionalSegmentIn) -> dict[str, int]:
    """Cancel the predictions of a segment, or of the whole session."""
    return {"cancelled": state.queue.cancel(lease.token, body.segment)}
