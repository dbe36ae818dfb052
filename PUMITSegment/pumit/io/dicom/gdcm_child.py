"""Program that decodes with GDCM, a process of `gdcm_process`.

Each line on standard input is a job, each line on standard output a result. The program ends at the
end of its input. It does not import this package, which takes longer than reading a series.
"""

import json
import os
import sys
from contextlib import suppress
from typing import IO, Any

_KEPT_BYTES = 16 << 20


def main() -> None:
    """Decode files until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep what libraries print out of the answers
    _forbid_traces()
    import SimpleITK

    reader = SimpleITK.ImageFileReader()
    reader.SetImageIO("GDCMImageIO")
    # After freeing a block of this size, glibc keeps smaller freed blocks for the next slice.
    bytes(_KEPT_BYTES)
    # The parent may have started a launcher, which has another process ID.
    _say(answers, {"pid": os.getpid()})
    own = _address_space()
    for line in sys.stdin:
        job = json.loads(line)
        _limit(own, job)
        try:
            outcome = _decode(reader, job["file"], job["decoded"])
        except MemoryError:
            outcome = {"error": "memory"}
        except Exception as error:
            outcome = {"error": "memory" if "allocate" in str(error) else "damaged"}
        _say(answers, outcome)


def _decode(reader: Any, file: str, decoded: str) -> dict[str, Any]:
    """Decode a file, write its stored values in native byte order, and free them."""
    import SimpleITK

    reader.SetFileName(file)
    image = reader.Execute()
    values = SimpleITK.GetArrayViewFromImage(image)
    values.tofile(decoded)
    return {"shape": values.shape, "type": values.dtype.name}


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
