"""On a real scheduler with three worker processes nothing is lost, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from batch_workers import count, make_tasks, noted, work
from pumit.batch.run import predict_many
from pumit.errors import PumitError, ServiceError

pytest.importorskip("distributed", reason="Dask is not installed: pip install distributed")

from dask_scene import DaskScene, wait_until
from pumit.batch.dask_cluster import run_on_dask


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskScene]:
    (tmp_path / "dask").mkdir()
    scene = DaskScene(tmp_path / "dask")
    yield scene
    scene.close()


@pytest.mark.slow
def test_killed_workers_and_a_scan_that_kills_cost_nothing_else(
    cluster: DaskScene, tmp_path: Path
) -> None:
    cluster.start_scheduler()
    cluster.start_workers(3)
    tasks = make_tasks(tmp_path, ["killer", "broken", *(f"s{i}" for i in range(14))])
    scans = tmp_path / "scans"
    victims: list[int] = []

    def kill_one() -> None:
        """-9 to a worker in the middle of a scan."""
        wait_until(lambda: len(count(scans, "done")) >= 4)
        started = [int(process) for state, name, process in noted(scans) if name != "killer"]
        victims.append(started[-1])
        os.kill(started[-1], signal.SIGKILL)

    killing = threading.Thread(target=kill_one)
    killing.start()
    runner = partial(run_on_dask, address=cluster.address, work=work)
    report = predict_many(tasks, tmp_path / "results", runner)
    killing.join()
    assert victims
    assert (report.count("done"), report.count("failed")) == (14, 2)
    assert len(list((tmp_path / "results").glob("s*.nii.gz"))) == 14
    assert set(count(scans, "done").values()) == {1}
    assert len({process for _, _, process in noted(scans)}) >= 4  # three, and those anew
    text = (tmp_path / "results" / "report.csv").read_text()
    assert "Every worker" in text


@pytest.mark.slow
def test_a_scheduler_that_is_started_again_gets_the_rest(
    cluster: DaskScene, tmp_path: Path
) -> None:
    cluster.start_scheduler()
    cluster.start_workers(3, is_watched=False)
    tasks = make_tasks(tmp_path, [f"s{i}" for i in range(18)])
    scans = tmp_path / "scans"
    waited: list[str] = []

    def restart() -> None:
        wait_until(lambda: len(count(scans, "done")) >= 4)
        cluster.kill_scheduler()
        for worker in cluster.workers:  # as a supervisor does whose workers have lost it
            worker.kill()
            worker.wait()
        cluster.start_scheduler()
        cluster.start_workers(3, is_watched=False)

    restarting = threading.Thread(target=restart)
    restarting.start()
    runner = partial(
        run_on_dask, address=cluster.address, work=work, on_wait=waited.append, patience_s=400
    )
    report = predict_many(tasks, tmp_path / "results", runner)
    restarting.join()
    assert len(waited) == 1
    assert "scheduler" in waited[0]
    assert report.count("done") == 18
    assert set(count(scans, "done").values()) == {1}
    assert len(count(scans, "done")) == 18


def test_a_dead_scheduler_is_one_line(
    cluster: DaskScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pumit.batch import dask_cluster

    monkeypatch.setattr(dask_cluster, "_CONNECT_S", 1.0)
    tasks = make_tasks(tmp_path, ["a"])
    runner = partial(run_on_dask, address=cluster.address, work=work)
    with pytest.raises(PumitError, match="No Dask scheduler answers at tcp://") as caught:
        predict_many(tasks, tmp_path / "results", runner)
    assert "0 of 1 scans are done" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_address_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="not the address"):
        list(run_on_dask(make_tasks(tmp_path, ["a"]), "nonsense://x:y", work=work))
