"""A worker process around the fake model, started by `LocalWorker(command=...)`."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

from fake_engine import FakeEngine
from pumit.errors import CheckpointError
from pumit.server.__main__ import main

if __name__ == "__main__":
    arguments = sys.argv[1:]
    if "--log-all" in arguments:
        arguments.remove("--log-all")
        logging.basicConfig(level=logging.DEBUG)
    if "--with-child" in arguments:
        arguments.remove("--with-child")
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        sys.stderr.write(f"child {child.pid}\n")
        sys.stderr.flush()
    if "--damaged" in arguments:

        class Damaged(FakeEngine):
            def __init__(self) -> None:
                raise CheckpointError("The checkpoint is damaged; fetch it again.")

        import pumit.server.serve as serve_module

        serve_module.SegmenterEngine = lambda model, device: Damaged()  # type: ignore
        arguments.remove("--damaged")
        sys.exit(main(arguments))
    if "--silent" in arguments:
        os.close(1)
        sys.exit(3)
    sys.exit(main(arguments, engine=FakeEngine()))
