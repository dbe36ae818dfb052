"""Disk cache of compiled graphs in the user's folder.

Reading a graph is two to three times faster than compiling it. The file name is a hash of
everything that the graph depends on (weights, processor, versions, field). The file begins with a
SHA-256 of that key and the content: damaged or mismatched files never reach OpenVINO. A header with
model identity and field shape follows, so that recently used graphs can be loaded before a scan is
known. If the folder cannot be used, graphs are compiled without the cache.
"""

import hashlib
import hmac
import logging
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pumit.errors import ExportError
from pumit.inference.engine.engine import Shape
from pumit.system.files import atomic_path

logger = logging.getLogger(__name__)

Blob = bytes | memoryview
MOST_FILES = 16  # 12 to 24 MB each
SUFFIX = ".graph"
_DIGEST = 32  # bytes of the SHA-256 at the start
_HEAD = struct.Struct("<16s4IQ")  # identity, degree, shape, size of the encoder in bytes


class GraphCache:
    """Disk cache of the compiled graphs of one model on one machine.

    Args:
        identity: Everything but the field that a compiled graph depends on: weights, processor,
            versions.
        is_read_only: Whether to write nothing, as on a server.
    """

    def __init__(
        self, folder: Path, identity: Iterable[str], *, is_read_only: bool = False
    ) -> None:
        self._folder = folder
        self._identity = "\n".join(identity)
        self._short_identity = hashlib.sha256(self._identity.encode()).digest()[:16]
        self.is_writable = not is_read_only

    def recent(self, count: int) -> list[tuple[int, Shape]]:
        """Return degree and shape of the most recently used graphs, the newest first."""
        found: list[tuple[int, Shape]] = []
        for path in _by_last_use(self._folder):
            with suppress(OSError, struct.error), path.open("rb") as stream:
                head = stream.read(_DIGEST + _HEAD.size)
                identity, da0, d, h, w, _ = _HEAD.unpack(head[_DIGEST:])
                if identity == self._short_identity and len(found) < count:
                    found.append((da0, (d, h, w)))
        return found

    def read(self, da0: int, shape: Shape) -> tuple[Blob, Blob] | None:
        """Return the cached encoder and decoder for such a field, or None."""
        path = self._path(da0, shape)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        digest, body = content[:_DIGEST], memoryview(content)[_DIGEST:]
        if not hmac.compare_digest(self._digest(da0, shape, body), digest):
            level = logging.DEBUG
            if self.is_writable:
                level = logging.WARNING
                with suppress(OSError):
                    path.unlink()
            logger.log(level, "A cached graph on disk is damaged; it is compiled again.")
            return None
        middle = _HEAD.size + _HEAD.unpack_from(body)[-1]
        return body[_HEAD.size : middle], body[middle:]

    def note_use(self, da0: int, shape: Shape) -> None:
        """Note that a field was computed; graphs read in advance may turn out to be needless."""
        if self.is_writable:
            with suppress(OSError):  # the modification time orders eviction and `recent`
                os.utime(self._path(da0, shape))

    def write(self, da0: int, shape: Shape, graphs: tuple[Blob, Blob]) -> None:
        """Store encoder and decoder for such a field, and evict files beyond `MOST_FILES`."""
        if not self.is_writable:
            return
        encoder, decoder = graphs
        head = _HEAD.pack(self._short_identity, da0, *shape, len(encoder))
        body = b"".join((head, encoder, decoder))
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with atomic_path(self._path(da0, shape)) as temporary:
                temporary.write_bytes(self._digest(da0, shape, body) + body)
            for path in _by_last_use(self._folder)[MOST_FILES:]:
                with suppress(OSError):
                    path.unlink()
        except (OSError, ExportError):
            self.is_writable = False
            logger.warning(
                "Compiled graphs cannot be cached on disk; they are compiled again at each start."
            )

    def _path(self, da0: int, shape: Shape) -> Path:
        name = hashlib.sha256(self._key(da0, shape)).hexdigest()[:32]
        return self._folder / f"{name}{SUFFIX}"

    def _digest(self, da0: int, shape: Shape, body: Blob) -> bytes:
        digest = hashlib.sha256(self._key(da0, shape))
        digest.update(body)
        return digest.digest()

    def _key(self, da0: int, shape: Shape) -> bytes:
        return f"{self._identity}\n{da0} {shape} with a head".encode()


def _by_last_use(folder: Path) -> list[Path]:
    """Return the cache files, the most recently used first."""
    used = {}
    for path in folder.glob(f"*{SUFFIX}"):
        with suppress(OSError):  # removed by another process
            used[path] = path.stat().st_mtime
    return sorted(used, key=lambda file: -used[file])
