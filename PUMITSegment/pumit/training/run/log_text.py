"""Records of the log as sentences for `log.txt`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pumit.system.wording import count_of, duration, listed, times

MOST_NAMED = 12  # classes in a line


def sentence_of(record: Mapping[str, Any], steps: int = 0) -> str | None:
    """Return a record as a sentence, or None where it has nothing to say to a person.

    Args:
        steps: Number of steps of the whole run, where they are known.
    """
    for key, sentence in _SENTENCES:
        if key in record:
            return sentence(record, steps)
    return None


def _data(record: Mapping[str, Any], steps: int) -> str:
    data = record["data"]
    parts = [f"{count_of(int(data.get('cases', 0)), 'case')} found"]
    for key, what in (("training", "to train on"), ("validation", "to validate on")):
        if isinstance(data.get(key), (list, tuple)):
            parts.append(f"{len(data[key])} {what}")
    text = ", ".join(parts)
    if data.get("classes"):
        text += f"; classes: {listed(data['classes'], MOST_NAMED)}"
    warnings = [str(w) for w in data.get("warnings", ())]
    return ". ".join([text, *(f"Look at this: {w.rstrip('.')}" for w in warnings)]) + "."


def _plan(record: Mapping[str, Any], steps: int) -> str:
    plan = record["plan"]
    text = f"Network {plan.get('network', 'as the recipe says')}"
    if "spacing_mm" in plan:
        text += f", voxels of {times(plan['spacing_mm'], '.4g')} mm"
    if "patch_size" in plan:
        text += f", patches of {times(plan['patch_size'], '.4g')} voxels"
    if "batch_size" in plan:
        text += f", {plan['batch_size']} at a time"
    return f"{text}."


def _estimate(record: Mapping[str, Any], steps: int) -> str | None:
    sentence = record["estimate"].get("sentence")
    return None if sentence is None else str(sentence)


def _event(record: Mapping[str, Any], steps: int) -> str:
    return str(record.get("sentence") or f"{record['event']}.")


def _validation(record: Mapping[str, Any], steps: int) -> str:
    found = dict(record["validation"])
    score = found.pop("score", None)
    text = f"Validation at step {record.get('step', '?')}"
    if score is not None:
        text += f": score {score:.4f}"
    shown = [
        f"{k.removeprefix('dice_')} {v:.3f}"
        for k, v in list(found.items())[:MOST_NAMED]
        if isinstance(v, (int, float))
    ]
    return f"{text} ({', '.join(shown)})." if shown else f"{text}."


def _overlay(record: Mapping[str, Any], steps: int) -> str:
    return f"Picture of {record.get('case', 'a case')}: {record['overlay']}."


def _best(record: Mapping[str, Any], steps: int) -> str:
    best = record["best"]
    dices = [
        f"{label} Dice {row['dice']:.3f}"
        for label, row in best.items()
        if isinstance(row, Mapping) and isinstance(row.get("dice"), (int, float))
    ]
    about = f": {', '.join(dices[:MOST_NAMED])}" if dices else ""
    return f"The best model is that of step {best.get('step', '?')}{about}."


def _model(record: Mapping[str, Any], steps: int) -> str:
    text = f"The model is {record['model']}"
    if record.get("registered"):
        text += f", in your model list as {record['registered']}"
    return f"{text}."


def _step(record: Mapping[str, Any], steps: int) -> str:
    of = f" of {steps}" if steps else ""
    parts = []
    if isinstance(record.get("loss"), (int, float)):
        parts.append(f"loss {record['loss']:.4g}")
    if "fields_per_second" in record:
        parts.append(f"{record['fields_per_second']:.3g} fields a second")
    if record.get("left_seconds") is not None:
        parts.append(f"{duration(record['left_seconds'])} left")
    if "memory_gib" in record:
        parts.append(f"{record['memory_gib']:.2f} GiB of memory")
    return f"Step {record['step']}{of}: {', '.join(parts)}." if parts else ""


_SENTENCES = (
    ("data", _data),
    ("plan", _plan),
    ("estimate", _estimate),
    ("event", _event),
    ("validation", _validation),
    ("overlay", _overlay),
    ("best", _best),
    ("model", _model),
    ("step", _step),
)
