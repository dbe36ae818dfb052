"""One connection to a worker or server, made on a thread, and its description."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from pumit.errors import PumitError, ServiceError
from pumit.nninteractive.remote_capabilities import NNINTERACTIVE
from slicer.i18n import tr as _

from PUMITSlicerLib.computing.python_executable import find_python, program_environment
from PUMITSlicerLib.computing.settings import ComputeMode, ComputeSettings

if TYPE_CHECKING:
    from pumit.client.http_client import Client
    from pumit.client.remote_session import RemoteSession
    from pumit.nninteractive.client.session import NNInteractiveSession

logger = logging.getLogger(__name__)

_GB = 1e9


class NotInstalled(ServiceError):
    """Something that computing needs is not installed yet."""


class WorkerProcess(Protocol):
    """Interface of `pumit.server.LocalWorker`."""

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""

    @property
    def error_output(self) -> str:
        """Last lines of its standard error."""

    def start(self) -> None:
        """Start it and wait until it answers."""

    def client(self) -> Client:
        """Return a client of it."""

    def close(self) -> None:
        """End it and wait for that; also while another thread is in `start`."""


@dataclass(frozen=True)
class Connection:
    """Connection to a worker or a server.

    Attributes:
        client: Client of it.
        capabilities: The server's capabilities.
    """

    client: Client
    capabilities: dict[str, Any]


def make_local_worker(settings: ComputeSettings, on_exit: Callable[[int], None]) -> WorkerProcess:
    """Return a worker in Slicer's Python, not started yet.

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


def connect(settings: ComputeSettings, worker: WorkerProcess | None = None) -> Connection:
    """Start the worker, or reach the server, and read its capabilities; on a thread.

    Args:
        settings: The user's settings.
        worker: The worker to start, for this machine.

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
        return Connection(client, client.capabilities())
    except BaseException:
        client.close()
        raise


def open_session(
    client: Client, capabilities: dict[str, Any] | None
) -> RemoteSession | NNInteractiveSession:
    """Return a new session in the words that the server understands; on a thread.

    Raises:
        ServiceError: If the server cannot be used, or has no session to give.
    """
    if is_nninteractive(capabilities):
        from pumit.nninteractive.client.session import NNInteractiveSession

        return NNInteractiveSession(client)
    from pumit.client.remote_session import RemoteSession

    return RemoteSession(client)


def is_nninteractive(capabilities: dict[str, Any] | None) -> bool:
    """Whether it is an nnInteractive server, which answers prompts and nothing else."""
    return (capabilities or {}).get("kind") == NNINTERACTIVE


def answers_prompts_only(what: str) -> str:
    """Say that an nnInteractive server does not offer something, and who does."""
    return _(
        "This nnInteractive server does not offer {what}; compute on this computer, or on a "
        "PUMIT server."
    ).format(what=what)


def is_in_the_clear(url: str) -> bool:
    """Whether anybody on the way to a server could read what is sent there."""
    from pumit.system.loopback import is_loopback

    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and not is_loopback(parts.hostname or "")
    except ValueError:
        return False


def describe(capabilities: dict[str, Any]) -> str:
    """Say what computes: version, model, device and memory; of others the model's licence."""
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
    """Say how much memory is free on the accelerator, or "" where there is none."""
    memory = capabilities.get("memory") or {}
    free, total = memory.get("device_free_bytes"), memory.get("device_total_bytes")
    if not free or not total:
        return ""
    return _("{free:.1f} of {total:.1f} GB of its memory are free").format(
        free=free / _GB, total=total / _GB
    )


def readable(error: Exception) -> PumitError:
    """Return an error with one sentence for the user; log the traceback of unexpected ones."""
    from pumit.system.out_of_memory import is_out_of_memory

    if isinstance(error, PumitError):
        return error
    if is_out_of_memory(error):
        return ServiceError(
            _("The computer's memory does not suffice; close other programs, or crop the scan.")
        )
    logger.error("Unexpected error", exc_info=error)
    return ServiceError(
        _("Internal error ({kind}); see the log.").format(kind=type(error).__name__)
    )


def _remote_client(settings: ComputeSettings) -> Client:
    from pumit.client.http_client import Client

    if not settings.url:
        raise ServiceError(_("Give the server's address, such as https://host:8443."))
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
