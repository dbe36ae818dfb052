"""Trial of training steps in a separate process.

`python -m pumit.training.planning.trial TASK` reads one request as a line of JSON and writes one
line back. In its own process, the peak memory is that of the training only. All tasks are measured
by the same training loop, as a `Task`.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pumit.system.machine import free_bytes
from pumit.system.out_of_memory import is_out_of_memory

# Share of free memory that a trial may use, to leave some to other programs.
MEMORY_SHARE = 0.9


def keep_memory_for_others() -> None:
    """Limit this process's memory, so allocations fail before the OOM killer acts; Linux only."""
    if sys.platform == "linux":
        import resource

        free = free_bytes()

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limits = [n for n in (soft, hard) if n != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min([int(MEMORY_SHARE * free), *limits]), hard))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Measure the cost of a request, or return `{"out_of_memory": true}`.

    The request has the `task` of a recipe, and the values that its trial needs.
    """
    trial = _trial(request["task"])
    try:
        return asdict(trial(request))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return {"out_of_memory": True}


def _trial(task: str) -> Callable[[dict[str, Any]], Any]:
    """Return the trial function of a task, imported on demand."""
    if task == "promptable":
        from pumit.training.planning.promptable import try_clicks

        return try_clicks
    if task == "classification":
        from pumit.training.planning.classification import try_classifier

        return try_classifier
    from pumit.training.planning.segmentation import try_segmentation

    return try_segmentation


def main() -> None:
    """Answer the request on standard input; the argument is its task, to load its code first."""
    _trial(sys.argv[1])
    starting = time.process_time()  # import time of a training
    line = sys.stdin.readline()
    if not line.strip():
        return
    request = json.loads(line)
    if request.get("device", "cpu") == "cpu":
        keep_memory_for_others()
    found = answer(request)
    sys.stdout.write(json.dumps({**found, "starting": starting}) + "\n")


if __name__ == "__main__":
    main()
