"""Makes `slicer.i18n` importable where a test needs nothing else of Slicer."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_MODULES = Path(__file__).parent / "harness" / "slicer_python"


def prepare() -> None:
    """Let `slicer` find it; an empty `slicer` stands in where slicer-core is absent."""
    if "slicer" not in sys.modules and importlib.util.find_spec("slicer") is None:
        empty = ModuleType("slicer")
        empty.__path__ = []
        sys.modules["slicer"] = empty
    import slicer

    if str(_MODULES) not in slicer.__path__:
        slicer.__path__.append(str(_MODULES))
