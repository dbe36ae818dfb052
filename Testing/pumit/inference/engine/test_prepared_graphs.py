"""Graphs of the fields of a first click are compiled while the scan is opened, and once."""

from __future__ import annotations

import signal
import subprocess
import sys
from threading import Barrier, Event

import numpy as np
import pytest
import torch
from pumit.inference.engine import openvino_engine
from pumit.inference.engine.openvino_engine import OpenVinoEngine, sizes_of
from pumit.networks.build import build_network

SIZES = {"widths": (8, 16, 16), "dim": 48, "depth": 1, "num_heads": 4, "field_size": 16}
GRIDS = [(0, (16, 16, 16)), (1, (8, 16, 16))]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> OpenVinoEngine:
    torch.manual_seed(0)
    state = build_network("promptable", **SIZES).state_dict()
    weights = {k: v.numpy().astype(np.float32) for k, v in state.items()}
    recipe = {"network": "promptable", "sizes": SIZES}
    made = OpenVinoEngine(weights, sizes_of(recipe), threads=1)
    compile_both, made.count = made._compile_both, []  # type: ignore[attr-defined]

    def counted(*grid: object) -> object:
        made.count.append(grid)  # type: ignore[attr-defined]
        return compile_both(*grid)  # type: ignore[arg-type]

    monkeypatch.setattr(made, "_compile_both", counted)
    return made


def encode(engine: OpenVinoEngine, da0: int, shape: tuple[int, int, int]) -> np.ndarray:
    image = np.random.default_rng(0).random((3, *shape), dtype=np.float32)
    return np.asarray(engine.encode(image, da0=da0, slice_ratio=2.0**da0).tokens)


def test_what_was_prepared_is_not_compiled_again(engine: OpenVinoEngine) -> None:
    engine.prepare(GRIDS)
    engine.prepare(GRIDS)
    prepared = [encode(engine, *grid) for grid in GRIDS]
    engine.prepare(GRIDS)
    again = [encode(engine, *grid) for grid in GRIDS]
    assert sorted(engine.count) == sorted(GRIDS)  # type: ignore[attr-defined]
    for a, b in zip(prepared, again, strict=True):
        assert np.array_equal(a, b)


def test_a_field_does_not_wait_for_those_after_it(engine: OpenVinoEngine) -> None:
    """What is still in the queue is compiled by the one who needs it."""
    go = Event()
    engine._compiling.submit(go.wait)  # the only thread is busy
    engine.prepare(GRIDS)
    assert len(encode(engine, *GRIDS[1])) > 0
    go.set()
    assert len(encode(engine, *GRIDS[0])) > 0
    assert sorted(engine.count) == sorted(GRIDS)  # type: ignore[attr-defined]


def test_graphs_that_nobody_uses_do_not_add_up(
    engine: OpenVinoEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvino_engine, "MOST_COMPILED", 1)
    engine.prepare(GRIDS)
    assert list(engine._graphs) == GRIDS[1:]


def test_a_graph_that_cannot_be_compiled_fails_where_it_is_needed(
    engine: OpenVinoEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*grid: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(engine, "_compile_both", fail)
    engine.prepare(GRIDS)
    with pytest.raises(RuntimeError, match="no room"):
        encode(engine, *GRIDS[0])


def test_a_graph_that_could_not_be_compiled_is_tried_again(
    engine: OpenVinoEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(engine, "graphs", lambda *_: {}["no room"])
        for _ in range(2):
            with pytest.raises(KeyError):
                encode(engine, *GRIDS[0])
    assert len(encode(engine, *GRIDS[0])) > 0


def test_fields_at_once_get_the_answers_of_fields_in_turn(engine: OpenVinoEngine) -> None:
    """Of one graph and of several, each compiled once, whatever thread comes first."""
    both = OpenVinoEngine(engine._weights, engine._sizes, threads=2)
    items = GRIDS * 4
    at_once = both.map(lambda grid: encode(both, *grid), items)
    for grid, found in zip(items, at_once, strict=True):
        assert np.array_equal(found, encode(both, *grid))
        np.testing.assert_allclose(found, encode(engine, *grid), atol=1e-5)  # in one thread


def test_one_field_is_computed_on_all_cores(engine: OpenVinoEngine) -> None:
    both = OpenVinoEngine(engine._weights, engine._sizes, threads=2)
    for graph, _ in (both._of(*GRIDS[0]).encoder, both._of(*GRIDS[0]).decoder):
        assert graph.get_property("INFERENCE_NUM_THREADS") == 2
        assert graph.get_property("NUM_STREAMS") == 1


def test_two_fields_are_computed_at_once(engine: OpenVinoEngine) -> None:
    meet = Barrier(2)
    both = OpenVinoEngine(engine._weights, engine._sizes, threads=2)
    both.map(lambda _: meet.wait(timeout=60), range(2))


ENGINES_COME_AND_GO = """
import gc, signal, subprocess, sys
import numpy as np, torch
from pumit.inference.engine.openvino_engine import OpenVinoEngine, sizes_of
from pumit.networks.build import build_network

signal.signal(signal.SIGCHLD, lambda *_: None)
state = build_network("promptable", **SIZES).state_dict()
weights = {k: v.numpy().astype(np.float32) for k, v in state.items()}
sizes = sizes_of({"network": "promptable", "sizes": SIZES})
engines = [OpenVinoEngine(weights, sizes, threads=1) for _ in range(3)]
while engines:
    del engines[0]
    gc.collect()
sys.exit(subprocess.run([sys.executable, "-c", ""]).returncode)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="signals of children are POSIX's")
def test_a_signal_after_engines_have_gone_is_handled() -> None:
    """The stack for signal handlers must not go with the engine that was made first."""
    program = f"SIZES = {SIZES}\n{ENGINES_COME_AND_GO}"
    run = subprocess.run([sys.executable, "-c", program], check=False)
    assert run.returncode == 0


def test_an_engine_that_rested_holds_no_graph_and_answers_the_same(engine: OpenVinoEngine) -> None:
    before = encode(engine, *GRIDS[0])
    engine.prepare(GRIDS)
    engine.rest()
    assert not engine._graphs
    assert not engine._warm
    np.testing.assert_array_equal(encode(engine, *GRIDS[0]), before)
