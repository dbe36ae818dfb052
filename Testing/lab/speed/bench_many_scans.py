"""Throughput of `pumit predict` over many scans: Dask and processes, compared with the ideal.

Two ideals are measured in turns in the same run. One is the same number of plain processes with a
fixed share of the scans each, without scheduling; they share memory and caches like the workers.
The other is one plain process, whose throughput is multiplied by the number of the workers' cores.
A ratio of 0.9 means that scheduling costs a tenth. Models are loaded before timing starts. Wall
time includes the effect of other programs. Two further figures for Dask:

- processor time: CPU time of the plain processes over that of scheduler, workers and client;
- busy: the fraction of the workers' time in which they had a scan.

Dask's own loops use CPU time while they wait, so a busy machine makes the first figure worse;
neither figure replaces the ratio on a quiet machine.

    python Testing/lab/speed/bench_many_scans.py --workers 3 --scans 30 --rounds 3

Needs `pip install distributed`. The model is a small network with random weights, whose time does
not depend on them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import torch
from pumit.batch.dask_cluster import run_on_dask
from pumit.batch.run import run_in_processes
from pumit.batch.task import BatchSettings, Outcome, ScanTask, predict_scan
from pumit.export.volume_file import write_volume_file
from pumit.io.scans import Scan
from pumit.models.checkpoint import save_checkpoint
from pumit.networks.build import build_network
from pumit.system.machine import usable_cores
from pumit.volume import Volume

SHAPE = (24, 96, 96)
SIZES = {"in_channels": 1, "num_classes": 3, "features": [8, 16, 16, 32, 32, 8]}


def make_model(folder: Path) -> Path:
    """Save a small U-Net with random weights."""
    torch.manual_seed(0)
    recipe = {
        "name": "random",
        "network": "basic_unet",
        "sizes": SIZES,
        "classes": [{"name": "a"}, {"name": "b"}],
        "plan": {
            "spacing_mm": [1.0, 1.0, 1.0],
            "patch_size": [16, 64, 64],
            "intensity": {"method": "zscore"},
        },
    }
    state = build_network("basic_unet", **SIZES).state_dict()
    save_checkpoint(folder / "random.safetensors", state, recipe)
    return folder / "random.safetensors"


def make_tasks(folder: Path, count: int, settings: BatchSettings, name: str) -> list[ScanTask]:
    """Return tasks on a common set of scans, with results in a separate folder."""
    tasks = []
    for number in range(count):
        path = folder / f"s{number:03d}.nii.gz"
        if not path.exists():
            noise = np.random.default_rng(number).normal(size=SHAPE).astype(np.float32)
            write_volume_file(noise, Volume(noise), path)
        scan = Scan(path, f"{name}{number:03d}")
        tasks.append(ScanTask(scan, folder / name / f"{number:03d}.nii.gz", settings, again=True))
    return tasks


def processor_s() -> float:
    """Return the CPU time of this process and all its descendants, each counted once."""
    here = psutil.Process()
    times = [process.cpu_times() for process in (here, *here.children(recursive=True))]
    return sum(t.user + t.system for t in times)


def share(tasks: list[ScanTask], ready: object, go: object, used: object) -> None:
    """Run one plain process of the ideal; its first task is a warm-up."""
    torch.set_num_threads(1)
    predict_scan(tasks[0])
    ready.release()  # type: ignore[attr-defined]
    go.wait()  # type: ignore[attr-defined]
    before = time.process_time()
    for task in tasks:
        predict_scan(task)
    used.put(time.process_time() - before)  # type: ignore[attr-defined]


def ideal(tasks: list[ScanTask], workers: int) -> tuple[float, float]:
    """Return the wall time that plain processes take for their shares, and their CPU time."""
    context = get_context("spawn")
    ready, go, used = context.Semaphore(0), context.Event(), context.Queue()
    processes = [
        context.Process(target=share, args=(tasks[i::workers], ready, go, used))
        for i in range(workers)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    started = time.monotonic()
    go.set()
    took = [used.get() for _ in processes]
    elapsed = time.monotonic() - started  # without the exit of the processes
    for process in processes:
        process.join()
    return elapsed, sum(took)


def timed(outcomes: object, skipped: int) -> tuple[float, list[float]]:
    """Time all outcomes but the first `skipped`, which warm the workers up.

    Returns:
        The seconds scaled to all outcomes, and the seconds of each scan.
    """
    ends, took = [], []
    for outcome in outcomes:  # type: ignore[attr-defined]
        assert isinstance(outcome, Outcome)
        assert outcome.state == "done", outcome
        ends.append(time.monotonic())
        took.append(outcome.seconds)
    return (ends[-1] - ends[skipped - 1]) * len(ends) / (len(ends) - skipped), took


def main() -> int:
    """Measure in turns and print the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scans", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if find_spec("distributed") is None:
        parser.error("Dask is not installed; install it by pip install distributed.")
    # Every process uses one thread, whatever starts it.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"):
        os.environ[name] = "1"
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        settings = BatchSettings(model=str(make_model(folder)), device="cpu", overlap=0.5)
        cluster = [subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1",
             "--port", "0", "--no-dashboard", "--scheduler-file", str(folder / "dask.json")],
            stderr=subprocess.DEVNULL,
        )]  # fmt: skip
        while not (folder / "dask.json").exists():
            time.sleep(0.1)
        address = json.loads((folder / "dask.json").read_text())["address"]
        cluster += [
            subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1",
                 "--no-dashboard", "--local-directory", str(folder)],
                stderr=subprocess.DEVNULL,
            )
            for _ in range(args.workers)
        ]  # fmt: skip
        try:
            warm = 2 * args.workers
            list(run_on_dask(make_tasks(folder, warm, settings, "warm"), address))
            processor: list[float] = []
            busy: list[float] = []
            seconds: dict[str, list[float]] = {"ideal": [], "dask": [], "processes": []}
            alone: list[float] = []  # one process's time, scaled to all scans on the workers' cores
            cores = min(args.workers, usable_cores())
            for number in range(args.rounds):
                tasks = {
                    n: make_tasks(folder, args.scans, settings, f"{n}{number}-") for n in seconds
                }
                elapsed, used = ideal(tasks["ideal"], args.workers)
                seconds["ideal"].append(elapsed)
                share_of_one = tasks["ideal"][:: args.workers]
                elapsed, _ = ideal(share_of_one, 1)
                alone.append(elapsed * args.scans / len(share_of_one) / cores)
                before = processor_s()
                elapsed, took = timed(run_on_dask(tasks["dask"], address), args.workers)
                seconds["dask"].append(elapsed)
                processor.append(used / (processor_s() - before))
                busy.append(min(sum(took) / (elapsed * args.workers), 1.0))
                elapsed, _ = timed(run_in_processes(tasks["processes"], args.workers), warm)
                seconds["processes"].append(elapsed)
                print(json.dumps({name: round(times[-1], 2) for name, times in seconds.items()}))
        finally:
            for process in reversed(cluster):
                process.terminate()
                process.wait(20)
    for name, ratios in (("processor time", processor), ("busy", busy)):
        print(f"dask, {name}: {statistics.median(ratios):.3f} (median of {len(ratios)})")
    for name in ("dask", "processes"):
        ratios = [a / b for a, b in zip(seconds["ideal"], seconds[name], strict=True)]
        print(f"{name}: {statistics.median(ratios):.3f} of plain processes (median)")
        ratios = [a / b for a, b in zip(alone, seconds[name], strict=True)]
        print(f"{name}: {statistics.median(ratios):.3f} of one process alone, times {cores} cores")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
