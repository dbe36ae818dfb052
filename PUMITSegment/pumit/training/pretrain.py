"""`pumit pretrain`: train the promptable network, a tokenizer or an encoder from a recipe."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.training.preceding import CACHE
from pumit.training.recipes.pretraining import OWN_TOKENIZER
from pumit.training.recipes.reader import read_yaml
from pumit.training.train import finetune

TASK = "pretraining"


def pretrain(
    path: Path,
    output: Path,
    *,
    changes: Mapping[str, Any] | None = None,
    real_folder: Path | None = None,
    is_whole: bool = False,
    since: float | None = None,
    finish: bool = False,
) -> Path:
    """Train a recipe, resuming a saved run in `output`; see `finetune`.

    Args:
        path: YAML recipe; its relative paths start from the working directory.
        changes: Keys of the recipe to override, such as `schedule`.
        is_whole: Whether to train the tokenizer first on the same folder of scans, and to add the
            model to the user's index.
    """
    keys = {"task": TASK, **read_yaml(path)}
    if keys["task"] != TASK:
        raise PumitError(f"{path.name} is a recipe of `pumit train`, with task: {keys['task']}.")
    changed = {"task": TASK, **(changes or {})}
    if real_folder is not None:
        changed["real_folder"] = str(real_folder)
    if is_whole:
        cache = str((output / CACHE).absolute())
        changed |= {"tokenizer": OWN_TOKENIZER, "cache": cache, "register": True}
    return finetune(path, output, folder=Path.cwd(), changes=changed, since=since, finish=finish)
