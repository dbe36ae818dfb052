"""Keeps `None`, `True` and `False` alive under PySide6 6.12, which forgets to count them.

Before Python 3.12 they are counted like any object. PySide6 6.12.0 takes one reference away with
every call of a function that returns nothing, or of `disconnect` (6.10 does not), until Python 3.11
aborts: "deallocating None". A long run of tests makes enough calls for that. Slicer has neither
PySide6 nor Python 3.11.
"""

import ctypes
import sys


def keepConstants() -> None:
    """Give each more references than a process can lose; does nothing where it is immortal."""
    for constant in (None, True, False):
        if sys.version_info < (3, 12) and sys.getrefcount(constant) < 1 << 30:
            ctypes.c_ssize_t.from_address(id(constant)).value += 1 << 40
