"""The process in which GDCM decodes: `python -m pumit.io.dicom.gdcm_child`.

A line on standard input is a job, a line on standard output its outcome; see `gdcm_process`. It
ends with its standard input.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import IO, Any

_KEPT_BYTES = 16 << 20


def main() -> None:
    """Decode file after file until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    _forbid_traces()
    itk = _extension()
    # Once such a piece was freed, glibc keeps smaller ones for the next slice.
    bytes(_KEPT_BYTES)
    _say(answers, {})
    own = _address_space()
    for line in sys.stdin:
        job = json.loads(line)
        _limit(own, job)
        _say(answers, _outcome(itk, job))


def _extension() -> Any:
    """SimpleITK without its classes of Python, which take longer to load than a series to read."""
    package = find_spec("SimpleITK")
    spec = package and PathFinder.find_spec("_SimpleITK", package.submodule_search_locations)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _outcome(itk: Any, job: dict[str, Any]) -> dict[str, Any]:
    reader, writer = itk.new_ImageFileReader(), itk.new_ImageFileWriter()
    try:
        itk.ImageReaderBase_SetImageIO(reader, "GDCMImageIO")
        itk.ImageFileReader_SetFileName(reader, job["file"])
        image = itk.ImageFileReader_Execute(reader)
        itk.ImageFileWriter_SetFileName(writer, job["decoded"])
        itk.ImageFileWriter_Execute(writer, image)
    except MemoryError:
        return {"error": "memory"}
    except Exception as error:
        return {"error": "memory" if "allocate" in str(error) else "damaged"}
    shape = list(reversed(itk.Image_GetSize(image)))
    samples = itk.Image_GetNumberOfComponentsPerPixel(image)
    if samples > 1:
        shape.append(samples)
    kind = itk.Image_GetPixelIDTypeAsString(image).removeprefix("vector of ")
    # Without the classes nothing else does.
    itk.delete_Image(image)
    itk.delete_ImageFileReader(reader)
    itk.delete_ImageFileWriter(writer)
    return {"shape": shape, "type": kind}


def _say(answers: IO[str], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _forbid_traces() -> None:
    """Have a fault leave neither a core dump nor a window."""
    if sys.platform == "win32":
        import ctypes

        ctypes.windll.kernel32.SetErrorMode(0x8003)
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _address_space() -> int:
    """Bytes of addresses in use; 0 where the system does not tell, or does not limit them."""
    if sys.platform == "win32":
        return 0
    with suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as numbers:
        return int(numbers.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _limit(own: int, job: dict[str, Any]) -> None:
    """Have the system end or refuse what takes more than the job may; our parent watches, too."""
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
