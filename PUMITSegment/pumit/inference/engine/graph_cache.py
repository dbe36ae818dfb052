"""Compiled graphs in the user's folder, so that the next process reads them in place of compiling.

Compiling takes three times as long as reading. A file is named after all that it depends on and
begins with the SHA-256 of the rest: one that is damaged, or of other weights or another processor,
is never handed to OpenVINO. Where a folder cannot be used, graphs are compiled as without it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pumit.errors import ExportError
from pumit.inference.engine.engine import Shape
from pumit.system.atomic import atomic_path

logger = logging.getLogger(__name__)

GRAPHS = "graphs"  # folder of the files, next to the user's models
MOST_FILES = 16  # of some 22 MB each
SUFFIX = ".graph"
_DIGEST, _LENGTH = 32, 8  # bytes before the two graphs


class GraphCache:
    """Compiled graphs of one model, on one machine.

    Args:
        folder: Folder of the files; it is made when the first one is written.
        identity: All that a compiled graph depends on but the field: weights, processor, versions.
        is_read_only: Whether nothing is written, as by a server for others.
    """

    def __init__(
        self, folder: Path, identity: Iterable[str], *, is_read_only: bool = False
    ) -> None:
        self._folder = folder
        self._identity = "\n".join(identity)
        self.is_writable = not is_read_only

    def read(self, da0: int, shape: Shape) -> tuple[bytes, bytes] | None:
        """Encoder and decoder as they were written for such a field, or None."""
        path = self._path(da0, shape)
        try:
            content = path.read_bytes()
            if self.is_writable:
                os.utime(path)  # the least recently used are removed first
        except OSError:
            return None
        digest, body = content[:_DIGEST], content[_DIGEST:]
        if not hmac.compare_digest(hashlib.sha256(body).digest(), digest):
            logger.warning("A compiled graph on the disk is damaged; it is compiled again.")
            if self.is_writable:
                with suppress(OSError):
                    path.unlink()
            return None
        middle = _LENGTH + int.from_bytes(body[:_LENGTH], "little")
        return body[_LENGTH:middle], body[middle:]

    def write(self, da0: int, shape: Shape, graphs: tuple[bytes, bytes]) -> None:
        """Keep encoder and decoder of such a field, and remove files beyond `MOST_FILES`."""
        if not self.is_writable:
            return
        encoder, decoder = graphs
        body = len(encoder).to_bytes(_LENGTH, "little") + encoder + decoder
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with atomic_path(self._path(da0, shape)) as temporary:
                temporary.write_bytes(hashlib.sha256(body).digest() + body)
            self._remove_oldest()
        except (OSError, ExportError):
            self.is_writable = False
            logger.warning("Compiled graphs cannot be kept on the disk; each start compiles anew.")

    def _path(self, da0: int, shape: Shape) -> Path:
        key = f"{self._identity}\n{da0} {shape}"
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}{SUFFIX}"

    def _remove_oldest(self) -> None:
        used = {}
        for path in self._folder.glob(f"*{SUFFIX}"):
            with suppress(OSError):  # removed by another process meanwhile
                used[path] = path.stat().st_mtime
        for path in sorted(used, key=lambda file: used[file])[:-MOST_FILES]:
            with suppress(OSError):
                path.unlink()
