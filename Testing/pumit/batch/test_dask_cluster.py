"""On a real scheduler with two worker processes nothing is lost, and nothing is done twice."""

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
    scene.kill_all()


@pytest.mark.slow
def test_a_killed_scheduler_killed_workers_and_a_scan_that_kills_cost_nothing_else(
    cluster, tmp_path
):
    cluster.start_scheduler()
    for _ in range(2):
        cluster.start_workers("--no-nanny")
    tasks = make_tasks(tmp_path, [*(f"s{i}" for i in range(12)), "broken", "killer"])
    scans = tmp_path / "scans"
    waited: list[str] = []
    victims: list[int] = []

    def attack() -> None:
        wait_until(lambda: len(count(scans, "done")) >= 2)
        cluster.kill_all()  # as a supervisor does whose workers have lost their scheduler
        cluster.start_scheduler()
        cluster.start_workers("--nworkers", "2")  # which are started again when they die
        before = len(noted(scans))
        wait_until(lambda: len(noted(scans)) > before)
        victims.append(int(noted(scans)[-1][2]))
        os.kill(victims[0], signal.SIGKILL)  # a worker in the middle of a scan

    attacking = threading.Thread(target=attack)
    attacking.start()
    runner = partial(
        run_on_dask, address=cluster.address, work=work, on_wait=waited.append, patience_s=400
    )
    report = predict_many(tasks, tmp_path / "results", runner)
    attacking.join()
    assert victims
    assert "scheduler" in waited[0]
    assert report.count("failed") == 2
    assert len(list((tmp_path / "results").glob("s*.nii.gz"))) == 12
    assert set(count(scans, "done").values()) == {1}
    assert len({process for _, _, process in noted(scans)}) >= 5  # two, two, and more
    assert "Every worker" in (tmp_path / "results" / "report.csv").read_text()


def test_a_dead_scheduler_is_one_line(cluster, tmp_path, monkeypatch):
    from pumit.batch import dask_cluster

    monkeypatch.setattr(dask_cluster, "_CONNECT_S", 1.0)
    tasks = make_tasks(tmp_path, ["a"])
    runner = partial(run_on_dask, address=cluster.address, work=work)
    with pytest.raises(PumitError, match="No Dask scheduler answers at tcp://") as caught:
        predict_many(tasks, tmp_path / "results", runner)
    assert "0 of 1 scans are done" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_address_is_one_line(tmp_path):
    with pytest.raises(ServiceError, match="not the address"):
        list(run_on_dask(make_tasks(tmp_path, ["a"]), "nonsense://x:y", work=work))
