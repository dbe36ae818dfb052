"""The process in which GDCM decodes: `python -m pumit.io.dicom.gdcm_child`.

A line on standard input is a job, a line on standard output its outcome; see `gdcm_process`. It
ends with its standard input.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import IO, Any


def main() -> None:
    """Decode file after file until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    _forbid_traces()
    # Loading it takes as long as all the rest, and pixels can be written without.
    sys.modules["numpy"] = None  # type: ignore[assignment]
    import SimpleITK  # noqa: F401

    _say(answers, {})
    own = _address_space()
    for line in sys.stdin:
        job = json.loads(line)
        _limit(own, job)
        _say(answers, _outcome(job))


def _outcome(job: dict[str, Any]) -> dict[str, Any]:
    import SimpleITK

    try:
        reader = SimpleITK.ImageFileReader()
        reader.SetImageIO("GDCMImageIO")
        reader.SetFileName(job["file"])
        image = reader.Execute()
        SimpleITK.WriteImage(image, job["decoded"])
    except MemoryError:
        return {"error": "memory"}
    except Exception as error:
        return {"error": "memory" if "allocate" in str(error) else "damaged"}
    shape = list(reversed(image.GetSize()))
    samples = image.GetNumberOfComponentsPerPixel()
    if samples > 1:
        shape.append(samples)
    return {"shape": shape, "type": image.GetPixelIDTypeAsString().removeprefix("vector of ")}


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
