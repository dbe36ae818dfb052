"""Scripts of the repository as modules."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parent.parent / "scripts"


def script(name: str) -> ModuleType:
    """Import a script by its path below `scripts`, such as `pages/recipes`."""
    path = FOLDER / name
    sys.path.insert(0, str(path.parent))
    try:
        return importlib.import_module(path.name)
    finally:
        sys.path.pop(0)
