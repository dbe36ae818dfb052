"""Attack a running server like hostile and careless clients, and print the outcomes.

Run by hand, on Linux: `python Testing/lab/server_faults/server_faults.py [--model default]
[--only WORD] [--json FILE]`. Each case must end in a one-sentence error (4xx, 503 or 507) or a
closed connection, never in another 5xx or a dead server. A healthy user clicks at the same time and
checks every mask. The exit status is 1 if any case fails. With `--model fake`, the default, every
mask is predictable.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import fault_arrays
import fault_connections
import fault_kills
from fault_server import FaultServer, Neighbour, Outcome

FULL = (503, 507)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    case: str
    outcomes: str
    is_good: bool
    neighbour_is_well: bool
    neighbour_slowest_s: float
    seconds: float
    resident_mib: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="fake", help="fake (default), or a model's name")
    parser.add_argument("--only", default="", help="only cases with this word")
    parser.add_argument("--json", type=Path, help="write the table here, too")
    args = parser.parse_args(arguments)
    rows = []
    server = FaultServer(args.model)
    neighbour = Neighbour(server, knows_answers=args.model == "fake")
    neighbour.is_well()
    try:
        for name, case in (fault_connections.CASES | fault_arrays.CASES).items():
            is_tried = args.model != "fake" or name not in fault_arrays.REAL_MODEL_ONLY
            if args.only not in name or not is_tried:
                continue
            neighbour.take_slowest_s()
            begun = time.monotonic()
            outcomes = case(server)
            seconds = time.monotonic() - begun
            is_well = neighbour.is_well()
            row = Row(
                name,
                _summary(outcomes),
                all(map(_is_good, outcomes)) and server.is_alive,
                is_well,
                neighbour.take_slowest_s(),
                seconds,
                server.resident_mib,
            )
            rows.append(row)
            _print(row, outcomes)
            if not server.is_alive:
                break
    finally:
        neighbour.stop()
        if neighbour.errors:
            print("the neighbour:", *neighbour.errors)
        server.stop()
    for name, kill in fault_kills.CASES.items():
        if args.only in name:
            begun = time.monotonic()
            outcomes = kill(args.model)
            seconds = time.monotonic() - begun
            is_good = all(map(_is_good, outcomes))
            rows.append(Row(name, _summary(outcomes), is_good, True, 0.0, seconds, 0.0))
            _print(rows[-1], outcomes)
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    bad = [row for row in rows if not (row.is_good and row.neighbour_is_well)]
    print(f"{len(rows)} cases, {len(bad)} gave way")
    return int(bool(bad))


def _is_good(outcome: Outcome) -> bool:
    if outcome.status == 0:
        return True
    is_meant = 400 <= outcome.status < 500 or outcome.status in FULL
    return is_meant and bool(outcome.sentence) and "\n" not in outcome.sentence


def _summary(outcomes: Sequence[Outcome]) -> str:
    counts = Counter("closed" if o.status == 0 else str(o.status) for o in outcomes)
    return ", ".join(f"{n} x {what}" if n > 1 else what for what, n in sorted(counts.items()))


def _print(row: Row, outcomes: Sequence[Outcome]) -> None:
    verdict = "ok" if row.is_good else "GAVE WAY"
    wellbeing = f"well, {row.neighbour_slowest_s:.2f} s" if row.neighbour_is_well else "HARMED"
    wellbeing = "none" if row.case in fault_kills.CASES else wellbeing
    print(
        f"{row.case:40s} {verdict:8s} neighbour {wellbeing:14s} {row.seconds:5.1f} s "
        f"{row.resident_mib:6.0f} MiB  {row.outcomes}",
        flush=True,
    )
    for outcome in outcomes:
        if not _is_good(outcome) or row.case in fault_kills.CASES:
            print("     ", outcome)


if __name__ == "__main__":
    sys.exit(main())
