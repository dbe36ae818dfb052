"""Coverage-guided fuzzing of all readers of untrusted files and bytes, with atheris.

`python Testing/lab/fuzz/fuzz_files.py --seconds 600` divides the time among all targets and prints
each finding with its bytes; the exit status is 1 if there is any. Each input must give a result or
a `PumitError` of one line, within `SLOW_S` seconds. All times are CPU seconds, so that other load
changes nothing. Needs `pip install -e ".[fuzz]"`.
"""

import argparse
import base64
import faulthandler
import hashlib
import importlib
import json
import os
import pkgutil
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
SLOW_S, LONGEST_S, MEMORY_MIB = 5.0, 30, 3000
RUNS = "stat::number_of_executed_units:"
LONGEST_INPUT = 16_384
TARGETS = (
    *("nifti", "nrrd", "picture", "dicom", "codestream", "zip"),
    *("seg", "rtstruct", "labels", "wire"),
)
TOGETHER = "together"
# Formats recognised by the file name; all others are recognised by content.
SUFFIXES = {"labels": ".seg.nrrd"}


@dataclass
class Outcome:
    """Result of fuzzing one target."""

    seconds: float = 0.0
    runs: int = 0
    edges: int = 0
    inputs: int = 0
    ends: list[str] = field(default_factory=list)


def reader(target: str, seeds: Path, scratch: Path) -> Callable[[bytes], None]:
    """Return the function under test, which takes an input's bytes."""
    from fuzz_seeds import scan_for_labels
    from pumit.io.dicom.gdcm_process import GdcmProcess, cannot_decode
    from pumit.io.labels.label_source import read_labels
    from pumit.volume import Volume
    from pumit.wire.arrays import unpack_array

    def declined(self: GdcmProcess, ds) -> None:
        raise cannot_decode(ds.file_meta.TransferSyntaxUID)

    # A process per input would take all the time; a crash in it could not end this process anyway.
    GdcmProcess.submit = declined  # type: ignore[method-assign]
    GdcmProcess.start = lambda self: None  # type: ignore[method-assign]
    file = scratch / f"input{SUFFIXES.get(target, '.bin')}"
    if target == "wire":

        def unpack(data: bytes) -> None:
            unpack_array(data, max_bytes=1 << 24, axes=(3, 4))

        return unpack
    if target == "codestream":
        return decode_frame
    if target in ("seg", "rtstruct", "labels"):
        volume = scan_for_labels(seeds)

        def read_label(data: bytes) -> None:
            file.write_bytes(data)
            read_labels(file, volume)

        return read_label

    def read(data: bytes) -> None:
        file.write_bytes(data)
        Volume.read(file)

    return read


def any_reader(folder: Path) -> Callable[[bytes], None]:
    """Combine all functions under test; the first byte of the input selects one."""
    readers = [reader(target, folder / "seeds", folder) for target in TARGETS]

    def read(data: bytes) -> None:
        if data:
            readers[data[0] % len(readers)](data[1:])

    return read


def decode_frame(data: bytes) -> None:
    """Decode a compressed frame in a DICOM header with the size that the frame declares."""
    from compressed_frames import compressed
    from fuzz_seeds import PIXELS
    from generated_scans import dicom_slice
    from pumit.io.dicom.codestream import read_codestream
    from pumit.io.dicom.decoding import stored_frames
    from pumit.io.dicom.gdcm_process import GdcmProcess
    from pumit.io.parser_errors import parsing
    from pydicom.uid import JPEG2000Lossless, JPEGBaseline8Bit, JPEGLSLossless, RLELossless

    ds, syntax = dicom_slice(PIXELS, None), RLELossless
    with suppress(ValueError, LookupError, struct.error):
        found = read_codestream(data)
        if found.rows * found.columns > 1 << 22:
            return
        is_jpeg = data[:2] == b"\xff\xd8"
        syntax = JPEG2000Lossless
        if is_jpeg:
            syntax = JPEGLSLossless if b"\xff\xf7" in data else JPEGBaseline8Bit
        ds.Rows, ds.Columns, ds.SamplesPerPixel = found.rows, found.columns, found.samples
        ds.BitsAllocated = 8 if found.bits <= 8 else 16
        ds.BitsStored, ds.HighBit = ds.BitsAllocated, ds.BitsAllocated - 1
        if found.samples == 3:
            ds.PhotometricInterpretation, ds.PlanarConfiguration = "RGB", 0
    with parsing("DICOM pixel data"), GdcmProcess() as gdcm:
        list(stored_frames([compressed(ds, [data], syntax)], gdcm))


def fuzz(target: str, folder: Path, seconds: float, runs: int, seed: int) -> None:
    """Fuzz one target in this process, and write findings into the folder."""
    import atheris
    import blosc2  # noqa: F401  # loaded during an input, libFuzzer would take it for an exit

    with atheris.instrument_imports(include=["pumit", "pydicom"]):
        import pumit.io
        import pumit.wire

        for package in (pumit.io, pumit.wire):
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                if not module.name.endswith("_child"):
                    importlib.import_module(module.name)
        run = any_reader(folder) if target == TOGETHER else reader(target, folder / "seeds", folder)
    from pumit.errors import PumitError

    known: set[str] = set()
    count, now = 0, current(folder, target)
    # Show the traceback when the system ends a process that is over its CPU limit.
    faulthandler.register(signal.SIGXCPU, chain=True)

    def one(data: bytes) -> None:
        nonlocal count
        begun = time.process_time()
        if begun > seconds:
            print(f"{RUNS} {count}", file=sys.stderr, flush=True)
            os._exit(0)
        count += 1
        now.write_bytes(data)  # kept if the process crashes or exceeds a limit
        limit = int(begun) + LONGEST_S + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        try:
            run(data)
        except PumitError as error:
            if "\n" in str(error):
                note(folder, target, data, "a message of several lines", known)
        except (Exception, RecursionError) as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = [f for f in frames if "/pumit/" in f.filename] or frames
            place = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
            note(folder, target, data, f"{type(error).__name__} at {place}", known)
        if time.process_time() - begun > SLOW_S:
            note(folder, target, data, "slow", known)

    corpus = folder / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    # libFuzzer's own timeout is wall-clock time, which is meaningless on a busy machine.
    arguments = [f"-seed={seed}", f"-runs={runs}", "-timeout=0", "-print_final_stats=1"]
    arguments += [f"-rss_limit_mb={MEMORY_MIB}", f"-max_len={LONGEST_INPUT}", "-len_control=0"]
    arguments += [f"-artifact_prefix={folder}/unit-"]
    atheris.Setup([sys.argv[0], *arguments, str(corpus), str(folder / "seeds" / target)], one)
    atheris.Fuzz()


def current(folder: Path, target: str) -> Path:
    """Return the file of the current input."""
    return folder / f"now-{target}.bin"


def note(folder: Path, target: str, data: bytes, what: str, known: set[str]) -> None:
    """Store an input that shows a new failure."""
    if what in known:
        return
    known.add(what)
    if target == TOGETHER and data:
        target, data = TARGETS[data[0] % len(TARGETS)], data[1:]
    file = folder / "found" / f"{target}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    file.write_bytes(data)
    file.with_suffix(".txt").write_text(what + "\n")


def fuzz_apart(target: str, folder: Path, seconds: float, runs: int, seed: int) -> Outcome:
    """Fuzz one target in child processes; start another one if an input ends it."""
    (folder / "seeds" / target).mkdir(exist_ok=True)
    for number, name in enumerate(TARGETS if target == TOGETHER else ()):
        for file in (folder / "seeds" / name).iterdir():
            together = folder / "seeds" / TOGETHER / f"{name}-{file.name}"
            together.write_bytes(bytes([number]) + file.read_bytes())
    outcome, known, attempts = Outcome(), set[str](), 0
    while outcome.seconds < seconds and attempts < 6:
        command = [sys.executable, __file__, "--one", target, "--folder", str(folder)]
        command += ["--runs", str(runs), "--seed", str(seed + attempts)]
        begun = _children_seconds()
        done = subprocess.run(
            [*command, "--seconds", str(seconds - outcome.seconds)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
        outcome.seconds += _children_seconds() - begun
        text = done.stderr
        counts = re.findall(r"^#(\d+)\s.*?cov: (\d+)", text, re.M)
        units = re.findall(rf"{RUNS}\s*(\d+)", text)
        outcome.runs += int(units[-1]) if units else int(counts[-1][0]) if counts else 0
        outcome.edges = max([outcome.edges, *(int(edges) for _, edges in counts)])
        if done.returncode == 0:
            break
        end = f"ended with status {done.returncode}\n" + "\n".join(text.splitlines()[-25:])
        attempts += 1
        now = current(folder, target)
        if now.is_file() and reads_well(target, folder, now):
            continue  # caused by the busy machine, not by the input
        outcome.ends.append(end)
        if now.is_file():
            note(folder, target, now.read_bytes(), end, known)
    outcome.inputs = sum(1 for _ in (folder / "corpus" / target).glob("*"))
    return outcome


def reads_well(target: str, folder: Path, unit: Path) -> bool:
    """Return whether an input that ended a process is harmless in a new one."""
    kept = folder / "replayed.bin"
    kept.write_bytes(unit.read_bytes())
    command = [sys.executable, __file__, "--one", target, "--folder", str(folder)]
    done = subprocess.run([*command, "--replay", str(kept)], capture_output=True, check=False)
    return done.returncode == 0


def replay(target: str, folder: Path, unit: Path) -> None:
    """Read one input within the limits of a unit."""
    from pumit.errors import PumitError

    run = any_reader(folder) if target == TOGETHER else reader(target, folder / "seeds", folder)
    limit = int(time.process_time()) + int(SLOW_S) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MIB << 20, resource.RLIM_INFINITY))
    with suppress(PumitError):
        run(unit.read_bytes())


def _children_seconds() -> float:
    """Return the CPU seconds of finished child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Fuzz, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="time for all targets together")
    parser.add_argument("--runs", type=int, default=-1, help="most inputs for each target")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first process")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--folder", type=Path, help="folder for seeds, corpus and findings")
    parser.add_argument(
        "--together", action="store_true", help="all targets in one process, for a short time"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--replay", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    runs, seed = arguments.runs, arguments.seed
    if arguments.replay:
        replay(arguments.one, arguments.folder, arguments.replay)
        return 0
    if arguments.one:  # before anything is imported that should be instrumented
        fuzz(arguments.one, arguments.folder, arguments.seconds, runs, seed)
        return 0
    from fuzz_seeds import write_seeds

    targets = [TOGETHER] if arguments.together else arguments.targets
    with tempfile.TemporaryDirectory(prefix="pumit-fuzz-") as temporary:
        folder = arguments.folder or Path(temporary)
        (folder / "found").mkdir(parents=True, exist_ok=True)
        write_seeds(folder / "seeds")
        rows = {
            target: fuzz_apart(target, folder, arguments.seconds / len(targets), runs, seed)
            for target in targets
        }
        found = sorted((folder / "found").glob("*.bin"))
        print("target       seconds      runs   edges  inputs")
        for target, row in rows.items():
            print(f"{target:12}{row.seconds:8.0f}{row.runs:10}{row.edges:8}{row.inputs:8}")
        for file in found:
            print(f"found {file.stem}: {file.with_suffix('.txt').read_text().strip()}")
            print(f"its bytes, base64: {base64.b64encode(file.read_bytes()).decode()}")
        for target, row in rows.items():
            print("".join(f"{target} {end}\n" for end in row.ends), end="")
        total = {"seconds": round(sum(r.seconds for r in rows.values()))}
        total |= {"runs": sum(r.runs for r in rows.values()), "findings": len(found)}
        print(json.dumps(total))
    return 1 if found or any(row.ends for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
