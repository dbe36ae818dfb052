"""DICOM series: found, sorted, chosen and read."""

from __future__ import annotations

import sys
from threading import get_ident

# Of these pydicom makes use to fetch its test files alone, and they are a third of its import.
_OF_TEST_FILES = ("requests", "tqdm")


class _WithoutDownloads:
    """A finder that hides what fetches files from the thread that imports pydicom."""

    def __init__(self) -> None:
        self._thread = get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Say that a module is absent, or leave it to the finders behind.

        Raises:
            ModuleNotFoundError: For a module that pydicom does without.
        """
        if name in _OF_TEST_FILES and get_ident() == self._thread:
            raise ModuleNotFoundError(name=name)


def _import_pydicom() -> None:
    if "pydicom" not in sys.modules:
        finder = _WithoutDownloads()
        sys.meta_path.insert(0, finder)
        try:
            import pydicom  # noqa: F401
        finally:
            sys.meta_path.remove(finder)


_import_pydicom()
