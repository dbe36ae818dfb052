"""Why tests are skipped where packages that they need are absent."""

import importlib.util
from typing import Any

import pytest

NO_TORCH = 'PyTorch is absent: pip install -e ".[train]"'
NO_SLICER = 'slicer-core is absent: pip install -e ".[slicer-test]"'


def reasons() -> list[str]:
    """Why test files may fail to be imported here; empty if all packages are installed."""
    packages = {"torch": NO_TORCH, "vtk": NO_SLICER}
    return [text for name, text in packages.items() if importlib.util.find_spec(name) is None]


class PerhapsAbsent(pytest.Module):
    """A test file that is skipped if it needs a package that is absent."""

    def collect(self) -> Any:
        try:
            return super().collect()
        except self.CollectError as error:
            cause = error.__cause__
            name = cause.name if isinstance(cause, ModuleNotFoundError) else None
            # A module that is missing in a package that is there is a fault of the file.
            if name is None or importlib.util.find_spec(name.partition(".")[0]) is not None:
                raise
            pytest.skip("; ".join(reasons()), allow_module_level=True)
