"""A trial of training steps in its own process.

`python -m pumit.training.planning.trial TASK` reads one request as a line of JSON and answers with
one: the peak of its memory is that of the training and of nothing else. Whatever is trained is
measured by the one training loop, as a `Task`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pumit.system.machine import free_bytes
from pumit.system.out_of_memory import is_out_of_memory

# A trial that takes all memory would cost the other programs theirs.
MEMORY_SHARE = 0.9


def keep_memory_for_others() -> None:
    """Let allocations fail before the system has to end processes; Linux only."""
    if sys.platform == "linux":
        import resource

        free = free_bytes()

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limits = [n for n in (soft, hard) if n != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min([int(MEMORY_SHARE * free), *limits]), hard))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Measure what a request costs.

    Args:
        request: Request with `task`, the task of a recipe, and what that needs.

    Returns:
        What the trial found, or `{"out_of_memory": true}`.
    """
    trial = _trial(request["task"])
    try:
        return asdict(trial(request))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return {"out_of_memory": True}


def _trial(task: str) -> Callable[[dict[str, Any]], Any]:
    """Return the function that tries a task; each is imported only when it is needed."""
    if task == "promptable":
        from pumit.training.planning.promptable_trial import try_clicks

        return try_clicks
    from pumit.training.planning.segmentation_trial import try_segmentation

    return try_segmentation


def main() -> None:
    """Answer the request on standard input; its task is the argument, to load it before."""
    _trial(sys.argv[1])
    starting = time.process_time()  # loading what a training loads
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
