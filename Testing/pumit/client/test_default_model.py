"""The shipped model answers the same through a worker as in the library, to any client."""

from contextlib import closing

import numpy as np
import pumit
import pytest
from pumit.client import LocalWorker, RemoteSession
from pumit.errors import PromptError
from pumit.gestures.prompts import box_prompts, lasso_prompts, scribble_prompts
from pumit.prompts import MaskPrompt, PointPrompt

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def worker(default_segmenter):
    with LocalWorker(device="cpu") as started:
        yield started


@pytest.fixture
def library(default_segmenter):
    return pumit.InteractiveSession(default_segmenter)


@pytest.fixture
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


def test_masks_over_http_equal_those_of_the_library(library, worker, scan):
    expected = ask(library, scan)
    assert all(np.any(mask) for mask in expected)
    with worker.client() as client, RemoteSession(client) as session:
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


def test_the_published_client_of_nninteractive_gets_the_masks_of_the_library(library, worker):
    """Every kind of prompt."""
    remote = pytest.importorskip(
        "nnInteractive.inference.remote", reason="nninteractive-client is not installed"
    )
    shape, spacing = (12, 40, 36), (3.0, 1.0, 0.8)
    z, y, x = np.ogrid[:12, :40, :36]
    ball = ((z - 6) * 3) ** 2 + (y - 20) ** 2 + ((x - 18) * 0.8) ** 2 < 11**2
    image = (np.random.default_rng(0).normal(0, 8, size=shape) + 100 * ball).astype(np.float32)
    volume = pumit.Volume(image, spacing)
    library.set_volume(volume)

    def connect(dtype):
        made = remote.nnInteractiveRemoteInferenceSession(worker.url, api_key=worker.token)
        made.set_image(image[None], {"spacing": np.array(spacing)})
        made.set_target_buffer(np.zeros(shape, dtype))
        return made

    def agree(prompts, ask, *, again=False):
        if again:
            session.reset_interactions()
            library.reset()
        library.add_prompts(prompts, "1")
        ask()
        expected = library.predict("1")
        assert expected.any()
        np.testing.assert_array_equal(session.target_buffer != 0, expected)

    center, outside = (6, 20, 18), (6, 4, 4)
    stroke = np.zeros((1, 12, 3), np.uint8)
    stroke[0, :, 1] = 1
    rows, columns = np.ogrid[:17, :17]
    area = ((rows - 8) ** 2 + (columns - 8) ** 2 <= 64).astype(np.uint8)[None]
    with closing(connect(np.int16)) as session, closing(connect(np.uint8)) as again:
        for index, is_inside in ((center, True), (outside, False)):
            agree(
                [PointPrompt(tuple(volume.index_to_world(index).tolist()), is_inside)],
                lambda index=index, is_inside=is_inside: session.add_point_interaction(
                    index, include_interaction=is_inside
                ),
            )
        again.add_point_interaction([3, 30, 30], include_interaction=True)
        agree(
            scribble_prompts(stroke != 0, (6, 14, 17), volume, is_positive=True),
            lambda: session.add_scribble_interaction(
                stroke, True, interaction_bbox=[[6, 7], [14, 26], [17, 20]]
            ),
        )
        library.undo()
        assert session.undo()
        np.testing.assert_array_equal(session.target_buffer != 0, library.predict("1"))
        flat, deep = [[6, 7], [9, 32], [4, 33]], [[2, 11], [9, 32], [4, 33]]
        for box in (flat, deep):
            agree(
                box_prompts(box, volume, is_positive=True),
                lambda box=box: session.add_bbox_interaction(box, True),
                again=True,
            )
        agree(
            lasso_prompts(area != 0, (6, 12, 10), volume, is_positive=True),
            lambda: session.add_lasso_interaction(
                area, True, interaction_bbox=[[6, 7], [12, 29], [10, 27]]
            ),
            again=True,
        )
        mask = library.predict("1")
        agree(
            [MaskPrompt(mask)],
            lambda: session.add_initial_seg_interaction(mask.astype(np.uint8), True),
            again=True,
        )
        assert again.undo()
        assert not again.target_buffer.any()
        assert session.license == "Apache-2.0"
