"""Reader of prompts from 3D Slicer's markups or PUMIT's own JSON."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from pumit.errors import PromptError
from pumit.geometry import Floats
from pumit.prompts import BoxPrompt, Point3, PointPrompt, Prompt, ScribblePrompt, prompt_from_dict

_NEGATIVE_WORD = re.compile(r"(?<![a-z])(negative|background)(?![a-z])")
_LPS_TO_LPS = np.array([1.0, 1.0, 1.0])
_RAS_TO_LPS = np.array([-1.0, -1.0, 1.0])
# Markups name the coordinate system; older Slicer files number it.
_TO_LPS = {"LPS": _LPS_TO_LPS, "1": _LPS_TO_LPS, "RAS": _RAS_TO_LPS, "0": _RAS_TO_LPS}
# A prompt file is small; anything larger is another file given by mistake.
MAX_BYTES = 64 << 20


def read_markups(path: Path) -> list[Prompt]:
    """Read prompts from a Slicer `.mrk.json` or a JSON list of PUMIT prompts.

    Slicer's fiducials become points. An ROI becomes a box, given by its eight corners so that it
    may be rotated. Curves and lines become scribbles through their control points; a closed curve
    repeats its first point. Control points that were never placed are ignored.

    A fiducial or curve is negative if the list's name, the file's name, or a control point's
    label or description contains the word "negative" or "background", or if a label begins with
    "neg" or "-". Slicer labels points after their list, so naming the list "negative" is enough.
    One negative control point makes the whole curve negative.

    PUMIT's format is a list of `Prompt.to_dict()` values, at the top level or under "prompts".

    Returns:
        At least one prompt, positions in LPS mm.

    Raises:
        PromptError: If the file cannot be read, has another format, or holds no usable prompt.
    """
    data = _load(path)
    if isinstance(data, Mapping) and "markups" in data:
        prompts = _from_markups(data["markups"], _list_name(path))
    else:
        entries = data.get("prompts") if isinstance(data, Mapping) else data
        if not isinstance(entries, list):
            raise PromptError(
                "The prompt file holds neither Slicer markups nor a list of prompts; "
                "save the points from Slicer as .mrk.json."
            )
        prompts = [_own(entry) for entry in entries]
    if not prompts:
        raise PromptError("The prompt file holds no placed point, box or curve; add one.")
    return prompts


def _load(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PromptError(
                "The prompt file is larger than 64 MiB; check that it is the right file."
            )
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise PromptError(f"There is no prompt file {path.name!r}; check the path.") from None
    except OSError as error:
        reason = error.strerror or "the system refused"
        raise PromptError(f"The prompt file cannot be read: {reason}; check the path.") from error
    except json.JSONDecodeError as error:
        raise PromptError(
            f"The prompt file is not valid JSON (line {error.lineno}, column {error.colno}); "
            "save it again from Slicer."
        ) from error
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        if isinstance(error, PromptError):
            raise
        raise PromptError("The prompt file is not JSON text; save it again from Slicer.") from error


def _list_name(path: Path) -> str:
    # Slicer names the file after the list.
    return re.sub(r"(\.mrk)?\.json$", "", path.name, flags=re.IGNORECASE)


def _own(entry: Any) -> Prompt:
    if not isinstance(entry, Mapping):
        raise PromptError(f"A prompt must be a JSON object with a kind, got {entry!r:.60}.")
    try:
        return prompt_from_dict(entry)
    except PromptError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise PromptError(f"A prompt of kind {entry.get('kind')!r:.40} is malformed.") from error


def _from_markups(markups: Any, list_name: str) -> list[Prompt]:
    try:
        return [prompt for markup in markups for prompt in _from_markup(markup, list_name)]
    except PromptError:
        raise
    except (AttributeError, KeyError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise PromptError(
            "The markups file lacks a field or holds one of the wrong kind; save it again from "
            "Slicer."
        ) from error


def _from_markup(markup: Mapping[str, Any], list_name: str) -> Sequence[Prompt]:
    kind = markup["type"]
    frame = str(markup.get("coordinateSystem", "LPS")).upper()
    if frame not in _TO_LPS:
        raise PromptError(f"Markups use LPS or RAS coordinates, got {frame:.20}; save them again.")
    units = markup.get("coordinateUnits", "mm")
    if isinstance(units, list):  # a coded concept: value, scheme and meaning
        units = str(units[0]) if units else ""
    if units not in ("mm", ""):
        raise PromptError(f"Markups must be in mm, got {units!r:.20}; set Slicer's unit to mm.")
    to_lps = _TO_LPS[frame]
    if kind == "ROI":
        return [_box(markup, to_lps)]
    points = [p for p in markup.get("controlPoints", []) if _is_placed(p)]
    list_names = [list_name, str(markup.get("name", ""))]
    negative = [_is_negative(list_names, p) for p in points]
    positions = [_position(p["position"], to_lps) for p in points]
    if kind == "Fiducial":
        return [PointPrompt(p, not n) for p, n in zip(positions, negative, strict=True)]
    if kind in ("Curve", "ClosedCurve", "Line"):
        if kind == "ClosedCurve":
            positions = [*positions, *positions[:1]]
        return [ScribblePrompt(tuple(positions), not any(negative))] if positions else []
    raise PromptError(
        f"Markups of type {kind!r:.40} cannot be prompts; use points, curves or a region of "
        "interest."
    )


def _is_placed(control_point: Mapping[str, Any]) -> bool:
    return control_point.get("positionStatus", "defined") == "defined"


def _is_negative(list_names: Sequence[str], control_point: Mapping[str, Any]) -> bool:
    label = str(control_point.get("label", "")).strip().lower()
    if label.startswith(("neg", "-")):
        return True
    texts = [*list_names, label, str(control_point.get("description", ""))]
    return any(_NEGATIVE_WORD.search(text.lower()) for text in texts)


def _position(values: Any, to_lps: Floats) -> Point3:
    x, y, z = (float(v) * sign for v, sign in zip(values, to_lps, strict=True))
    return (x, y, z)


def _box(markup: Mapping[str, Any], to_lps: Floats) -> BoxPrompt:
    if markup.get("insideOut"):
        raise PromptError(
            "An inside-out region of interest cannot be a prompt; draw a box around it."
        )
    center = np.array(markup["center"], dtype=np.float64)
    size = np.array(markup["size"], dtype=np.float64)
    # Row-major; columns are the box's axes in the file's coordinate system.
    axes = np.array(markup.get("orientation", np.eye(3)), dtype=np.float64).reshape(3, 3)
    corners = [
        _position(center + axes @ (np.array(signs) * size / 2), to_lps)
        for signs in product((-1.0, 1.0), repeat=3)
    ]
    return BoxPrompt(tuple(corners))
