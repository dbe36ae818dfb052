"""Watchdog that ends this process and its children when the parent process has gone.

A worker has nothing to save, so a killed viewer leaves no process behind. Two signs are watched,
because a launcher may run between the two programs: the pipe on standard input closes, or the
parent's process has ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import psutil

_POLL_S = 0.5


def end_process_tree() -> None:
    """End this process and, if it leads a process group, that group."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def watch_parent(
    parent_pid: int, *, stdin_fd: int = 0, on_gone: Callable[[], None] = end_process_tree
) -> None:
    """Watch the parent from two threads; returns at once.

    Args:
        stdin_fd: Pipe whose other end the parent keeps open.
        on_gone: Callback when the parent has gone; called on a watching thread, maybe on both.
    """

    def read_until_closed() -> None:
        try:
            while os.read(stdin_fd, 64):
                pass
        except OSError:
            pass  # a pipe that cannot be read is closed
        on_gone()

    def poll() -> None:
        try:
            # psutil also compares the start time: the id may be reused by another process.
            parent = psutil.Process(parent_pid)
            while parent.is_running():
                time.sleep(_POLL_S)
        except psutil.NoSuchProcess:
            pass  # it had already ended
        on_gone()

    threading.Thread(target=read_until_closed, name="pumit-parent-pipe", daemon=True).start()
    threading.Thread(target=poll, name="pumit-parent-pid", daemon=True).start()
