"""Batch prediction in processes of this machine; a crash fails only one scan."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for

from pumit.batch.task import Outcome, ScanTask, predict_scan

CRASHED = "The process that computed this scan ended abruptly, for example for lack of memory."
Work = Callable[[ScanTask], Outcome]


def run_in_processes(
    tasks: Sequence[ScanTask], processes: int, *, work: Work = predict_scan
) -> Iterator[Outcome]:
    """Run tasks in several processes.

    If a process dies, the tasks that ran at that time are retried one by one, since any of them
    may have been the cause.

    Args:
        processes: Number of processes; the machine's cores are divided among them.
        work: Function that runs one task; the processes must be able to import it.

    Yields:
        Outcomes in order of completion.
    """
    waiting, suspects = deque(tasks), deque[ScanTask]()
    while waiting or suspects:
        # 1. First run suspects, one by one.
        alone = bool(suspects)
        queue = suspects if alone else waiting
        at_once = 1 if alone else processes
        running: dict[Future[Outcome], ScanTask] = {}
        with _pool(min(at_once, len(queue)), processes) as pool:
            try:
                is_broken = False
                while (queue or running) and not is_broken:
                    # 2. Submit no more tasks than can run, so that few become suspects.
                    try:
                        while queue and len(running) < at_once:
                            running[pool.submit(work, queue[0])] = queue[0]
                            queue.popleft()
                    except BrokenProcessPool:
                        is_broken = True
                    finished, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        if isinstance(future.exception(), BrokenProcessPool):
                            is_broken = True
                        else:
                            del running[future]
                            yield future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                _end(pool)
                raise
        if alone:
            yield from (Outcome(t.scan.name, "failed", CRASHED) for t in running.values())
        else:
            suspects.extend(running.values())


def _pool(size: int, processes: int) -> ProcessPoolExecutor:
    threads = max(1, (os.cpu_count() or 1) // processes)
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(size, context, initializer=_begin, initargs=(threads,))


def _begin(threads: int) -> None:
    """Initialise a process: limit its threads, and make it end with its parent."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"):
        os.environ.setdefault(name, str(threads))
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel

        def follow() -> None:
            wait_for([sentinel])
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()


def _end(pool: ProcessPoolExecutor) -> None:
    """Kill the processes of a pool, which is safe because they write results atomically."""
    for process in list((pool._processes or {}).values()):
        process.kill()
