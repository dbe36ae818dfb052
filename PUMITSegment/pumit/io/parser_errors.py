"""Reading of files that may be damaged or hostile: limits, and parser errors in one line."""

import errno
import logging
import lzma
import os
import struct
import sys
import threading
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from pumit.errors import PumitError, VolumeError

# A larger announced size is compared with the size of the file first.
SUSPICIOUS_BYTES = 1 << 28
# Deflate cannot compress better than this, and no scan does.
MAX_COMPRESSION = 1100
# Exceptions that pydicom, Pillow, SimpleITK, gzip and zipfile raise on damaged files.
PARSER_ERRORS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)

_STDERR_LOCK = threading.Lock()


def is_absurd(announced: int, held: int) -> bool:
    """Return whether a header announces far more than its file can hold.

    To be checked before memory is allocated.

    Args:
        announced: Uncompressed size of the voxels, bytes or values.
        held: Size of their stored data, bytes.
    """
    return announced >= SUSPICIOUS_BYTES and announced > held * MAX_COMPRESSION


def parser_errors() -> tuple[type[Exception], ...]:
    """Return `PARSER_ERRORS`, plus pydicom's own if it is imported, which takes long."""
    if "pydicom" not in sys.modules:
        return PARSER_ERRORS
    from pydicom.errors import BytesLengthException, InvalidDicomError

    return (*PARSER_ERRORS, BytesLengthException, InvalidDicomError)


@contextmanager
def parsing(what: str) -> Iterator[None]:
    """Convert parser errors raised inside the block to a one-line `VolumeError`.

    Library messages quote paths and header values, which may name a patient, so they are kept only
    as the error's cause. The libraries' Python warnings and pydicom's log are muted for the same
    reason.

    Args:
        what: Noun for the file: "NIfTI file".

    Raises:
        VolumeError: If the file is damaged, missing, unreadable or too large.
    """
    try:
        with warnings.catch_warnings(), _muted_log("pydicom"):
            warnings.simplefilter("ignore")
            yield
    except PumitError:
        raise
    except MemoryError as error:
        raise VolumeError(f"The {what} {_reason(error)}") from error
    except parser_errors() as error:
        raise VolumeError(f"The {what} {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return (
            "cannot be opened: you have no permission to read it; ask for permission, or for a "
            "copy."
        )
    if isinstance(error, FileNotFoundError):
        return "does not exist; check the path."
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return (
            "cannot be unpacked: the temporary folder's disk is full; make room, or set TMPDIR to "
            "a larger disk."
        )
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return (
            "does not fit in memory, or its header is damaged; crop the scan or use a machine with "
            "more memory."
        )
    if "Zero-valued spacing" in str(error):
        return "has zero voxel spacing; correct its header, or export it again."
    return "is damaged, truncated or of an unknown kind; copy or export it again."


@contextmanager
def _muted_log(name: str) -> Iterator[None]:
    def refuse(record: logging.LogRecord) -> bool:
        return False

    logger = logging.getLogger(name)
    logger.addFilter(refuse)
    try:
        yield
    finally:
        logger.removeFilter(refuse)


@contextmanager
def muted_stderr() -> Iterator[None]:
    """Mute what C++ code writes to the standard error file descriptor.

    ITK's readers report a damaged file in several lines, with its path. Other threads' output to
    standard error is lost too, so keep the block short.
    """
    with _STDERR_LOCK:
        try:
            saved = os.dup(2)
        except OSError:
            # A GUI without a console has no standard error.
            yield
            return
        try:
            if sys.stderr is not None:
                sys.stderr.flush()
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            os.close(null)
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
