"""Connecting to a worker or server, on a thread, and describing it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pumit.errors import PumitError, ServiceError
from pumit.nninteractive.remote_capabilities import NNINTERACTIVE
from slicer.i18n import tr as _

from PUMITSlicerLib.computing.python_executable import find_python, program_environment
from PUMITSlicerLib.computing.settings import ComputeMode, ComputeSettings

if TYPE_CHECKING:
    from pumit.client.http_client import Client
    from pumit.client.remote_session import RemoteSession
    from pumit.client.worker import LocalWorker
    from pumit.nninteractive.client.session import NNInteractiveSession

logger = logging.getLogger(__name__)

_GB = 1e9


class NotInstalled(ServiceError):
    """A required package is not installed."""


def make_local_worker(settings: ComputeSettings, on_exit: Callable[[int], None]) -> LocalWorker:
    """Create a worker in Slicer's Python, not started yet.

    Raises:
        ServiceError: If Slicer's Python is not found.
    """
    from pumit.client.worker import LocalWorker

    return LocalWorker(
        settings.model,
        device=settings.device,
        python=find_python(),
        environment=program_environment(),
        on_exit=on_exit,
    )


def connect(
    settings: ComputeSettings, worker: LocalWorker | None = None
) -> tuple[Client, dict[str, Any]]:
    """Start the worker, or reach the server; return client and capabilities; call it on a thread.

    Raises:
        PumitError: If it cannot be used; one sentence says why.
    """
    if settings.mode is ComputeMode.LOCAL:
        if worker is None:
            raise ServiceError(_("There is nothing on this computer to connect to."))
        worker.start()
        client = worker.client()
    else:
        client = _remote_client(settings)
    try:
        return client, client.capabilities()
    except BaseException:
        client.close()
        raise


def open_session(
    client: Client, capabilities: dict[str, Any] | None
) -> RemoteSession | NNInteractiveSession:
    """Open a session in the protocol that the server speaks; call it on a thread.

    Raises:
        ServiceError: If the server cannot be used, or has no free session.
    """
    if is_nninteractive(capabilities):
        from pumit.nninteractive.client.session import NNInteractiveSession

        return NNInteractiveSession(client)
    from pumit.client.remote_session import RemoteSession

    return RemoteSession(client)


def is_nninteractive(capabilities: dict[str, Any] | None) -> bool:
    """Return whether it is an nnInteractive server, which only answers prompts."""
    return (capabilities or {}).get("kind") == NNINTERACTIVE


def answers_prompts_only(what: str) -> str:
    """Return the sentence that an nnInteractive server does not offer something."""
    return _(
        "This nnInteractive server does not offer {what}; compute on this computer, or on a "
        "PUMIT server."
    ).format(what=what)


def is_in_the_clear(url: str) -> bool:
    """Return whether data sent to a server could be read on the way."""
    from pumit.system.loopback import is_loopback

    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and not is_loopback(parts.hostname or "")
    except ValueError:
        return False


def describe(capabilities: dict[str, Any]) -> str:
    """Describe a server: version, model, device, memory; for nnInteractive the model's licence."""
    if is_nninteractive(capabilities):
        return _("nnInteractive {version} computes; the licence of its model: {license}.").format(
            version=capabilities.get("version", "?"),
            license=capabilities.get("license") or _("unknown"),
        )
    model = capabilities.get("model") or {}
    sentence = _("PUMIT {version} computes with model {model} on {device}").format(
        version=capabilities.get("version", "?"),
        model=model.get("name", "?"),
        device=model.get("device", "?"),
    )
    memory = describe_memory(capabilities)
    return f"{sentence}; {memory}." if memory else f"{sentence}."


def describe_memory(capabilities: dict[str, Any]) -> str:
    """Describe the accelerator's free memory; "" if unknown."""
    memory = capabilities.get("memory") or {}
    free, total = memory.get("device_free_bytes"), memory.get("device_total_bytes")
    if not free or not total:
        return ""
    return _("{free:.1f} of {total:.1f} GB of its memory are free").format(
        free=free / _GB, total=total / _GB
    )


def readable(error: Exception) -> PumitError:
    """Convert an error to one with a sentence for the user; log unexpected tracebacks."""
    from pumit.system.out_of_memory import is_out_of_memory

    if isinstance(error, PumitError):
        return error
    if is_out_of_memory(error):
        return ServiceError(
            _("The computer does not have enough memory; close other programs, or crop the scan.")
        )
    logger.error("Unexpected error", exc_info=error)
    return ServiceError(
        _("Internal error ({kind}); see the log.").format(kind=type(error).__name__)
    )


def _remote_client(settings: ComputeSettings) -> Client:
    from pumit.client.http_client import Client

    if not settings.url:
        raise ServiceError(_("Enter the server's address, such as https://host:8443."))
    certificate = settings.certificateFile
    if certificate and not Path(certificate).is_file():
        raise ServiceError(
            _("The certificate file {name} does not exist; choose it again.").format(
                name=Path(certificate).name
            )
        )
    return Client(
        settings.url,
        settings.token,
        verify=certificate or True,
        allow_unencrypted=settings.allowUnencrypted,
    )
