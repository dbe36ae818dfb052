"""Slowdown of a click, a training step and a server of 16 users by one or two busy programs.

Run by hand, on Linux or macOS: `python Testing/lab/speed/bench_neighbours.py [--what click
training server] [--rounds 9] [--scan FILE]`.

Each kind of work runs in several processes that live for the whole run: one started as by pumit,
one whose threads spin while they wait (OpenMP's default), optionally one with a single thread, and
for comparison a program that adds numbers. In every round each works without, with one and with two
neighbours; a neighbour is a busy loop in its own session, like another desktop program. Ratios
compare rounds of the same process. If others use the machine too, the ratios of the adding program
show the size of their effect.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from interleaved import ratio

SPINNING = {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200"}
SINGLE = {"OMP_NUM_THREADS": "1"}
NEIGHBOURS = (0, 1, 2)
USERS = 16
SCAN = Path(__file__).resolve().parents[4] / "shared/data/cases/mr_chaos_t2_20/image.nii.gz"
Step = Callable[[], list[float]]


def timed(work: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def clicking(scan: Path | None) -> Step:
    """Return a step of three later clicks in the library, as in the worker."""
    import pumit
    from bench_interactive import scan_of

    volume = scan_of((40, 256, 256), scan)
    session = pumit.InteractiveSession(pumit.load_segmenter("default", device="cpu"))
    session.set_volume(volume)
    rng, middle = np.random.default_rng(1), (np.asarray(volume.shape) - 1) / 2

    def begin() -> None:
        session.reset()
        session.add_point(tuple(volume.index_to_world(middle)))
        session.predict()

    def clicks() -> list[float]:
        if len(session.prompts()) > 9:
            begin()
        seconds = []
        for _ in range(3):
            place = middle + rng.uniform(-0.05, 0.05, 3) * volume.shape
            is_positive = len(session.prompts()) % 2 == 0
            session.add_point(tuple(volume.index_to_world(place)), positive=is_positive)
            seconds.append(timed(session.predict))
        return seconds

    begin()
    return clicks


def training(scan: Path | None) -> Step:
    """Return a forward and backward pass of the shipped network."""
    from pumit.system.machine import wait_asleep

    wait_asleep()  # as the command line does, before PyTorch is imported
    import torch
    from pumit.inference.loading import build_from
    from pumit.models.checkpoint import load_checkpoint
    from pumit.models.index import find_model
    from pumit.networks.promptable.prompt_encoder import PromptBatch
    from pumit.networks.pumit import Anisotropy

    path = find_model("default")
    network = build_from(load_checkpoint(path), path, torch.device("cpu")).train()
    shape = (16, 64, 64)
    image, anisotropy = torch.rand(1, 3, *shape), Anisotropy(2)
    prompts = PromptBatch(
        points=torch.tensor([[[32.0, 32.0, 32.0]]]),
        labels=torch.ones(1, 1, dtype=torch.long),
        boxes=torch.zeros(1, 2, 3),
        has_box=torch.zeros(1, dtype=torch.bool),
        prior=torch.zeros(1, 1, *shape),
        has_prior=torch.zeros(1, dtype=torch.bool),
        slice_ratio=torch.full((1,), 4.0),
    )

    def step() -> None:
        logits, iou = network.decode(network.embed(image, anisotropy), prompts)
        (logits.square().mean() + iou.mean()).backward()

    return lambda: [timed(step)]


def serving(scan: Path | None) -> Step:
    """Return a step of one click by each of sixteen users of one server, at the same time."""
    from pumit.client.worker import LocalWorker
    from server_clients import OwnUser, Visit

    worker = LocalWorker()
    worker.start()
    users = [OwnUser(worker.url, worker.token) for _ in range(USERS)]
    visits = [Visit(user, seed) for seed, user in enumerate(users)]
    for visit in visits:
        visit.open()
        visit.do("click")

    def all_click() -> list[float]:
        seconds: list[float] = []
        threads = [
            threading.Thread(target=lambda v=visit: seconds.append(timed(lambda: v.do("click"))))
            for visit in visits
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return seconds

    return all_click


def adding(scan: Path | None) -> Step:
    """Return a single-threaded computation of about the length of a click."""
    return lambda: [timed(lambda: sum(range(10_000_000)))]


WORK: dict[str, Callable[[Path | None], Step]] = {
    "click": clicking,
    "training": training,
    "server": serving,
    "adding": adding,
}


def work_on_command(name: str, scan: Path | None) -> None:
    """Run a step for each line on standard input, and print its seconds."""
    step = WORK[name](scan)
    step()
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        print(json.dumps(step()), flush=True)


class Worker:
    """A process that does one kind of work."""

    def __init__(self, name: str, variables: dict[str, str], scan: Path | None) -> None:
        command = [sys.executable, __file__, "--work", name]
        command += ["--scan", str(scan)] if scan else ["--scan", ""]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
            start_new_session=True,
        )
        self._answer()

    def step(self) -> float:
        """Run one step; return the median seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return statistics.median(self._answer())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("A process ended early; its message stands above.")
        return json.loads(line)


@contextmanager
def neighbours(count: int) -> Iterator[Callable[[int], None]]:
    """Start programs that keep a core busy; yield a function that sets how many run."""
    loop = [sys.executable, "-c", "while True: pass"]
    programs = [subprocess.Popen(loop, start_new_session=True) for _ in range(count)]

    def let_run(running: int) -> None:
        for i, program in enumerate(programs):
            program.send_signal(signal.SIGCONT if i < running else signal.SIGSTOP)

    let_run(0)
    try:
        yield let_run
    finally:
        for program in programs:
            program.kill()
            program.wait()


def measure(
    workers: dict[str, Worker], rounds: int, let_run: Callable[[int], None]
) -> dict[str, dict[int, list[float]]]:
    """Return the seconds of each worker by number of neighbours, one per round."""
    seconds = {name: {count: [] for count in NEIGHBOURS} for name in workers}
    for _ in range(rounds):
        for count in random.sample(NEIGHBOURS, len(NEIGHBOURS)):
            let_run(count)
            time.sleep(0.3)  # time for programs that adapt to the machine's load
            for name in random.sample(list(workers), len(workers)):
                seconds[name][count].append(workers[name].step())
            let_run(0)
    return seconds


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", nargs="+", choices=list(WORK)[:3], default=list(WORK)[:3])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--scan", default=str(SCAN) if SCAN.is_file() else "")
    parser.add_argument("--single", action="store_true", help="measure a single thread, too")
    parser.add_argument("--no-spinning", action="store_true", help="leave out threads that spin")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    scan = Path(given.scan) if given.scan else None
    if given.work:
        work_on_command(given.work, scan)
        return
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load of the machine {load:.1f} before")
    print(f"{'':34}{'alone':>8}   {'with one':^24}   {'with two':^24}")
    for what in given.what:
        variables: dict[str, dict[str, str]] = {"as pumit starts it": {}}
        if not given.no_spinning:
            variables["threads that spin"] = SPINNING
        if given.single:
            variables["one thread"] = SINGLE
        workers = {f"{what}, {name}": Worker(what, v, scan) for name, v in variables.items()}
        workers["adding, for comparison"] = Worker("adding", {}, None)
        try:
            with neighbours(max(NEIGHBOURS)) as let_run:
                seconds = measure(workers, given.rounds, let_run)
        finally:
            for worker in workers.values():
                worker.close()
        for name, by_count in seconds.items():
            cells = []
            for count in NEIGHBOURS[1:]:
                found = ratio(by_count[count], by_count[0])
                cells.append(f"x{found.median:5.2f} ({found.low:.2f} to {found.high:.2f})")
            alone = statistics.median(by_count[0])
            print(f"{name:34}{alone:6.2f} s   {cells[0]:^24}   {cells[1]:^24}", flush=True)
    print(f"load {os.getloadavg()[0]:.1f} after, the neighbours among it")


if __name__ == "__main__":
    main()
