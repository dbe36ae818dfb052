"""Program that decodes with GDCM: `python -S gdcm_child.py FOLDER_OF_SIMPLEITK`.

Each line on standard input is a job, each line on standard output a result; see `gdcm_process`. The
program ends at the end of its input. It imports as little as possible: reading a series takes less
time than loading SimpleITK's Python classes or this package.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

_KEPT_BYTES = 16 << 20
# Functions needed from SimpleITK's extension module, whose names are not a public API.
_NAMES = (
    *("new_ImageFileReader", "delete_ImageFileReader", "delete_Image", "_GetMemoryViewFromImage"),
    *("ImageReaderBase_SetImageIO", "ImageFileReader_SetFileName", "ImageFileReader_Execute"),
    *("Image_GetSize", "Image_GetNumberOfComponentsPerPixel", "Image_GetPixelIDTypeAsString"),
)


def main() -> None:
    """Decode files until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep what libraries print out of the answers
    _forbid_traces()
    itk = _extension(sys.argv[1])
    decode = _decode if itk else _decode_by_classes
    itk = itk or _simpleitk()
    # After freeing a block of this size, glibc keeps smaller freed blocks for the next slice.
    bytes(_KEPT_BYTES)
    # The parent may have started a launcher, which has another process ID.
    _say(answers, {"pid": os.getpid()})
    own = _address_space()
    for line in sys.stdin:
        job = json.loads(line)
        _limit(own, job)
        try:
            outcome = decode(itk, job["file"], job["decoded"])
        except MemoryError:
            outcome = {"error": "memory"}
        except Exception as error:
            outcome = {"error": "memory" if "allocate" in str(error) else "damaged"}
        _say(answers, outcome)


def _extension(folder: str) -> Any:
    """Load SimpleITK's extension module without its Python classes; None if it lacks `_NAMES`."""
    spec = PathFinder.find_spec("_SimpleITK", [folder])
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module if all(hasattr(module, name) for name in _NAMES) else None


def _simpleitk() -> Any:
    """Import SimpleITK through its public API."""
    import site

    site.main()
    import SimpleITK

    return SimpleITK


def _decode(itk: Any, file: str, decoded: str) -> dict[str, Any]:
    """Decode a file and write its stored values in native byte order."""
    reader, image = itk.new_ImageFileReader(), None
    # Without the Python classes, objects must be deleted explicitly.
    try:
        itk.ImageReaderBase_SetImageIO(reader, "GDCMImageIO")
        itk.ImageFileReader_SetFileName(reader, file)
        image = itk.ImageFileReader_Execute(reader)
        size, kind = itk.Image_GetSize(image), itk.Image_GetPixelIDTypeAsString(image)
        samples = itk.Image_GetNumberOfComponentsPerPixel(image)
        return _written(itk._GetMemoryViewFromImage(image), decoded, size, samples, kind)
    finally:
        if image is not None:
            itk.delete_Image(image)
        itk.delete_ImageFileReader(reader)


def _decode_by_classes(itk: Any, file: str, decoded: str) -> dict[str, Any]:
    """Do the same with SimpleITK's Python classes."""
    reader = itk.ImageFileReader()
    reader.SetImageIO("GDCMImageIO")
    reader.SetFileName(file)
    image = reader.Execute()
    array = itk.GetArrayViewFromImage(image)
    samples, kind = image.GetNumberOfComponentsPerPixel(), image.GetPixelIDTypeAsString()
    return _written(memoryview(array), decoded, image.GetSize(), samples, kind)


def _written(
    values: memoryview, decoded: str, size: tuple[int, ...], samples: int, kind: str
) -> dict[str, Any]:
    with open(decoded, "wb") as file:
        file.write(values)
    shape = [*reversed(size), *([samples] if samples > 1 else [])]
    return {"shape": shape, "type": kind.removeprefix("vector of ")}


def _say(answers: IO[str], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _forbid_traces() -> None:
    """Disable core dumps and crash dialogs."""
    if sys.platform == "win32":
        import ctypes

        ctypes.windll.kernel32.SetErrorMode(0x8003)
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _address_space() -> int:
    """Return the bytes of address space in use; 0 if unknown, as outside Linux."""
    if sys.platform == "win32":
        return 0
    with suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as numbers:
        return int(numbers.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _limit(own: int, job: dict[str, Any]) -> None:
    """Set the operating system's CPU time and address space limits for a job."""
    if sys.platform == "win32":
        return
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime + job["seconds"]) + 1
    limits = [(resource.RLIMIT_CPU, seconds)]
    if own:
        limits.append((resource.RLIMIT_AS, own + job["bytes"]))
    for limit, value in limits:
        hard = resource.getrlimit(limit)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(limit, (most, hard))


if __name__ == "__main__":
    main()
