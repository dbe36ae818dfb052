"""`slicer.packaging`: remembers what would be installed, and installs nothing."""

from __future__ import annotations

calls: list[tuple[str, object, dict[str, object]]] = []


def pip_install(requirements: object, **options: object) -> None:
    """Remember a request to install."""
    calls.append(("install", requirements, options))
