"""Compiled graphs in the user's folder, so that the next process reads them in place of compiling.

Compiling takes two to three times as long as reading. A file is named after all that it depends on
and begins with the SHA-256 of that and of the rest: one that is damaged, or of other weights or
another processor, is never handed to OpenVINO. Where a folder cannot be used, graphs are compiled
as without it.
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
        """Return encoder and decoder as they were written for such a field, or None."""
        path = self._path(da0, shape)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        digest, body = content[:_DIGEST], content[_DIGEST:]
        is_whole = hmac.compare_digest(self._digest(da0, shape, body), digest)
        if self.is_writable:
            with suppress(OSError):  # the least recently used are removed first
                os.utime(path) if is_whole else path.unlink()
        if not is_whole:
            level = logging.WARNING if self.is_writable else logging.DEBUG
            logger.log(level, "A compiled graph on the disk is damaged; it is compiled again.")
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
                temporary.write_bytes(self._digest(da0, shape, body) + body)
            self._remove_oldest()
        except (OSError, ExportError):
            self.is_writable = False
            logger.warning("Compiled graphs cannot be kept on the disk; each start compiles anew.")

    def _path(self, da0: int, shape: Shape) -> Path:
        name = hashlib.sha256(self._key(da0, shape)).hexdigest()[:32]
        return self._folder / f"{name}{SUFFIX}"

    def _digest(self, da0: int, shape: Shape, body: bytes) -> bytes:
        digest = hashlib.sha256(self._key(da0, shape))
        digest.update(body)
        return digest.digest()

    def _key(self, da0: int, shape: Shape) -> bytes:
        return f"{self._identity}\n{da0} {shape}".encode()

    def _remove_oldest(self) -> None:
        used = {}
        for path in self._folder.glob(f"*{SUFFIX}"):
            with suppress(OSError):  # removed by another process meanwhile
                used[path] = path.stat().st_mtime
        for path in sorted(used, key=lambda file: used[file])[:-MOST_FILES]:
            with suppress(OSError):
                path.unlink()
