"""What the tests' workers do to a scan: label it without a model, and note that they did."""

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import SimpleITK
from pumit.batch import task as batch_task
from pumit.batch.task import BatchSettings, Outcome, ScanTask
from pumit.errors import DiskFullError
from pumit.io.scans import Scan
from pumit.segmentation import Algorithm, ClassLabel, LabelMap
from pumit.volume import Volume

LOG = "log.txt"
SLOW_S = 0.3


def answer(volume: Volume, watch: Any) -> tuple[LabelMap, Algorithm]:
    """Everything above 50; takes its time."""
    time.sleep(SLOW_S)
    labels = (volume.array > 50).astype(np.uint8)
    return LabelMap(labels, (ClassLabel("bright"),)), Algorithm("PUMIT fake", "1", "AUTOMATIC")


def work(task: ScanTask) -> Outcome:
    """As `predict_scan`; a scan called `killer` ends its worker, `full` finds no room."""
    note(task, "start")
    if "killer" in task.scan.name:
        os.kill(os.getpid(), signal.SIGKILL)
    if "full" in task.scan.name:
        return Outcome(task.scan.name, "stopped", str(DiskFullError("The disk is full.")))
    with patch.object(batch_task, "predictor_for", lambda settings: answer):
        outcome = batch_task.predict_scan(task)
    note(task, outcome.state)
    return outcome


def note(task: ScanTask, what: str) -> None:
    log = os.open(task.scan.path.parent / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, f"{what}\t{task.scan.name}\t{os.getpid()}\n".encode())
    os.close(log)


def noted(folder: Path) -> list[list[str]]:
    """What workers noted: state, scan, process."""
    log = folder / LOG
    return [line.split("\t") for line in log.read_text().splitlines()] if log.exists() else []


def count(folder: Path, what: str) -> Counter[str]:
    """How often each scan came to a state."""
    return Counter(name for state, name, _ in noted(folder) if state == what)


def make_tasks(folder: Path, names: list[str], again: bool = False) -> list[ScanTask]:
    """Scans and where their labels go; one called `broken` is no scan."""
    scans, results = folder / "scans", folder / "results"
    scans.mkdir(exist_ok=True)
    results.mkdir(exist_ok=True)
    tasks = []
    for number, name in enumerate(names):
        path = scans / f"{name}.nii.gz"
        noise = np.random.default_rng(number).normal(50, 20, (4, 8, 8)).astype(np.int16)
        SimpleITK.WriteImage(SimpleITK.GetImageFromArray(noise), str(path))
        if "broken" in name:
            path.write_bytes(path.read_bytes()[:60])
        tasks.append(ScanTask(Scan(path, name), results / f"{name}.nii.gz", BatchSettings(), again))
    return tasks
