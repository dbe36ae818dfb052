"""`python -m pumit.server`: what a local worker runs. Speaks JSON lines on standard output."""

import argparse
import json
import sys

from pumit.errors import PumitError
from pumit.server.serve import add_arguments, run
from pumit.server.sessions.engine import SegmenterEngine
from pumit.system.machine import share_heaps, wait_asleep


def main(arguments: list[str] | None = None, *, engine: SegmenterEngine | None = None) -> int:
    """Serve; print one JSON line for the parent process when ready, or on an error.

    Args:
        arguments: Options of `pumit serve`; None for the process's own.
        engine: The loaded model; None to load it from the options.

    Returns:
        Exit status: 2 for an error that the user can repair.
    """
    wait_asleep()  # before the model imports torch
    share_heaps()
    parser = argparse.ArgumentParser(prog="pumit.server", description=__doc__)
    add_arguments(parser)
    args = parser.parse_args(arguments)
    args.json = True
    try:
        return run(args, engine=engine)
    except PumitError as error:
        line = {"event": "error", "error": type(error).__name__, "detail": str(error)}
        sys.stdout.write(json.dumps(line) + "\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
