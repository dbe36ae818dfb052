"""Overhead of one click besides the model: requests, queue jobs, classes and time.

Run by hand: `python Testing/lab/speed/bench_one_click.py [--before FOLDER] [--rounds N]`,
with Slicer's libraries installed (`pip install -e ".[slicer-test]"`). `FOLDER` is a checkout of
another version, measured in turns with this one.

The panel runs on Slicer's real scene, logics and slice views; the server has a fake model that only
paints. The time is from the mouse event until the three slice views have drawn the new segment;
"over core" subtracts the painting. Requests, jobs and classes are counted with the server in the
same process, times with the server in another one. CPU time is that of the panel's process, which
other load changes less.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "0123456789abcdef0123456789abcdef"
OURS = {"pumit", "PUMITSegment", "PUMITSegmentLib", "PUMITSlicerLib"}


class Counts:
    """Counts of a click while `is_on`.

    Attributes:
        requests: Method and path of each request, without heartbeats.
        turns: Number of jobs that the server's queue ran.
        classes: Names of the classes whose methods were called.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.requests: list[str] = []
        self.turns = 0
        self.classes: set[str] = set()

    def start(self) -> None:
        """Hook clients, queues and all threads started from now on."""
        from pumit.client.http_client import Client
        from pumit.server.sessions.fair_queue import Job

        call, run = Client.call, Job.run

        def counted_call(client: Client, method: str, path: str, **options: Any) -> Any:
            if self.is_on and path != "/heartbeat":
                self.requests.append(f"{method} {path}")
            return call(client, method, path, **options)

        def counted_run(job: Job) -> Any:
            self.turns += self.is_on
            return run(job)

        Client.call, Job.run = counted_call, counted_run  # type: ignore[method-assign]
        threading.setprofile(self._trace)
        sys.setprofile(self._trace)

    def _trace(self, frame: Any, event: str, argument: object) -> None:
        if self.is_on and event == "call" and "self" in frame.f_locals:
            kind = type(frame.f_locals["self"])
            if kind.__module__.partition(".")[0] in OURS:
                self.classes.add(f"{kind.__module__}.{kind.__qualname__}")


@contextmanager
def serving(tree: Path) -> Iterator[str]:
    """Serve the fake model in a separate process; yield its URL."""
    command = [sys.executable, str(tree / "Testing/pumit/server/fixtures/fake_worker.py")]
    paths = [str(tree / "PUMITSegment"), str(tree / "Testing/pumit/server/fixtures")]
    environment = {**os.environ, "PUMIT_TOKEN": TOKEN, "PYTHONPATH": os.pathsep.join(paths)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as worker:  # type: ignore
        assert worker.stdout is not None
        try:
            yield json.loads(worker.stdout.readline())["url"]
        finally:
            worker.terminate()


def painting_s(array: Any, spacing: tuple[float, ...], points: list[tuple[float, ...]]) -> float:
    """Return the fake model's median time for a click, s."""
    from fake_engine import FakeSession
    from pumit.prompts import PointPrompt
    from pumit.volume import Volume

    session, seconds = FakeSession(), []
    session.set_volume(Volume(array, spacing))
    for point in points:
        session.add_prompt(PointPrompt(tuple(session.volume.index_to_world(point).tolist())))
        started = time.perf_counter()
        session.predict()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def measure(tree: Path, count: int) -> dict[str, object]:
    """Click in the panel of a checkout, and return counts and times."""
    import numpy as np
    from bench_slicer import SPACING_DHW, body, clicks_around, opened, turn

    # After the import, so that the checkout's folders come first.
    folders = ("Testing", "Testing/pumit/server/fixtures", "PUMITSegment")
    sys.path[:0] = [str(tree / folder) for folder in folders]
    from harness.program import application, core_application, modules

    core_application.start()
    application.start()
    import slicer

    array = body()
    volume_node = slicer.util.addVolumeFromArray(array)
    volume_node.SetSpacing(*SPACING_DHW[::-1])
    views, middle, gui = opened(tree / "PUMITSegment" / "PUMITSegment.py", volume_node)
    logic = gui.logic
    from PUMITSegmentLib.prompts.tag import PromptKind
    from PUMITSlicerLib.computing.settings import ComputeMode, ComputeSettings

    def click(position: tuple[float, ...]) -> tuple[float, float]:
        started, computed = time.perf_counter(), time.process_time()
        views[0].clickAt(position)
        turn(lambda: not logic.isComputing)
        for view in views:
            view.render()
        return time.perf_counter() - started, time.process_time() - computed

    def begin(url: str, token: str) -> Callable[[tuple[float, ...]], tuple[float, float]]:
        logic.compute.changeSettings(ComputeSettings(ComputeMode.REMOTE, url=url, token=token))
        logic.newSegment("Organ")
        logic.startPlacing(PromptKind.POINT)
        slicer.app.processEvents()
        return click

    places = clicks_around(middle, count)
    with serving(tree) as url:
        timed = begin(url, TOKEN)
        seconds, processor = zip(*(timed(place) for place in places), strict=True)
    counts = Counts()
    counts.start()
    from loopback_server import TOKEN as LOOPBACK_TOKEN
    from loopback_server import start_server
    from pumit.server.sessions.limits import Limits

    server = start_server(Limits())
    counted = begin(server.url, LOOPBACK_TOKEN)
    counted(places[0])  # opens the session
    counts.is_on = True
    counted(places[1])
    counts.is_on = False
    sys.setprofile(None)
    indices = [(np.array(array.shape) - 1) / 2 + 3 * i for i in range(5)]
    core = painting_s(array, SPACING_DHW, indices)
    gui.exit()
    modules.unloadModule("PUMITSegment")
    server.stop()
    return {
        "seconds": seconds[1:],
        "processor": processor[1:],
        "core": core,
        "requests": counts.requests,
        "turns": counts.turns,
        "classes": sorted(counts.classes),
    }


def main() -> None:
    """Measure one or two checkouts in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="a checkout of another version")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clicks", type=int, default=12)
    parser.add_argument("--classes", action="store_true", help="name the classes too")
    parser.add_argument("--tree", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.tree is not None:
        print(json.dumps(measure(given.tree, given.clicks)))
        return
    trees = {"now": ROOT} if given.before is None else {"before": given.before, "now": ROOT}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in trees}
    for _ in range(given.rounds):
        for name, tree in trees.items():
            command = [sys.executable, __file__, "--tree", str(tree.resolve())]
            command += ["--clicks", str(given.clicks)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    head = f"{'':8}{'requests':>9}{'turns':>7}{'classes':>9}{'click s':>9}{'over core s':>13}"
    print(f"{head}{'processor s':>13}")
    for name, rounds in found.items():
        seconds = statistics.median(s for each in rounds for s in each["seconds"])
        core = statistics.median(each["core"] for each in rounds)
        processor = statistics.median(s for each in rounds for s in each["processor"])
        last = rounds[-1]
        numbers = f"{len(last['requests']):>9}{last['turns']:>7}{len(last['classes']):>9}"
        print(f"{name:8}{numbers}{seconds:>9.3f}{seconds - core:>13.3f}{processor:>13.3f}")
        print(" " * 8 + ", ".join(last["requests"]))
        if given.classes:
            print(" " * 8 + "\n        ".join(last["classes"]))


if __name__ == "__main__":
    main()
