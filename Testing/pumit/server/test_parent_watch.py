"""A worker ends with the process that started it, also where the pipe between them stays open."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from pumit.server.serve import watch_parent


@pytest.fixture
def pipe() -> Iterator[int]:
    """One that no one closes, as where another process has taken it over."""
    reading, writing = os.pipe()
    yield reading
    os.close(writing)


def test_a_parent_that_ends_is_noticed_without_the_pipe(pipe: int) -> None:
    gone = threading.Event()
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as parent:
        watch_parent(parent.pid, stdin_fd=pipe, on_gone=gone.set)
        assert not gone.wait(1.2)
        parent.kill()
        parent.wait()
        assert gone.wait(60)


def test_a_parent_that_has_ended_already_is_gone(pipe: int) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as parent:
        parent.wait()
    gone = threading.Event()
    watch_parent(parent.pid, stdin_fd=pipe, on_gone=gone.set)
    assert gone.wait(60)
