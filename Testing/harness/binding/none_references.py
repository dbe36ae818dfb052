"""Keeps `None` alive under PySide6 6.12, which forgets to count it.

Before Python 3.12 `None` is counted like any object. PySide6 6.12.0 takes one reference away with
every call of a function that returns nothing (6.10 does not), until Python 3.11 aborts:
"deallocating None". A long run of tests makes enough calls for that. Slicer has neither PySide6
nor Python 3.11.
"""

from __future__ import annotations

import ctypes
import sys


def keepNone() -> None:
    """Give `None` more references than a process can lose; does nothing where it is immortal."""
    if sys.version_info < (3, 12) and sys.getrefcount(None) < 1 << 30:
        ctypes.c_ssize_t.from_address(id(None)).value += 1 << 40
