"""Installation hints for missing optional packages."""

# Packages of the extra `train`, named in the hint because PUMIT may come from a clone or a wheel.
_OF_TRAINING = {"torch": "PyTorch", "monai": "MONAI", "einops": "einops"}


def what_is_missing(error: BaseException) -> str:
    """Return one line on a package that could not be imported, and how to install it; else ""."""
    if not isinstance(error, ImportError) or not error.name:
        return ""
    package = error.name.partition(".")[0]
    if package not in _OF_TRAINING:
        return ""
    return (
        f"This needs {_OF_TRAINING[package]}: pip install torch monai einops; in Slicer, "
        "With PyTorch in section Compute."
    )
