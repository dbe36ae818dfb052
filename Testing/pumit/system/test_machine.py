"""Threads and memory are those that the machine, its container and other programs leave."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
import torch
from pumit.system import machine
from pumit.system.machine import FittingThreads, ProcessorTimes, wait_asleep
from threadpoolctl import threadpool_info, threadpool_limits

PRINTED = "import os, sys; print(os.environ.get('OMP_WAIT_POLICY'), 'torch' in sys.modules)"


def said_by(program: str) -> list[str]:
    kept = {k: v for k, v in os.environ.items() if k not in machine.WAITING}
    environment = {**kept, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_container_limits_the_memory(tmp_path, monkeypatch):
    assert machine.usable_cores() >= 1
    assert 1 << 20 < machine.free_bytes() <= machine.machine_bytes()
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(machine, "CGROUP_LIMITS", (tmp_path / "absent", limit))
    limit.write_text("max\n")
    assert machine.machine_bytes() == psutil.virtual_memory().total
    limit.write_text("2048000\n")
    assert machine.machine_bytes() == machine.free_bytes() == 2_048_000


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 64), ("150000 100000", 2), ("5000 100000", 1), ("-1 100000", 64), ("", 64)],
)
def test_a_container_limits_the_cores(tmp_path, monkeypatch, quota, cores):
    monkeypatch.setattr(machine, "_assigned_cores", lambda: 64)
    monkeypatch.delitem(sys.modules, "torch")
    first, period = (*quota.split(), "", "")[:2]
    for file, text in (("max", quota), ("quota", first), ("period", period)):
        (tmp_path / file).write_text(f"{text}\n")
    for files in (("max",), ("absent", "period"), ("quota", "period")):
        monkeypatch.setattr(machine, "CGROUP_QUOTAS", [[str(tmp_path / f) for f in files]])
        is_known = "absent" not in files
        assert machine.usable_cores() == (cores if is_known else 64)
        environment: dict[str, str] = {}
        wait_asleep(environment)
        limit = str(cores) if is_known and cores < 64 else None
        assert environment.get("OMP_NUM_THREADS") == limit


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's heaps")
def test_threads_share_heaps():
    code = """
import ctypes, threading
from pumit.system.machine import share_heaps
share_heaps()
held = threading.Barrier(9)
def work():
    keep = [bytearray(1000) for _ in range(100)]
    held.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
ctypes.CDLL(None).malloc_stats()
held.wait()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    if "Arena" not in ran.stderr:
        pytest.skip("this C library has no arenas")
    assert ran.stderr.count("Arena") <= 2


@pytest.fixture
def of_machine(monkeypatch):
    """Two cores; says how many of them were idle or ours in the last second."""
    looks = []

    def times(free: float) -> None:
        last = looks[-1] if looks else ProcessorTimes(0.0, 0.0, 0.0)
        looks.append(ProcessorTimes(last.at_s + 1, last.idle_s + free, last.own_s))

    times(2.0)
    monkeypatch.setattr(machine, "processor_times", lambda: looks[-1])
    monkeypatch.setattr(machine, "usable_cores", lambda: 2)
    return times


@pytest.mark.parametrize("module", ["pumit.cli.main", "pumit.server.__main__"])
def test_a_process_of_ours_chooses_before_it_imports_torch(module):
    start = f"import {module} as m\ntry: m.main(['--help'])\nexcept SystemExit: pass\n"
    assert said_by(f"{start}{PRINTED}")[-2:] == ["PASSIVE", "False"]


@pytest.mark.slow
def test_the_library_chooses_before_it_imports_torch_and_not_afterwards():
    load = "import pumit; pumit.load_segmenter\n"
    assert said_by(f"{load}{PRINTED}")[0] == "PASSIVE"
    assert said_by(f"import torch\n{load}{PRINTED}")[0] == "None"


@pytest.mark.parametrize(
    "chosen", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "9"}, {"KMP_BLOCKTIME": "200"}]
)
def test_what_the_user_chose_stays(chosen, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    environment = dict(chosen)
    wait_asleep(environment)
    assert environment == chosen


def test_a_core_that_another_program_keeps_busy_is_left_to_it(of_machine):
    fitting = FittingThreads()
    of_machine(2.0)
    assert fitting.count(2) == 2
    of_machine(1.05)
    assert fitting.count(2) == 1
    of_machine(1.9)
    assert fitting.count(2) == 2
    assert fitting.count(1) == 1
    of_machine(0.1)
    assert fitting.count(2) == 1  # one computes where none is free
    assert fitting.count(2) == 1  # a look that follows at once says the same


def test_a_machine_that_does_not_tell_is_used_as_a_whole(monkeypatch):
    monkeypatch.setattr(machine, "processor_times", lambda: None)
    assert FittingThreads().count(3) == 3


def test_torch_gets_its_threads_back_after_overlapping_blocks(of_machine):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        fitting = FittingThreads()
        of_machine(2.0)
        first, second = fitting.computing(), fitting.computing()
        first.__enter__()
        of_machine(1.0)
        second.__enter__()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
        with ThreadPoolExecutor(1) as later:
            assert later.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)


def test_blas_gets_its_threads_back_after_the_last_of_overlapping_blocks():
    def counts() -> list[int]:
        pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        return [pool["num_threads"] for pool in pools]

    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(limits=2, user_api="blas"):
        if 2 not in counts():
            pytest.skip("this NumPy's BLAS has no threads to limit")
        fitting = FittingThreads()
        first, second = fitting.computing(), fitting.computing()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(counts()) == {1}
        second.__exit__(None, None, None)
        assert 2 in counts()


def test_the_times_of_this_machine_go_forward():
    first = machine.processor_times()
    sum(range(200_000))
    second = machine.processor_times()
    assert second.own_s > first.own_s
    assert second.idle_s >= first.idle_s
