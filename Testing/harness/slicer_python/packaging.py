"""`slicer.packaging`: remembers what would be installed, and installs nothing."""

calls: list[tuple[str, object, dict[str, object]]] = []


def pip_install(requirements: object, **options: object) -> None:
    """Remember a request to install."""
    calls.append(("install", requirements, options))
