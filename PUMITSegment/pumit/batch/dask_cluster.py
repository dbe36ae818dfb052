"""Batch prediction on a running Dask cluster.

Dask distributes the tasks, and reassigns a task whose worker dies. Added here: a restarted
scheduler gets the unfinished tasks, and a scan whose workers died is retried alone, since another
scan may have been the cause. Anyone who reaches the scheduler can run code on the cluster: restrict
access to its users, or use Dask's `tls://`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pumit.batch.task import Outcome, ScanTask, predict_scan
from pumit.errors import PumitError, ServiceError

if TYPE_CHECKING:
    from distributed import Client

logger = logging.getLogger(__name__)

PATIENCE_S = 120.0
_CONNECT_S = 10.0
# Retries help if only some workers cannot run a task, such as those with another version.
_RETRIES = 2
KILLED = "Every worker that processed this scan ended abruptly, for example for lack of memory."
Work = Callable[[ScanTask], Outcome]


def run_on_dask(
    tasks: Sequence[ScanTask],
    address: str,
    *,
    resources: dict[str, float] | None = None,
    patience_s: float = PATIENCE_S,
    work: Work = predict_scan,
    on_wait: Callable[[str], None] | None = None,
) -> Generator[Outcome, None, None]:
    """Run tasks on a cluster.

    Args:
        tasks: Tasks to run; workers must see the same files under the same paths.
        address: Address of the scheduler, `tcp://host:8786`.
        resources: Worker resources that each task needs, such as `{"GPU": 1}`.
        patience_s: Longest wait for a lost scheduler, seconds.
        work: Function that runs one task; workers must be able to import it.
        on_wait: Callback with a sentence for the user while waiting for the scheduler.

    Yields:
        Outcomes in order of completion.

    Raises:
        PumitError: If Dask is not installed.
        ServiceError: If no scheduler answers, or no worker has the resources.
    """
    left = {task.scan.name: task for task in tasks}
    suspects: dict[str, ScanTask] = {}
    # Wait longer for a lost connection than for the first one.
    patience = _CONNECT_S
    while left or suspects:
        client = _connect(address, patience)
        patience = patience_s
        try:
            _check_resources(client, resources)
            yield from _rounds(client, left, suspects, work, resources)
        finally:
            _close(client)
        if (left or suspects) and on_wait is not None:
            on_wait("Lost the Dask scheduler; waiting for it")


def _rounds(
    client: Client,
    left: dict[str, ScanTask],
    suspects: dict[str, ScanTask],
    work: Work,
    resources: dict[str, float] | None,
) -> Iterator[Outcome]:
    """Yield outcomes until all is done or the scheduler is lost; remove the tasks that are done."""
    for name, error in _given_out(client, list(left.values()), work, resources):
        if isinstance(error, Outcome):
            del left[name]
            yield error
        elif _is_killed(error):
            suspects[name] = left.pop(name)
        elif error is None:
            return
        else:
            del left[name]
            yield Outcome(name, "failed", _unrunnable(error))
    for suspect in list(suspects.values()):
        for name, error in _given_out(client, [suspect], work, resources):
            if error is None:
                return
            del suspects[name]
            if isinstance(error, Outcome):
                yield error
            else:
                text = KILLED if _is_killed(error) else _unrunnable(error)
                yield Outcome(name, "failed", text)


def _given_out(
    client: Client, tasks: Sequence[ScanTask], work: Work, resources: dict[str, float] | None
) -> Iterator[tuple[str, Outcome | BaseException | None]]:
    """Submit tasks; yield each name with its outcome or error, or None for a lost scheduler."""
    from distributed import as_completed

    if not tasks:
        return
    names = {}
    for task in tasks:
        future = client.submit(
            work, task, pure=False, retries=_RETRIES, resources=resources or None
        )
        names[future] = task.scan.name
    for future in as_completed(list(names)):
        name = names[future]
        if future.status == "finished":
            try:
                yield name, future.result()
            except Exception as error:  # the scheduler was lost after the task had finished
                logger.info("lost a result: %s", type(error).__name__)
                yield name, None
        elif future.status == "error":
            yield name, future.exception() or RuntimeError("unknown")
        else:
            yield name, None
        future.release()


def _connect(address: str, patience_s: float) -> Client:
    try:
        from distributed import Client
    except ImportError:
        raise PumitError(
            "Dask is not installed; `pip install distributed` here and on the workers."
        ) from None
    end = time.monotonic() + patience_s
    while True:
        try:
            return Client(address, timeout=max(1.0, min(_CONNECT_S, end - time.monotonic())))
        except (OSError, TimeoutError) as error:
            if time.monotonic() >= end - 1:
                logger.info("no scheduler: %s", error)
                raise ServiceError(f"No Dask scheduler answers at {address}; start it.") from None
            time.sleep(0.5)
        except ValueError as error:
            raise ServiceError(
                f"{address!r} is not the address of a Dask scheduler ({error}); give one such as "
                "tcp://host:8786."
            ) from None


def _check_resources(client: Client, resources: dict[str, float] | None) -> None:
    """Refuse resources that no current worker has; a cluster without workers may still get some."""
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    for name, amount in (resources or {}).items():
        if workers and all(w["resources"].get(name, 0) < amount for w in workers.values()):
            raise ServiceError(
                f"None of the {len(workers)} Dask workers offers {name}={amount:g}; start them "
                f"with `dask worker --resources {name}={amount:g}`."
            )


def _close(client: Client) -> None:
    try:
        client.close(timeout=2)
    except (OSError, TimeoutError, RuntimeError) as error:  # the scheduler is lost
        logger.info("closing the client failed: %s", type(error).__name__)


def _is_killed(error: object) -> bool:
    return type(error).__name__ == "KilledWorker"


def _unrunnable(error: BaseException) -> str:
    return (
        f"The Dask workers cannot run the task ({type(error).__name__}); install this version of "
        "pumit on them."
    )
