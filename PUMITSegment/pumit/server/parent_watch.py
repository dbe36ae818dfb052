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
        parent_pid: Process that must live on.
        stdin_fd: Pipe whose other end the parent holds and never writes to.
        on_gone: Called when the parent has gone, from a thread.
    """

    def read_until_closed() -> None:
        try:
            while os.read(stdin_fd, 64):
                pass
        except OSError:
            pass  # a pipe that cannot be read is closed
        on_gone()

    def poll() -> None:
        while _is_running(parent_pid):
            time.sleep(_POLL_S)
        on_gone()

    threading.Thread(target=read_until_closed, name="pumit-parent-pipe", daemon=True).start()
    if sys.platform != "win32":  # there, signal 0 would end the parent
        threading.Thread(target=poll, name="pumit-parent-pid", daemon=True).start()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
