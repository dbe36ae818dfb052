"""Ends this process, and what it started, as soon as the program that started it has gone.

A worker has nothing to save, so it does not linger: a killed viewer leaves no process behind.
Two signs are watched, because a launcher may stand between the two programs: the pipe on standard
input closes, or the parent's process id is free.
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
    """End this process and, where it leads a process group, everything in that group."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def watch_parent(
    parent_pid: int, *, stdin_fd: int = 0, on_gone: Callable[[], None] = end_process_tree
) -> None:
    """Watch the parent from threads, and return at once.

    Args:
        stdin_fd: Pipe whose other end the parent holds and never writes to.
        on_gone: Callback when the parent has gone, on a thread.
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
            # Known by its start as well: its number may be given to another process.
            parent = psutil.Process(parent_pid)
            while parent.is_running():
                time.sleep(_POLL_S)
        except psutil.NoSuchProcess:
            pass  # it had ended before
        on_gone()

    threading.Thread(target=read_until_closed, name="pumit-parent-pipe", daemon=True).start()
    threading.Thread(target=poll, name="pumit-parent-pid", daemon=True).start()
