"""Files, functions, calls and classes of `pumit` that one task passes through.

Run by hand: `python Testing/lab/count_paths.py [--only NAME]...`. Counted are the second click of a
remote session (client and server, in one process here), the same click of an `InteractiveSession`,
`pumit segment` and two steps of `pumit train`, with the shipped weights on a generated scan. A
class counts if a method that it defines itself is called.
"""

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pumit

PACKAGE = str(Path(pumit.__file__).parent)
TOKEN = "a-token-for-measuring-0123456789"
POINTS = ((32, 48, 48), (34, 50, 46))


class Trace:
    """Counter of the calls into `pumit` by all threads that start after it."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.threads: set[str] = set()
        self._made: set[str] = set()
        self._is_on = False
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Count only within this block."""
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self._is_on or event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            self.calls[code] += 1
            self.threads.add(threading.current_thread().name)
        elif code.co_filename == "<string>":  # the generated methods of dataclasses
            made = type(frame.f_locals.get("self"))
            if made.__module__.startswith("pumit."):
                self._made.add(f"{made.__module__}.{made.__qualname__}")

    def report(self, name: str, *, lists: bool) -> None:
        """Print the counts, and the files and classes if asked."""
        files = {code.co_filename.removeprefix(PACKAGE + "/") for code in self.calls}
        # Comprehensions are calls only in Python before 3.12, and modules run only once.
        functions = {
            (code.co_filename, code.co_qualname)
            for code in self.calls
            if not code.co_name.startswith("<") or code.co_name == "<lambda>"
        }
        classes = set(self._made)
        for file, qualified in functions:
            owner, _, _ = qualified.partition(".<locals>")[0].rpartition(".")
            if owner:
                module = file.removeprefix(PACKAGE).removesuffix(".py").replace("/", ".")
                classes.add(f"pumit{module}.{owner}")
        print(
            f"{name}: {len(files)} files, {len(functions)} functions, "
            f"{sum(self.calls.values())} calls, {len(classes)} classes, "
            f"{len(self.threads)} threads",
            flush=True,
        )
        if lists:
            print("\n".join(f"  {line}" for line in [*sorted(files), *sorted(classes)]))


def scan() -> pumit.Volume:
    """Return a ball in noise."""
    d, h, w = np.ogrid[:64, :96, :96]
    ball = (d - 32) ** 2 + (h - 48) ** 2 + (w - 48) ** 2 < 400
    noise = np.random.default_rng(0).normal(0, 20, ball.shape)
    return pumit.Volume((100 * ball + noise).astype(np.int16), (2.0, 1.0, 1.0))


def second_click(trace: Trace, session: Any) -> None:
    """Click twice, and count the second time, as the panel asks."""
    from pumit.prompts import PointPrompt

    volume = scan()
    session.set_volume(volume)
    prompts = [PointPrompt(tuple(volume.index_to_world(point))) for point in POINTS]
    session.answer(prompts[:1])
    with trace.on():
        session.answer(prompts)


def count_remote_click(trace: Trace) -> None:
    import socket

    import uvicorn
    from pumit.client.http_client import Client
    from pumit.client.remote_session import RemoteSession
    from pumit.server.app import create_app
    from pumit.server.http.connection import connection_class
    from pumit.server.sessions.engine import SegmenterEngine
    from pumit.server.sessions.limits import Limits

    app = create_app(SegmenterEngine("default", device="cpu"), token=TOKEN)
    # The selector's loop, as a traced uvloop would hide its callbacks.
    config = uvicorn.Config(app, http=connection_class(Limits()), log_config=None, loop="asyncio")
    server, listener = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    client = Client(url, TOKEN, is_same_machine=True)
    # No heartbeat within the click.
    with client, RemoteSession(client, heartbeat_s=600.0) as session:
        second_click(trace, session)
    server.should_exit = True
    thread.join()


def count_local_click(trace: Trace) -> None:
    second_click(trace, pumit.InteractiveSession(pumit.load_segmenter("default", device="cpu")))


def run(trace: Trace, *arguments: str) -> None:
    """Run one command of `pumit` in this process."""
    from pumit.cli.main import main

    with trace.on(), contextlib.redirect_stdout(io.StringIO()):
        status = main(arguments)
    if status:
        raise SystemExit(f"pumit {arguments[0]} ended with status {status}")


def count_segment(trace: Trace) -> None:
    from pumit.export.nifti import nifti_bytes

    with tempfile.TemporaryDirectory() as folder:
        image, volume = Path(folder, "scan.nii"), scan()
        image.write_bytes(nifti_bytes(volume.array, volume))
        left, posterior, superior = volume.index_to_world(POINTS[0])
        point = f"{-left},{-posterior},{superior}"
        run(trace, "segment", str(image), f"--point={point}", "-o", str(Path(folder, "a.nii.gz")))


def count_train(trace: Trace) -> None:
    from pumit.cli.main import main

    with tempfile.TemporaryDirectory() as folder:
        data, out = str(Path(folder, "data")), str(Path(folder, "run"))
        with contextlib.redirect_stdout(io.StringIO()):
            main(["sample", "labelled", data, "--quiet"])
        os.environ["PUMIT_MODELS"] = folder  # not the user's own list
        options = ("--data", data, "--steps", "2", "--device", "cpu")
        run(trace, "train", "segmentation", *options, "-o", out)


TASKS: dict[str, Callable[[Trace], None]] = {
    "click": count_remote_click,
    "click in process": count_local_click,
    "segment": count_segment,
    "train": count_train,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=TASKS, help="count only this task")
    parser.add_argument("--list", action="store_true", help="also print the files and classes")
    args = parser.parse_args()
    names = args.only or [*TASKS]
    if len(names) > 1:  # each in its own process: what one imports, the next would not
        for name in names:
            options = ["--only", name, *(["--list"] if args.list else [])]
            subprocess.run([sys.executable, __file__, *options], check=True)
        return
    trace = Trace()
    TASKS[names[0]](trace)
    trace.report(names[0], lists=args.list)


if __name__ == "__main__":
    main()
