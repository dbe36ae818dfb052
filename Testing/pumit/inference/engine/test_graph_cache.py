"""Compiled graphs are read by the next process, and never where anything about them is doubtful."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Barrier, Event

import numpy as np
import pytest
import torch
from pumit.inference.engine import graph_cache, openvino_engine
from pumit.inference.engine.graph_cache import GraphCache
from pumit.inference.engine.openvino_engine import OpenVinoEngine, sizes_of
from pumit.networks.build import build_network

SIZES = {"widths": (8, 16, 16), "dim": 48, "depth": 1, "num_heads": 4, "field_size": 16}
RECIPE = {"network": "promptable", "sizes": SIZES}
GRID = (0, (16, 16, 16))
GRAPHS = (b"encoder", b"the decoder")
MakeEngine = Callable[..., OpenVinoEngine]


def random_weights() -> dict[str, np.ndarray]:
    torch.manual_seed(0)
    state = build_network("promptable", **SIZES).state_dict()
    return {k: v.numpy().astype(np.float32) for k, v in state.items()}


@pytest.fixture
def make_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeEngine:
    monkeypatch.setattr(openvino_engine, "KEEP_AFTER_S", 0.0)

    def make() -> OpenVinoEngine:
        def graphs(identity: Sequence[str]) -> GraphCache:
            return GraphCache(tmp_path / "graphs", ("weights", *identity))

        return OpenVinoEngine(random_weights(), sizes_of(RECIPE), threads=1, graphs=graphs)

    return make


def encode(engine: OpenVinoEngine, da0: int, shape: tuple[int, int, int]) -> np.ndarray:
    image = np.random.default_rng(0).random((3, *shape), dtype=np.float32)
    return np.asarray(engine.encode(image, da0=da0, slice_ratio=2.0**da0).tokens)


def tokens(engine: OpenVinoEngine) -> np.ndarray:
    found = encode(engine, *GRID)
    engine._keeping.shutdown()  # what is to be kept is written
    return found


def test_what_was_written_is_read_for_its_field_and_weights_only(tmp_path):
    cache = GraphCache(tmp_path, ["weights"])
    cache.write(*GRID, GRAPHS)
    assert GraphCache(tmp_path, ["weights"]).read(*GRID) == GRAPHS
    for da0, shape in ((1, GRID[1]), (0, (16, 16, 24))):
        assert cache.read(da0, shape) is None
    assert GraphCache(tmp_path, ["others"]).read(*GRID) is None
    (file,) = tmp_path.iterdir()
    file.rename(cache._path(1, GRID[1]))  # the content tells the field too
    assert cache.read(1, GRID[1]) is None


@pytest.mark.parametrize("damage", ["changed", "empty"])
def test_a_damaged_file_is_removed_in_one_line(tmp_path, damage, caplog):
    cache = GraphCache(tmp_path, ["weights"])
    cache.write(*GRID, GRAPHS)
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content if damage == "changed" else b"")
    assert cache.read(*GRID) is None
    assert not file.exists()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert str(tmp_path) not in caplog.text


def test_the_least_recently_used_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_cache, "MOST_FILES", 2)
    cache = GraphCache(tmp_path, ["weights"])
    for da0 in range(2):
        cache.write(da0, GRID[1], GRAPHS)
        os.utime(cache._path(da0, GRID[1]), (da0, da0))  # as if long ago
    cache.note_use(0, GRID[1])
    cache.write(2, GRID[1], GRAPHS)
    assert [cache.read(da0, GRID[1]) is not None for da0 in range(3)] == [True, False, True]


def test_a_folder_that_cannot_be_made_is_named_once(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = GraphCache(tmp_path / "file" / "graphs", ["weights"])
    cache.write(*GRID, GRAPHS)
    cache.write(*GRID, GRAPHS)
    assert cache.read(*GRID) is None
    assert len(caplog.records) == 1


def test_a_server_reads_and_writes_nothing(tmp_path):
    server = GraphCache(tmp_path / "graphs", ["weights"], is_read_only=True)
    server.write(*GRID, GRAPHS)
    assert not (tmp_path / "graphs").exists()
    GraphCache(tmp_path / "graphs", ["weights"]).write(*GRID, GRAPHS)
    assert server.read(*GRID) == GRAPHS


def test_the_next_process_compiles_nothing_and_answers_the_same(make_engine, monkeypatch):
    first = tokens(make_engine())
    monkeypatch.setattr(OpenVinoEngine, "_check", lambda engine: pytest.fail("checked"))
    monkeypatch.setattr(OpenVinoEngine, "_try_out", lambda engine: pytest.fail("tried"))
    engine = make_engine()
    monkeypatch.setattr(engine, "_compile", lambda graph: pytest.fail("compiled"))
    np.testing.assert_array_equal(tokens(engine), first)


def test_graphs_are_not_read_where_other_instructions_are_allowed(make_engine, monkeypatch):
    tokens(make_engine())
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    of_another_process = openvino_engine._machine_and_code.__wrapped__
    monkeypatch.setattr(openvino_engine, "_machine_and_code", of_another_process)
    tried: list[OpenVinoEngine] = []
    monkeypatch.setattr(OpenVinoEngine, "_try_out", lambda engine: tried.append(engine))
    make_engine()
    assert len(tried) == 1


def test_what_openvino_refuses_is_compiled(make_engine, monkeypatch):
    first = tokens(make_engine())
    engine = make_engine()

    def refused(blob: bytes) -> None:
        raise RuntimeError("of another build")

    monkeypatch.setattr(engine, "_read", refused)
    np.testing.assert_array_equal(tokens(engine), first)


def test_the_graphs_used_last_are_known_without_a_scan(tmp_path):
    cache = GraphCache(tmp_path, ["weights"])
    for da0 in range(3):
        cache.write(da0, GRID[1], GRAPHS)
        os.utime(cache._path(da0, GRID[1]), (da0, da0))
    GraphCache(tmp_path, ["others"]).write(4, GRID[1], GRAPHS)
    (tmp_path / "short.graph").write_bytes(b"x")
    assert cache.recent(2) == [(2, GRID[1]), (1, GRID[1])]
    assert cache.read(0, GRID[1]) is not None  # in advance, perhaps in vain
    assert cache.recent(2) == [(2, GRID[1]), (1, GRID[1])]
    cache.note_use(0, GRID[1])
    assert cache.recent(2) == [(0, GRID[1]), (2, GRID[1])]
    assert GraphCache(tmp_path / "absent", ["weights"]).recent(2) == []


def test_graphs_are_read_before_a_scan_and_given_up_where_it_needs_others(make_engine, monkeypatch):
    first = tokens(make_engine())
    engine = make_engine()
    engine.foresee()
    engine._graphs[GRID].result()
    engine.prepare([GRID])
    monkeypatch.setattr(engine, "_cache", None)
    monkeypatch.setattr(engine, "_compile", lambda graph: pytest.fail("compiled"))
    np.testing.assert_array_equal(tokens(engine), first)
    other = make_engine()
    other.foresee()
    other.prepare([(0, (16, 16, 24))])
    assert list(other._graphs) == [(0, (16, 16, 24))]


# Graphs of the fields of a first click, compiled while the scan is opened, and once


GRIDS = [(0, (16, 16, 16)), (1, (8, 16, 16))]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> OpenVinoEngine:
    # Both are tried for every model that is loaded.
    monkeypatch.setattr(OpenVinoEngine, "_try_out", lambda engine: None)
    monkeypatch.setattr(OpenVinoEngine, "_check", lambda engine: None)
    made = OpenVinoEngine(random_weights(), sizes_of(RECIPE), threads=1)
    compile_both, made.count = made._compile_both, []  # type: ignore[attr-defined]

    def counted(*grid: object) -> object:
        made.count.append(grid)  # type: ignore[attr-defined]
        return compile_both(*grid)  # type: ignore[arg-type]

    monkeypatch.setattr(made, "_compile_both", counted)
    return made


def test_what_was_prepared_is_compiled_once_and_again_after_a_rest(engine):
    engine.prepare(GRIDS)
    engine.prepare(GRIDS)
    prepared = [encode(engine, *grid) for grid in GRIDS]
    engine.prepare(GRIDS)
    again = [encode(engine, *grid) for grid in GRIDS]
    assert sorted(engine.count) == sorted(GRIDS)  # type: ignore[attr-defined]
    np.testing.assert_equal(prepared, again)
    engine.rest()
    assert not engine._graphs
    assert not engine._warm
    np.testing.assert_array_equal(encode(engine, *GRIDS[0]), prepared[0])


def test_a_field_does_not_wait_for_those_after_it(engine):
    """A graph that is still in the queue is compiled by the one who needs it."""
    go = Event()
    engine._compiling.submit(go.wait)  # the only thread is busy
    engine.prepare(GRIDS)
    assert len(encode(engine, *GRIDS[1])) > 0
    go.set()
    assert len(encode(engine, *GRIDS[0])) > 0
    assert sorted(engine.count) == sorted(GRIDS)  # type: ignore[attr-defined]


def test_graphs_that_nobody_uses_do_not_add_up(engine, monkeypatch):
    monkeypatch.setattr(openvino_engine, "MOST_COMPILED", 1)
    engine.prepare(GRIDS)
    assert list(engine._graphs) == GRIDS[1:]


def test_a_graph_that_cannot_be_compiled_fails_where_it_is_needed_and_is_tried_again(
    engine, monkeypatch
):
    with monkeypatch.context() as patched:
        patched.setattr(engine, "graphs", lambda *_: {}["no room"])
        engine.prepare(GRIDS)
        for _ in range(2):
            with pytest.raises(KeyError, match="no room"):
                encode(engine, *GRIDS[0])
    assert len(encode(engine, *GRIDS[0])) > 0


def test_fields_at_once_get_the_answers_of_fields_in_turn(engine):
    """Of one graph and of several, each compiled once, whatever thread comes first."""
    both = OpenVinoEngine(engine._weights, engine._sizes, threads=2)
    at_once = both.map(lambda grid: encode(both, *grid), GRIDS * 3)
    for grid, found in zip(GRIDS * 3, at_once, strict=True):
        assert np.array_equal(found, encode(both, *grid))
        np.testing.assert_allclose(found, encode(engine, *grid), atol=1e-5)  # in one thread
    meet = Barrier(2)  # two at once
    both.map(lambda _: meet.wait(timeout=60), range(2))
    for graph, _ in (both._of(*GRIDS[0]).encoder, both._of(*GRIDS[0]).decoder):  # on all cores
        assert graph.get_property("INFERENCE_NUM_THREADS") == 2
        assert graph.get_property("NUM_STREAMS") == 1


ENGINES_COME_AND_GO = """
import gc, signal, subprocess, sys
import numpy as np, torch
from pumit.inference.engine.openvino_engine import OpenVinoEngine, sizes_of
from pumit.networks.build import build_network

signal.signal(signal.SIGCHLD, lambda *_: None)
state = build_network("promptable", **SIZES).state_dict()
weights = {k: v.numpy().astype(np.float32) for k, v in state.items()}
sizes = sizes_of({"network": "promptable", "sizes": SIZES})
engines = [OpenVinoEngine(weights, sizes, threads=1) for _ in range(2)]
while engines:
    del engines[0]
    gc.collect()
sys.exit(subprocess.run([sys.executable, "-c", ""]).returncode)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="signals of children are POSIX's")
def test_a_signal_after_engines_have_gone_is_handled():
    """The stack for signal handlers must not go with the engine that was made first."""
    program = f"SIZES = {SIZES}\n{ENGINES_COME_AND_GO}"
    run = subprocess.run([sys.executable, "-c", program], check=False)
    assert run.returncode == 0
