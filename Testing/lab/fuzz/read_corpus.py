"""Read every file of a folder in child processes, and count the outcomes.

`python Testing/lab/fuzz/read_corpus.py FOLDER` is meant for collections of malformed DICOM, such as
https://github.com/pwnlabmx/dicom-fuzzing-corpus (951 files, MIT), which is not copied here. A file
must be read or refused in one sentence, within 10 s and 1 GB; the exit status is 1 if one is not.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[3] / "PUMITSegment"
LONGEST_S, MOST_MIB, OF_ONE_PROCESS = 60, 1024, 25
# Run in a process that is replaced after several files, since loading takes longer than reading.
READ = """
import json, sys, time
from pathlib import Path
from pumit.errors import PumitError
from pumit.io.labels.label_objects import read_label_object
from pumit.system.process import peak_process_bytes
from pumit.volume import Volume
for line in sys.stdin:
    begun, message = time.monotonic(), ""
    try:
        file = Path(json.loads(line))
        read_label_object(file)
        Volume.read(file)
        outcome = "read"
    except PumitError as error:
        outcome = "refused" if str(error) and "\\n" not in str(error) else "several lines"
        message = str(error)
    except Exception as error:
        outcome = "fault " + type(error).__name__
    seconds = time.monotonic() - begun
    print(json.dumps([outcome, message, seconds, peak_process_bytes() >> 20]), flush=True)
"""


def outcomes(files: list[Path]) -> list[tuple[Path, str, str, float, int]]:
    """Return file, outcome, message, seconds and peak memory in MiB, in the order of the files."""
    found: list[tuple[Path, str, str, float, int]] = []
    while len(found) < len(files):
        part = files[len(found) : len(found) + OF_ONE_PROCESS]
        paths = os.pathsep.join([str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])])
        end = "ended the process"
        try:
            done = subprocess.run(
                [sys.executable, "-c", READ],
                input="".join(json.dumps(str(file)) + "\n" for file in part),
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "PYTHONPATH": paths},
                timeout=LONGEST_S * len(part),
            )
            output = done.stdout
            end += f" ({done.returncode})"
        except subprocess.TimeoutExpired as error:
            output = error.stdout.decode() if isinstance(error.stdout, bytes) else ""
            end = "took too long"
        lines = [line for line in output.splitlines() if line.startswith("[")]
        found += [(file, *json.loads(line)) for file, line in zip(part, lines, strict=False)]
        if len(lines) < len(part):
            found.append((part[len(lines)], end, "", 0.0, 0))
    return found


def main() -> int:
    """Read the files and print counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the files, with subfolders")
    parser.add_argument("--messages", action="store_true", help="count messages, too")
    arguments = parser.parse_args()
    files = sorted(
        file
        for file in arguments.folder.rglob("*")
        if file.is_file() and ".git" not in file.parts and file.suffix not in (".md", ".txt")
    )
    rows = outcomes(files)
    for outcome, count in Counter(row[1] for row in rows).most_common():
        print(f"{count:6} {outcome}")
    if arguments.messages:
        for message, count in Counter(row[2] for row in rows if row[2]).most_common():
            print(f"{count:6} {message}")
    bad = [r for r in rows if r[1] not in ("read", "refused") or r[3] > 10 or r[4] > MOST_MIB]
    for file, outcome, _, seconds, mebibytes in bad:
        print(f"{file.name}: {outcome}, {seconds:.1f} s, {mebibytes} MiB")
    slowest, largest = max((r[3] for r in rows), default=0), max((r[4] for r in rows), default=0)
    print(f"{len(rows)} files, at most {slowest:.1f} s and {largest} MiB, {len(bad)} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
