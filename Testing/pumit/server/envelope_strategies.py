"""Array bodies and their `X-Meta` as Hypothesis makes them: sound, damaged, or anything."""

from __future__ import annotations

import json
import struct

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pumit.wire.arrays import pack_array

_DTYPES = ["bool", "uint8", "int16", "uint16", "int32", "int64", "float16", "float32", "float64"]
_SIZES = st.sampled_from([0, 1, 2, 3, 4, 9, 10, 11, 100, 2**31 - 1, 2**62, -1])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Small arrays, often of the grid 10 x 10 x 10 that the tests' scan has."""
    shape = draw(
        st.sampled_from([(10, 10, 10), (1, 10, 10, 10), (3, 10, 10, 10), (125,), (10, 1, 10)])
        | hnp.array_shapes(min_dims=1, max_dims=4, max_side=12)
    )
    dtype = draw(st.sampled_from(_DTYPES))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    array = (rng.random(shape) * 2 ** draw(st.integers(0, 12))).astype(dtype)
    if array.dtype.kind == "f" and draw(st.booleans()):
        array.flat[0] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    return array


@st.composite
def envelopes(draw: st.DrawFn) -> bytes:
    """Bodies: sound ones, sound ones with damage, and bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=80) | st.binary(max_size=40).map(lambda b: b"NNIA\1\1" + b))
    array = draw(arrays())
    body = bytearray(pack_array(array, codec=draw(st.sampled_from(["lz4", "zstd"]))))
    damage = draw(st.sampled_from([None, None, "bytes", "cut", "more", "shape", "lengths"]))
    if damage == "bytes":
        for _ in range(draw(st.integers(1, 4))):
            body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    elif damage == "cut":
        del body[draw(st.integers(0, len(body) - 1)) :]
    elif damage == "more":
        body += draw(st.binary(min_size=1, max_size=40))
    elif damage is not None:
        # Shape, number of chunks and the first chunk's lengths follow the type's name.
        start = 8 + body[7] + (0 if damage == "shape" else 8 * array.ndim + 4)
        struct.pack_into("<q", body, start, draw(_SIZES | st.integers(-(2**63), 2**63 - 1)))
    return bytes(body)


_FLAGS = ["run_prediction", "include_interaction", "override_capability_checks"]
_WHOLE = [[0, 10]] * 3
# What each endpoint cannot do without, and what it may be told.
_FIELDS: dict[str, tuple[dict[str, object], list[str]]] = {
    "/pumit/v2/volume": ({"spacing_mm": [1, 1, 1]}, ["origin_lps", "direction", "channel"]),
    "/pumit/v2/mask_prior": ({"bbox": _WHOLE}, []),
    "/set_image": ({}, ["image_properties"]),
    "/add_initial_seg_interaction": ({}, _FLAGS),
    "/add_scribble_interaction": ({"include_interaction": True}, ["interaction_bbox", *_FLAGS]),
    "/add_lasso_interaction": ({"include_interaction": True}, ["interaction_bbox", *_FLAGS]),
}


def needed_meta(path: str) -> bytes:
    """What an endpoint cannot do without."""
    return json.dumps(_FIELDS[path][0]).encode()


@st.composite
def metas(draw: st.DrawFn, path: str) -> bytes:
    """`X-Meta` for an endpoint: its own fields, some of them wrong; others too; or any text."""
    kind = draw(st.sampled_from(["needed", "own", "own", "all", "json", "text"]))
    if kind == "text":
        return draw(st.text(st.characters(codec="latin-1", min_codepoint=32))).encode("latin-1")
    if kind == "json":
        return json.dumps(draw(_JSON)).encode()
    needed, known = _FIELDS[path]
    if kind == "needed":
        return json.dumps(needed).encode()
    span = st.lists(_SIZES, min_size=2, max_size=2) | st.sampled_from([[0, 10], [2, 7]])
    box = st.lists(span, min_size=3, max_size=3) | st.just(_WHOLE)
    numbers = st.floats(1e-3, 1e3) | st.floats() | st.integers(-3, 3)
    three = st.lists(numbers, min_size=3, max_size=3) | st.just([1, 1, 1])
    fields: dict[str, st.SearchStrategy[object]] = {
        "spacing_mm": three,
        "origin_lps": three,
        "direction": st.lists(three, min_size=3, max_size=3),
        "channel": _SIZES,
        "segment": st.text(max_size=5) | st.just("1"),
        "bbox": box,
        "interaction_bbox": box | st.none(),
        "image_properties": st.fixed_dictionaries({"spacing": three | _JSON}) | _JSON,
        **dict.fromkeys(_FLAGS, st.booleans() | st.sampled_from([2, "yes", None])),
    }
    names = [*needed, *known] if kind == "own" else list(fields)
    chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=4)) if names else []
    return json.dumps(needed | {name: draw(fields[name]) for name in chosen}).encode()
