"""Tiny wheels, for tests that install or look into folders."""

import zipfile
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    tag: str = "py3-none-any",
    needs: tuple[str, ...] = (),
    code: str = "",
) -> Path:
    """Write a wheel of one module."""
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-{tag}.whl"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {need}" for need in needs]
    files = {
        f"{name.replace('-', '_')}.py": code,
        f"{stem}.dist-info/METADATA": "\n".join(metadata) + "\n",
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = [f"{file},," for file in [*files, f"{stem}.dist-info/RECORD"]]
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        archive.writestr(f"{stem}.dist-info/RECORD", "\n".join(record) + "\n")
    return path
