"""Compiled graphs are read by the next process, and never where anything about them is doubtful."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from pumit.inference.engine import graph_cache, openvino_engine
from pumit.inference.engine.graph_cache import GraphCache
from pumit.inference.engine.openvino_engine import OpenVinoEngine, sizes_of
from pumit.networks.build import build_network

SIZES = {"widths": (8, 16, 16), "dim": 48, "depth": 1, "num_heads": 4, "field_size": 16}
GRID = (0, (16, 16, 16))
GRAPHS = (b"encoder", b"the decoder")
MakeEngine = Callable[..., OpenVinoEngine]


@pytest.fixture
def make_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeEngine:
    monkeypatch.setattr(openvino_engine, "KEEP_AFTER_S", 0.0)

    def make(seed: int = 0, sha256: str = "of seed 0") -> OpenVinoEngine:
        torch.manual_seed(seed)
        state = build_network("promptable", **SIZES).state_dict()
        weights = {k: v.numpy().astype(np.float32) for k, v in state.items()}
        sizes = sizes_of({"network": "promptable", "sizes": SIZES})

        def graphs(identity: Sequence[str]) -> GraphCache:
            return GraphCache(tmp_path / "graphs", (sha256, *identity))

        return OpenVinoEngine(weights, sizes, threads=1, graphs=graphs)

    return make


def tokens(engine: OpenVinoEngine) -> np.ndarray:
    image = np.random.default_rng(0).random((3, *GRID[1]), dtype=np.float32)
    found = np.asarray(engine.encode(image, da0=GRID[0], slice_ratio=1.0).tokens)
    engine._keeping.shutdown()  # what is to be kept is written
    return found


def test_what_was_written_is_read_for_its_field_and_weights_only(tmp_path: Path) -> None:
    GraphCache(tmp_path, ["weights"]).write(*GRID, GRAPHS)
    assert GraphCache(tmp_path, ["weights"]).read(*GRID) == GRAPHS
    assert GraphCache(tmp_path, ["weights"]).read(1, GRID[1]) is None
    assert GraphCache(tmp_path, ["weights"]).read(0, (16, 16, 24)) is None
    assert GraphCache(tmp_path, ["others"]).read(*GRID) is None


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_file_is_removed_in_one_line(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache = GraphCache(tmp_path, ["weights"])
    cache.write(*GRID, GRAPHS)
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes({"cut": content[:-3], "changed": content, "empty": b""}[damage])
    assert cache.read(*GRID) is None
    assert not file.exists()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert str(tmp_path) not in caplog.text


def test_the_least_recently_used_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_cache, "MOST_FILES", 2)
    cache = GraphCache(tmp_path, ["weights"])
    for da0 in range(2):
        cache.write(da0, GRID[1], GRAPHS)
        os.utime(cache._path(da0, GRID[1]), (da0, da0))  # as if long ago
    cache.note_use(0, GRID[1])
    cache.write(2, GRID[1], GRAPHS)
    assert [cache.read(da0, GRID[1]) is not None for da0 in range(3)] == [True, False, True]


def test_a_folder_that_cannot_be_made_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    cache = GraphCache(tmp_path / "file" / "graphs", ["weights"])
    cache.write(*GRID, GRAPHS)
    cache.write(*GRID, GRAPHS)
    assert cache.read(*GRID) is None
    assert len(caplog.records) == 1


def test_a_file_of_another_name_is_not_taken(tmp_path: Path) -> None:
    cache = GraphCache(tmp_path, ["weights"])
    cache.write(*GRID, GRAPHS)
    (file,) = tmp_path.iterdir()
    file.rename(cache._path(1, GRID[1]))
    assert cache.read(1, GRID[1]) is None


def test_a_server_reads_and_writes_nothing(tmp_path: Path) -> None:
    server = GraphCache(tmp_path / "graphs", ["weights"], is_read_only=True)
    server.write(*GRID, GRAPHS)
    assert not (tmp_path / "graphs").exists()
    GraphCache(tmp_path / "graphs", ["weights"]).write(*GRID, GRAPHS)
    assert server.read(*GRID) == GRAPHS


def test_the_next_process_compiles_nothing_and_answers_the_same(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tokens(make_engine())
    monkeypatch.setattr(OpenVinoEngine, "_check", lambda engine: pytest.fail("checked"))
    monkeypatch.setattr(OpenVinoEngine, "_try_out", lambda engine: pytest.fail("tried"))
    engine = make_engine()
    monkeypatch.setattr(engine, "_compile", lambda graph: pytest.fail("compiled"))
    np.testing.assert_array_equal(tokens(engine), first)


def test_graphs_are_not_read_where_other_instructions_are_allowed(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens(make_engine())
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    of_another_process = openvino_engine._machine_and_code.__wrapped__
    monkeypatch.setattr(openvino_engine, "_machine_and_code", of_another_process)
    tried: list[OpenVinoEngine] = []
    monkeypatch.setattr(OpenVinoEngine, "_try_out", lambda engine: tried.append(engine))
    make_engine()
    assert len(tried) == 1


def test_what_openvino_refuses_is_compiled(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tokens(make_engine())
    engine = make_engine()

    def refused(blob: bytes) -> None:
        raise RuntimeError("of another build")

    monkeypatch.setattr(engine, "_read", refused)
    np.testing.assert_array_equal(tokens(engine), first)


def test_the_graphs_used_last_are_known_without_a_scan(tmp_path: Path) -> None:
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


def test_graphs_are_read_before_a_scan_and_given_up_where_it_needs_others(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
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
