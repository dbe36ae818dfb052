"""PUMIT: promptable segmentation of medical scans, without Slicer or Qt.

Importing this package imports neither torch nor other heavy libraries: the names below are imported
on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pumit.inference.interactive.segmenter import load_segmenter
    from pumit.inference.interactive.session import InteractiveSession
    from pumit.simple import predict, save, segment
    from pumit.structures.find import find_structure
    from pumit.system.watch import Watch
    from pumit.volume import Volume

__version__ = "0.3.0"
__all__ = [
    "InteractiveSession",
    "Volume",
    "Watch",
    "__version__",
    "find_structure",
    "load_segmenter",
    "predict",
    "save",
    "segment",
]

_HOMES = {
    "InteractiveSession": "pumit.inference.interactive.session",
    "Volume": "pumit.volume",
    "Watch": "pumit.system.watch",
    "find_structure": "pumit.structures.find",
    "load_segmenter": "pumit.inference.interactive.segmenter",
    "predict": "pumit.simple",
    "save": "pumit.simple",
    "segment": "pumit.simple",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pumit' has no attribute {name!r}")
    from importlib import import_module

    from pumit.system.machine import wait_asleep

    wait_asleep()  # only effective if torch has not been imported yet
    return getattr(import_module(_HOMES[name]), name)
