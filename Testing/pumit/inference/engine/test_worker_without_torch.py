"""A worker whose Python has no PyTorch: both protocols, and what it cannot do, in one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pumit
import pytest
from absent_torch import WITHOUT
from pumit.client import LocalWorker, RemoteSession
from pumit.client.http_client import Client
from pumit.errors import PumitError
from pumit.nninteractive.client.session import NNInteractiveSession

CENTRE = (6, 20, 18)


@pytest.fixture
def client(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    """Of a worker, which is what the panel of PUMIT Segment starts."""
    # Python runs this module, where it finds one, before anything else.
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.delenv("PUMIT_ENGINE", raising=False)
    worker = LocalWorker(str(tiny_checkpoint))
    with worker, worker.client() as client:
        yield client


@pytest.mark.slow
def test_a_worker_without_torch_clicks_and_refuses_the_rest_in_one_line(client: Client) -> None:
    d, h, w = np.indices((12, 40, 40))
    ball = (d - 6) ** 2 + (h - 20) ** 2 / 4 + (w - 18) ** 2 / 4 < 25
    noise = np.random.default_rng(0).normal(0, 5, ball.shape)
    scan = pumit.Volume((100 * ball + noise).astype(np.float32))
    for protocol in (RemoteSession, NNInteractiveSession):
        with protocol(client) as session:
            session.set_volume(scan)
            session.add_point(tuple(scan.index_to_world(CENTRE)))
            first = session.predict()
            session.add_point((0.0, 0.0, 0.0), positive=False)
            session.predict()
            session.undo()
            assert np.array_equal(session.predict(), first)
            if isinstance(session, RemoteSession):
                with pytest.raises(PumitError, match="needs PyTorch: pip install") as refused:
                    session.reconstruct()
                assert "\n" not in str(refused.value)
                assert np.array_equal(session.predict(), first)
