"""Paths, headers and errors of the protocol, shared by client and server.

The server implements the nnInteractive client/server protocol (PyPI `nninteractive-client` 2.6):
leases, heartbeats, bearer token, array bodies and endpoints. Extensions are under `PREFIX`.
"""

from http import HTTPStatus

from pumit import __version__, errors

API_VERSION = 3
PREFIX = f"/pumit/v{API_VERSION}"
OUR_VERSION = f"This server (pumit {__version__}) speaks version {API_VERSION} of the API"
OTHER_VERSION = f"{OUR_VERSION}, the client another version; update the older of the two."

# Headers.
META_HEADER = "X-Meta"
LEASE_HEADER = "X-Lease-Token"
VERSION_HEADER = "X-Pumit-Api"
# Identity of a scan: answered by `/scan` and `/volume`, and sent with requests about that scan.
SCAN_HEADER = "X-Pumit-Scan"
# Replaces `Accept-Encoding` for web pages, which must not set that header.
CODEC_HEADER = "X-Pumit-Codec"
OCTET_STREAM = "application/octet-stream"

# Leases, as in the nnInteractive protocol.
PATH_HEALTHZ = "/healthz"
PATH_CAPABILITIES = "/capabilities"
PATH_CLAIM = "/claim"
PATH_RELEASE = "/release"
PATH_HEARTBEAT = "/heartbeat"
PATH_LEASE_STATUS = "/lease_status"

# One object on one image, as in the nnInteractive protocol.
NNINTERACTIVE_VERSION = "2.6.0"
PATH_SET_IMAGE = "/set_image"
PATH_SET_TARGET_BUFFER = "/set_target_buffer"
PATH_SET_DO_AUTOZOOM = "/set_do_autozoom"
PATH_ADD_POINT = "/add_point_interaction"
PATH_ADD_BBOX = "/add_bbox_interaction"
PATH_ADD_SCRIBBLE = "/add_scribble_interaction"
PATH_ADD_LASSO = "/add_lasso_interaction"
PATH_ADD_INITIAL_SEG = "/add_initial_seg_interaction"
PATH_RESET_INTERACTIONS = "/reset_interactions"
PATH_VIEWER_UNDO = "/undo"
PATH_VIEWER_PREDICT = "/predict"

# PUMIT's extensions.
PATH_VOLUME = f"{PREFIX}/volume"
PATH_MASK_PRIOR = f"{PREFIX}/mask_prior"
PATH_PREDICT = f"{PREFIX}/predict"
PATH_SEGMENT_AUTOMATICALLY = f"{PREFIX}/segment_automatically"
PATH_FIND = f"{PREFIX}/find"
PATH_RECONSTRUCT = f"{PREFIX}/reconstruct"

# For the web page: the scan of `pumit view`, and masks as files.
PATH_SCAN = f"{PREFIX}/scan"
PATH_EXPORT = f"{PREFIX}/export"

# Segments of other jobs: a newer job of the same name cancels the earlier one.
AUTOMATIC_JOB = "pumit:automatic"
RECONSTRUCTION_JOB = "pumit:reconstruction"
VIEWER_JOB = "pumit:viewer"

# Paths with an array as request body; every other body is small JSON.
ARRAY_PATHS = frozenset(
    {
        PATH_SET_IMAGE,
        PATH_ADD_SCRIBBLE,
        PATH_ADD_LASSO,
        PATH_ADD_INITIAL_SEG,
        PATH_VOLUME,
        PATH_MASK_PRIOR,
    }
)

# A worker gets its token by environment: arguments are visible to every user of the machine.
TOKEN_VARIABLE = "PUMIT_TOKEN"
PARENT_VARIABLE = "PUMIT_PARENT_PID"


class ArrayError(errors.ServiceError):
    """An array body that is damaged, or declares more than is allowed."""


class TooLarge(ArrayError):
    """An array or body beyond the server's limit."""


class BusyError(errors.ServiceError):
    """The server cannot accept this request now: no free session, or too many waiting requests."""


class LeaseExpired(errors.ServiceError):
    """The session on the server is gone: idle for too long, or the server was restarted."""


class UnknownMask(errors.ServiceError):
    """A mask prior that the server does not hold (any more); it must be sent first."""


class OtherScan(errors.ServiceError):
    """The client shows another scan than the one that is open; nothing was changed."""

    def __init__(self) -> None:
        super().__init__("This page shows another scan than the one that is open; reload it.")


# Errors that are sent by name; clients that do not know a name take it as a ServiceError.
_ERRORS: dict[str, type[errors.PumitError]] = {
    kind.__name__: kind
    for kind in (
        errors.VolumeError,
        errors.PromptError,
        errors.StructureError,
        errors.ConsentNeeded,
        errors.OtherModality,
        errors.UnknownModality,
        errors.UnfamiliarScan,
        errors.CheckpointError,
        errors.ExportError,
        errors.ServiceError,
        errors.Cancelled,
        TooLarge,
    )
}


def error_name(error: errors.PumitError) -> str:
    """Return the name by which an error is sent; unknown classes are sent as a base class."""
    for kind in type(error).__mro__:
        if kind.__name__ in _ERRORS:
            return kind.__name__
    return errors.ServiceError.__name__


def error_from_name(name: str, message: str, status: int) -> errors.PumitError:
    """Return the client's error for an error response."""
    if status == HTTPStatus.GONE:
        return LeaseExpired(message)
    if status == HTTPStatus.FAILED_DEPENDENCY:
        return UnknownMask(message)
    return _ERRORS.get(name, errors.ServiceError)(message)
