"""Load test of one server with many users: errors, latency and memory.

Run by hand, on Linux: `python Testing/lab/speed/bench_server.py [--seconds 120] [--clients
16] [--out FOLDER]`. Half of the clients use PUMIT's own protocol, half the nnInteractive protocol
through its published client. They open scans, click, think, undo, reset and occasionally open
another scan; two vanish without releasing their sessions and are replaced. Prints latencies by kind
of request, queueing and computing times, and resident memory every ten seconds; writes
`server.json` and `server.png` to the folder. The exit status is 1 if a request failed, or if a mask
under load differs from the library's.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families
from pumit.client.http_client import Client
from server_clients import OwnUser, PublishedUser, Record, User, use

TOKEN = "a-token-for-measuring-0123456789"
# Shorter than the default, so that the sessions of vanished clients end during the run.
LIVENESS_S = 25.0


class Watch:
    """Monitor of the server's memory and sessions, from outside.

    Args:
        client: Client of the server.
        pid: Process id of the server.
        record: Record for the monitor's own requests.
    """

    def __init__(self, client: Client, pid: int, record: Record) -> None:
        self._client, self._pid, self._record = client, pid, record
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.memory: list[tuple[float, float]] = []
        self.held: list[tuple[float, float]] = []
        self.sessions: list[tuple[float, int]] = []
        self._thread.start()

    def stop(self) -> None:
        """Stop monitoring."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        shown = 0.0
        while not self._stop.wait(1.0):
            at = time.monotonic() - self._record.begun
            self.memory.append((at, resident_mib(self._pid)))
            self._record.time("watch", "status", self._note_sessions)
            if at >= shown + 10 and self.sessions:
                shown = at
                print(
                    f"{at:5.0f} s  {self.memory[-1][1]:6.0f} MiB, of which sessions hold "
                    f"{self.held[-1][1]:5.0f}  {self.sessions[-1][1]} sessions  "
                    f"{len(self._record.requests)} requests",
                    flush=True,
                )

    def _note_sessions(self) -> None:
        at = time.monotonic() - self._record.begun
        stated = self._client.capabilities()
        self.sessions.append((at, int(stated["sessions"])))
        held = stated["memory"]["scan_bytes"] + stated["memory"]["embedding_bytes"]
        self.held.append((at, held / (1 << 20)))


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process, MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def start(model: str, clients: int, device: str) -> tuple[subprocess.Popen[str], str]:
    """Start a server process; return it and its URL."""
    command = [sys.executable, "-m", "pumit.server", "--model", model, "--device", device]
    # Two more sessions than clients: a new client need not wait for a vanished one's session.
    command += ["--max-sessions", str(clients + 2), "--liveness-timeout", str(LIVENESS_S)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PUMIT_TOKEN": TOKEN}
    )
    assert process.stdout is not None
    return process, str(json.loads(process.stdout.readline())["url"])


def crowd(
    url: str, record: Record, *, clients: int, seconds: float, is_own: bool = False
) -> list[OwnUser]:
    """Run all users, and return PUMIT's own clients that stayed, with open sessions."""
    stop, left = threading.Event(), []

    def run(number: int, until_s: float, politely: bool, seed: int) -> None:
        kind: Callable[[str, str], User] = OwnUser if number % 2 or is_own else PublishedUser
        stayed = use(
            partial(kind, url, TOKEN),
            record,
            seed=seed,
            until_s=until_s,
            politely=politely,
            stop=stop,
        )
        if not politely:  # another client replaces it
            run(number, seconds, True, seed + 1000)
        elif isinstance(stayed, OwnUser):
            left.append(stayed)
        elif stayed is not None:
            stayed.leave(politely=True)

    threads = []
    for number in range(clients):
        vanishes = number in (2, 3) and clients > 3
        until_s = seconds * (0.3 + 0.1 * (number == 3)) if vanishes else seconds
        thread = threading.Thread(target=run, args=(number, until_s, not vanishes, number))
        thread.start()
        threads.append(thread)
        stop.wait(0.1)
    for thread in threads:
        thread.join()
    return left


def wrong_answers(users: Sequence[OwnUser], model: str, device: str) -> tuple[int, int]:
    """Compare the last masks with the library's; return how many were compared and differ."""
    import pumit

    segmenter, compared, wrong = pumit.load_segmenter(model, device=device), 0, 0
    for user in users:
        if user.session.prompts():
            session = pumit.InteractiveSession(segmenter)
            session.set_volume(user.session.volume)
            expected = session.answer(user.session.prompts()).mask
            compared += 1
            wrong += not np.array_equal(expected, user.session.predict())
    return compared, wrong


def table(record: Record) -> dict[str, dict[str, float]]:
    """Return latencies by kind of request, s."""
    kinds = sorted({(r.protocol, r.kind) for r in record.requests})
    rows = {}
    for protocol, kind in kinds:
        found = [r for r in record.requests if (r.protocol, r.kind) == (protocol, kind)]
        seconds = np.array([r.seconds for r in found])
        p50, p90, p99 = np.percentile(seconds, [50, 90, 99])
        rows[f"{protocol} {kind}"] = {
            "requests": len(found),
            "errors": sum(bool(r.error) for r in found),
            "p50": float(p50),
            "p90": float(p90),
            "p99": float(p99),
            "max": float(seconds.max()),
        }
    return rows


def jobs(client: Client) -> dict[str, dict[str, float]]:
    """Return the queue's jobs by kind: number, and mean waiting and running seconds."""
    text = client.call("GET", "/metrics").text
    sums: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            kind = sample.labels.get("kind")
            if kind and sample.name.endswith(("_seconds_sum", "_seconds_count")):
                sums[kind, sample.name] = sums.get((kind, sample.name), 0.0) + sample.value
    found = {}
    for kind in sorted({kind for kind, _ in sums}):
        count = sums[kind, "pumit_job_running_seconds_count"]
        waited = sums[kind, "pumit_job_waiting_seconds_sum"]
        ran = sums[kind, "pumit_job_running_seconds_sum"]
        if count:
            found[kind] = {"jobs": count, "waited_s": waited / count, "ran_s": ran / count}
    return found


def slope(memory: Sequence[tuple[float, float]], seconds: float) -> dict[str, float]:
    """Return the trend of memory over the second half of the run."""
    late = np.array([(at, mib) for at, mib in memory if seconds / 2 < at < seconds])
    per_minute = float(np.polyfit(late[:, 0], late[:, 1], 1)[0] * 60) if len(late) > 2 else 0.0
    return {
        "slope_mib_per_minute": per_minute,
        "first_mib": float(late[0, 1]),
        "max_mib": float(late[:, 1].max()),
        "last_mib": float(late[-1, 1]),
    }


def unheld(watch: Watch) -> list[tuple[float, float]]:
    """Return the process's memory without that of sessions, over time, MiB."""
    return [
        (at, all_ - held) for (at, all_), (_, held) in zip(watch.memory, watch.held, strict=False)
    ]


def draw(path: Path, record: Record, watch: Watch) -> None:
    """Plot latencies over time, and memory below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(9, 6), layout="tight")
    for kind, color in (("click", "tab:blue"), ("scan", "tab:orange"), ("status", "0.6")):
        found = [r for r in record.requests if r.kind == kind]
        above.plot([r.at_s for r in found], [r.seconds for r in found], ".", ms=3, color=color)
        above.plot([], [], ".", color=color, label=kind)
    above.set(yscale="log", ylabel="seconds until answered")
    above.legend(loc="center right")
    below.plot(*zip(*watch.memory, strict=True), color="tab:green")
    below.plot(*zip(*watch.held, strict=True), color="tab:green", ls=":")
    below.set(xlabel="s", ylabel="memory, MiB: resident; held (dots)", ylim=(0, None))
    unheld = below.twinx()
    unheld.plot(*zip(*watch.sessions, strict=True), color="0.5", lw=1)
    unheld.set(ylabel="sessions", ylim=(0, None))
    figure.savefig(path, dpi=120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the load test; return 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--model", default="default")
    parser.add_argument("--device", default="cpu", help="of the server: cpu, cuda or cuda:1")
    parser.add_argument("--own", action="store_true", help="only PUMIT's own client")
    parser.add_argument("--out", type=Path, help="folder for server.json and server.png")
    args = parser.parse_args(arguments)
    process, url = start(args.model, args.clients, args.device)
    load, resident_first = os.getloadavg(), resident_mib(process.pid)
    try:
        client = Client(url, TOKEN)
        record = Record()
        watch = Watch(client, process.pid, record)
        stayed = crowd(url, record, clients=args.clients, seconds=args.seconds, is_own=args.own)
        watch.stop()
        measured = jobs(client)
        compared, wrong = wrong_answers(stayed, args.model, args.device)
        for user in stayed:
            user.leave(politely=True)
        left = int(client.capabilities()["sessions"])
        time.sleep(20)  # caches are released at the second interval without users
        resident_after = resident_mib(process.pid)
    finally:
        process.terminate()
        process.wait(30)
    rows, memory = table(record), slope(watch.memory, args.seconds)
    report: dict[str, Any] = {
        "seconds": args.seconds,
        "clients": args.clients,
        "model": args.model,
        "device": args.device,
        "cores": os.cpu_count(),
        "load_before": load,
        "load_after": os.getloadavg(),
        "latency_s": rows,
        "jobs": measured,
        "memory": memory,
        "held": slope(watch.held, args.seconds),
        "not held": slope(unheld(watch), args.seconds),
        "resident_mib": watch.memory,
        "held_mib": watch.held,
        "sessions": watch.sessions,
        "sessions_left": left,
        "resident_first_mib": resident_first,
        "resident_after_mib": resident_after,
        "answers_compared": compared,
        "wrong_answers": wrong,
        "errors": [asdict(r) for r in record.requests if r.error],
    }
    _print(report)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "server.json").write_text(json.dumps(report, indent=1))
        draw(args.out / "server.png", record, watch)
    return int(bool(report["errors"]) or bool(wrong))


def _print(report: dict[str, Any]) -> None:
    rows = report["latency_s"]
    print(
        f"{'request':26s} {'n':>6s} {'err':>4s} {'p50':>7s} {'p90':>7s} {'p99':>7s} {'max':>7s}  s"
    )
    for name, row in rows.items():
        times = " ".join(f"{row[p]:7.3f}" for p in ("p50", "p90", "p99", "max"))
        print(f"{name:26s} {row['requests']:6d} {row['errors']:4d} {times}")
    for kind, job in report["jobs"].items():
        print(
            f"jobs of kind {kind:14s} {job['jobs']:6.0f}: waited {job['waited_s']:.3f} s, "
            f"ran {job['ran_s']:.3f} s on average"
        )
    parts = {"resident": "memory", "held by sessions": "held", "not held": "not held"}
    for what, memory in ((what, report[key]) for what, key in parts.items()):
        print(
            f"memory {what}, last half: {memory['first_mib']:.0f} MiB at first, at most "
            f"{memory['max_mib']:.0f}, {memory['last_mib']:.0f} at last; "
            f"slope {memory['slope_mib_per_minute']:+.1f} MiB/min"
        )
    print(
        f"resident before anybody came {report['resident_first_mib']:.0f} MiB, twenty seconds "
        f"after everybody left {report['resident_after_mib']:.0f}"
    )
    requests = sum(row["requests"] for row in rows.values())
    print(
        f"{requests} requests, {len(report['errors'])} errors; {report['wrong_answers']} of "
        f"{report['answers_compared']} last answers differ from the library's; "
        f"{report['sessions_left']} sessions left; load of the machine "
        f"{report['load_before'][0]:.1f} before, {report['load_after'][0]:.1f} after"
    )
    for error in report["errors"][:10]:
        print("   ", error["protocol"], error["kind"], error["error"])


if __name__ == "__main__":
    sys.exit(main())
