"""The shipped model answers the same through a worker as in the library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pumit
import pytest
from pumit.client import LocalWorker, RemoteSession
from pumit.errors import PromptError


@pytest.fixture(scope="module")
def weights():
    if not Path(pumit.__file__).with_name("models").joinpath("default.safetensors").is_file():
        pytest.skip("the default weights are absent from pumit/models")


@pytest.fixture(scope="module")
def scan():
    """A bright ball in noise, on an anisotropic grid away from the origin."""
    z, y, x = np.ogrid[:16, :64, :64]
    ball = ((z - 8) * 3) ** 2 + (y - 34) ** 2 + (x - 30) ** 2 < 14**2
    noise = np.random.default_rng(0).normal(0, 8, size=ball.shape)
    return pumit.Volume((noise + 100 * ball).astype(np.int16), (3.0, 1.0, 1.0), (-10.0, 5.0, 20.0))


def ask(session, scan):
    """Masks after each of several prompts, an undo and a redo."""
    session.set_volume(scan)
    centre = scan.index_to_world((8, 34, 30))
    masks = []
    session.add_point(tuple(centre))
    masks.append(session.predict())
    session.add_point(tuple(scan.index_to_world((8, 34, 60))), positive=False)
    masks.append(session.predict())
    session.undo()
    masks.append(session.predict())
    session.redo()
    session.add_box(tuple(centre - 15), tuple(centre + 15), segment="box")
    masks.append(session.predict("box"))
    session.set_mask_prior(masks[0], segment="prior")
    session.add_scribble([tuple(centre), tuple(centre + 4)], segment="prior")
    masks.append(session.predict("prior"))
    masks.append(session.estimated_iou("prior"))
    return masks


@pytest.mark.usefixtures("weights")
@pytest.mark.slow
def test_masks_over_http_equal_those_of_the_library(scan):
    expected = ask(pumit.InteractiveSession(pumit.load_segmenter("default", device="cpu")), scan)
    assert all(np.any(mask) for mask in expected)
    with (
        LocalWorker(device="cpu") as worker,
        worker.client() as client,
        RemoteSession(client) as session,
    ):
        answers = ask(session, scan)
        for answer, mask in zip(answers, expected, strict=True):
            np.testing.assert_array_equal(answer, mask)
        session.add_point(tuple(scan.index_to_world((1, 1, 1))), False, "negative")
        with pytest.raises(PromptError, match="only negative"):
            session.predict("negative")
        with pytest.raises(PromptError):
            session.add_point((1e6, 0, 0))
        session.rebuild()
        np.testing.assert_array_equal(session.predict("box"), expected[3])
        model = client.capabilities()["model"]
    assert model["name"] == "default"
    assert len(model["sha256"]) == 64
