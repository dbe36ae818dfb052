"""The nnInteractive protocol's endpoints: what they answer, what they refuse, what they share."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pumit.errors import PromptError
from pumit.preprocessing.guessed_spacing import guess_spacing
from pumit.prompts import MaskPrompt
from pumit.wire import protocol
from viewer_requests import IMAGE, SHAPE, Buffer, click, load, send


def test_capabilities_answer_both_protocols(http):
    stated = http.get("/capabilities").json()
    assert stated["supported_interactions"]["bbox3d"] is True
    assert stated["supports_undo"] is True
    assert stated["inference_session_version"] == "2.6.0"
    assert stated["pumit"]["protocols"] == {"nninteractive": "2.6.0"}
    assert stated["license"] == "!!MISSING!!"  # of a model that no index names


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int32", "uint64"])
def test_answers_travel_in_the_type_of_the_buffer(http, dtype):
    load(http, dtype)
    buffer = Buffer(dtype)
    meta = buffer.take(click(http, 4, 5, 6))
    assert meta["ran_prediction"] is True
    assert meta["bbox"] == [[2, 7], [3, 8], [4, 9]]
    assert buffer.array.sum() == 125


def test_only_the_box_that_changed_is_sent(http, buffer):
    buffer.take(click(http, 4, 5, 4))
    meta = buffer.take(click(http, 4, 5, 6))
    assert meta["bbox"] == [[2, 7], [3, 8], [7, 9]]
    assert buffer.array.sum() == 5 * 5 * 7
    meta = buffer.take(click(http, 4, 5, 6))
    assert meta == {"ran_prediction": True, "bbox": None}


def test_undo_takes_back_every_level_and_then_says_no(http):
    load(http)
    buffer, states = Buffer(), []
    scribble = np.ones((1, 3, 3), np.uint8)
    requests = [
        lambda: click(http, 4, 5, 4),
        lambda: click(http, 4, 5, 4, inside=False),
        lambda: click(http, 1, 1, 1, run=False),
        lambda: send(
            *(http, "/add_scribble_interaction", scribble),
            include_interaction=True,
            interaction_bbox=[[8, 9], [2, 5], [3, 6]],
        ),
        lambda: send(http, "/add_initial_seg_interaction", np.ones(SHAPE, np.uint8)),
    ]
    for request in requests:
        states.append(buffer.array.copy())
        buffer.take(request())
    buffer.array[:] = 1  # as the published client does with an initial segmentation
    for state in reversed(states):
        assert buffer.take(http.post("/undo", json={}))["ran_prediction"] is True
        np.testing.assert_array_equal(buffer.array, state)
    assert buffer.take(http.post("/undo", json={})) == {"ran_prediction": False, "bbox": None}


def test_clicks_outside_alone_leave_the_buffer_empty(http):
    load(http)
    meta = Buffer().take(click(http, 4, 5, 4, inside=False))
    assert meta == {"ran_prediction": True, "bbox": None}


def test_an_initial_segmentation_replaces_what_was_requested(http, buffer, engine):
    buffer.take(click(http, 1, 1, 1))
    drawn = np.zeros(SHAPE, np.int16)
    drawn[5:7, 5:7, 5:7] = 3
    answer = send(http, "/add_initial_seg_interaction", drawn, run_prediction=True)
    buffer.array[:] = drawn != 0
    buffer.take(answer)
    np.testing.assert_array_equal(buffer.array, drawn != 0)
    (prior,) = engine.sessions[0].prompts("1")
    assert isinstance(prior, MaskPrompt)
    buffer.take(click(http, 1, 1, 8))
    assert buffer.array[5, 5, 5]
    assert buffer.array[1, 1, 8]
    assert Buffer().take(http.post("/predict", json={}))["ran_prediction"] is False


def test_an_empty_initial_segmentation_clears_and_can_be_undone(http, buffer):
    buffer.take(click(http, 4, 5, 4))
    before = buffer.array.copy()
    buffer.take(send(http, "/add_initial_seg_interaction", np.zeros(SHAPE, np.uint8)))
    buffer.array[:] = 0
    buffer.take(http.post("/undo", json={}))
    np.testing.assert_array_equal(buffer.array, before)
    http.post("/undo", json={})
    # It is a step also where nothing was.
    send(http, "/add_initial_seg_interaction", np.zeros(SHAPE, np.uint8))
    assert Buffer().take(http.post("/undo", json={}))["ran_prediction"] is True
    assert Buffer().take(http.post("/undo", json={}))["ran_prediction"] is False


@pytest.mark.parametrize("error", [PromptError("Too large."), MemoryError()])
def test_a_refused_initial_segmentation_changes_nothing(http, buffer, engine, monkeypatch, error):
    buffer.take(click(http, 4, 5, 4))
    clicked = buffer.array.copy()
    buffer.take(click(http, 1, 1, 8))

    def refuse(*args, **kwargs):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(engine.sessions[0], "add_prompts", refuse)
        answer = send(http, "/add_initial_seg_interaction", np.ones(SHAPE, np.uint8))
        assert answer.status_code in (400, 507)
    assert len(engine.sessions[0].prompts("1")) == 2
    buffer.take(http.post("/undo", json={}))
    np.testing.assert_array_equal(buffer.array, clicked)
    assert len(engine.sessions[0].prompts("1")) == 1


def test_our_own_predictions_leave_a_viewers_object_alone(http, buffer, engine):
    buffer.take(click(http, 4, 5, 4))
    point = {"kind": "point", "point_lps": [1, 1, 1]}
    for segment in ("1", "other"):
        body = {"segment": segment, "prompts": [point]}
        assert http.post(protocol.PATH_PREDICT, json=body).is_success
    assert len(engine.sessions[0].prompts("1")) == 1
    assert engine.sessions[0].prompts("other") == []
    assert buffer.take(http.post("/predict", json={}))["ran_prediction"] is False
    buffer.take(click(http, 4, 5, 8))
    assert buffer.take(http.post("/undo", json={}))["ran_prediction"] is True
    assert len(engine.sessions[0].prompts("1")) == 1


def test_boxes_include_exactly_their_voxels_in_the_image(http):
    load(http, spacing=[3, 1, 0.5])
    for box, inside in (
        ([[2, 4], [3.2, 6.8], [1, 5]], np.s_[2:4, 3:7, 1:5]),
        ([[-5, 50], [20, 30], [0, 3]], np.s_[:, 9, 0:3]),
    ):
        http.post("/reset_interactions", json={})
        buffer, expected = Buffer(), np.zeros(SHAPE, np.uint8)
        body = {"bbox_coords": box, "include_interaction": True}
        buffer.take(http.post("/add_bbox_interaction", json=body))
        expected[inside] = 1
        np.testing.assert_array_equal(buffer.array, expected)


def test_a_negative_spacing_is_one_of_an_axis_that_is_shown_reversed(http, engine):
    load(http, spacing=[-3, -1, 0.5])
    assert engine.sessions[0].volume.spacing_mm == (3, 1, 0.5)


def test_a_reset_before_an_image_changes_nothing(http):
    assert http.post("/reset_interactions", json={}).json() == {}


def test_an_answer_that_comes_after_its_cancelling_changes_nothing(http, engine, monkeypatch):
    load(http)
    session, buffer = engine.sessions[0], Buffer()
    predict = session.predict

    def slowly(*args, **kwargs):
        mask = predict(*args, **kwargs)
        assert http.app.state.server.queue.cancel(http.headers[protocol.LEASE_HEADER]) == 1
        return mask

    with monkeypatch.context() as patched:
        patched.setattr(session, "predict", slowly)
        assert click(http, 1, 1, 1).status_code == 409
    assert session.prompts("1") == []
    buffer.take(click(http, 4, 5, 4))
    assert buffer.array.sum() == 125


def test_a_new_buffer_in_mid_object_gets_the_whole_mask_with_the_next_answer(http):
    load(http)
    Buffer().take(click(http, 4, 5, 4))
    body = {"shape": list(SHAPE), "dtype": "int16"}
    assert http.post("/set_target_buffer", json=body).is_success
    buffer = Buffer("int16")
    assert buffer.take(http.post("/predict", json={}))["ran_prediction"] is False
    buffer.take(click(http, 4, 5, 6))
    assert buffer.array.sum() == 5 * 5 * 7
    buffer.take(http.post("/undo", json={}))
    buffer.take(http.post("/undo", json={}))
    assert not buffer.array.any()


def test_voxels_outside_of_the_field_get_the_smallest_value(http, engine, caplog):
    """As the command line reads them; scans that were registered have NaN there."""
    image = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(1, *SHAPE) + 7
    image[0, :2] = np.nan
    answer = send(http, "/set_image", image, image_properties={"spacing": [1, 1, 1]})
    assert answer.is_success, answer.text
    assert "they are set to the smallest finite value" in caplog.text
    array = engine.sessions[0].volume.array
    assert (array[:2] == image[0, 2].min()).all()
    np.testing.assert_array_equal(array[2:], image[0, 2:])
    answer = send(http, "/set_image", np.full((1, *SHAPE), np.nan, np.float32))
    assert answer.status_code == 400
    assert "NaN or infinite" in answer.text


def test_only_numbers_count_as_drawn(http, engine):
    drawn = np.full((3, 3, 3), np.nan, np.float32)
    drawn[1, 1] = 1
    given = []
    for mask in (drawn, (drawn == 1).astype(np.uint8)):
        load(http)
        meta = {"interaction_bbox": [[2, 5], [2, 5], [2, 5]], "include_interaction": True}
        assert send(http, "/add_scribble_interaction", mask, **meta).is_success
        given.append(engine.sessions[-1].prompts("1"))
    assert given[0] == given[1] != []


def test_spacing_and_planes_reach_the_library(http, engine):
    load(http, spacing=[3, 1, 0.5])
    assert engine.sessions[0].volume.spacing_mm == (3, 1, 0.5)
    load(http)
    assert engine.sessions[0].volume.spacing_mm == guess_spacing(IMAGE)
    planar = np.arange(100, dtype=np.uint8).reshape(1, 1, 10, 10)
    assert send(http, "/set_image", planar, image_properties={"spacing": [0.5, 0.4]}).is_success
    volume = engine.sessions[0].volume
    assert volume.is_planar
    assert volume.spacing_mm == (1e8, 0.5, 0.4)


def refused(answer, *words):
    assert 400 <= answer.status_code < 500, answer.text
    for word in words:
        assert word in answer.json()["detail"]


def test_what_cannot_be_used_gets_a_sentence_and_changes_nothing(http, engine):
    refused(click(http, 1, 1, 1), "No volume")
    refused(http.post("/set_target_buffer", json={"shape": [1, 1, 1], "dtype": "bool"}), "volume")
    refused(send(http, "/add_lasso_interaction", np.ones(SHAPE, bool), include_interaction=True))
    refused(send(http, "/set_image", IMAGE, image_properties={"spacing": [1, 0, 1]}), "spacing")
    for spacing in ("x", [1, 5e-324, 1], [1e30, 1, 1], [10**400, 1, 1], [1, 1]):
        refused(send(http, "/set_image", IMAGE, image_properties={"spacing": spacing}), "spacing")
    refused(send(http, "/set_image", IMAGE[0]), "4")
    refused(send(http, "/set_image", IMAGE, image_properties=3), "image_properties")
    assert send(http, "/set_image", IMAGE).is_success
    refused(click(http, 1, 1, 1), "target buffer")
    for shape, dtype in [([9, 10], "bool"), ([9, 10, 12], "bool"), ([9, 10, 11], "float32")]:
        refused(http.post("/set_target_buffer", json={"shape": shape, "dtype": dtype}))
    too_large = http.post("/set_target_buffer", json={"shape": [2**20] * 3, "dtype": "bool"})
    assert too_large.status_code == 413
    load(http)
    buffer = Buffer()
    buffer.take(click(http, 4, 5, 4))
    before = engine.sessions[0].prompts("1")
    grid = "(voxels) is outside of the image's grid (9, 10, 11)"
    refused(click(http, 100, 5, 4), f"[100.0, 5.0, 4.0] {grid}")
    refused(http.post("/add_point_interaction", json={"coordinates": [1, 2]}))
    refused(click(http, 1, 2, 1e30))
    empty = {"bbox_coords": [[1, 1], [2, 3], [2, 3]], "include_interaction": True}
    refused(http.post("/add_bbox_interaction", json=empty), "no size")
    drawn = np.ones((2, 2, 2), np.uint8)
    for box in ([[0, 3], [0, 2], [0, 2]], [[8, 10], [0, 2], [0, 2]], [[-1, 1], [0, 2], [0, 2]]):
        answer = send(
            *(http, "/add_scribble_interaction", drawn),
            include_interaction=True,
            interaction_bbox=box,
        )
        refused(answer, "interaction_bbox")
    refused(send(http, "/add_scribble_interaction", drawn, include_interaction=True))
    nothing = np.zeros(SHAPE, np.uint8)
    refused(send(http, "/add_initial_seg_interaction", drawn), "grid")
    refused(send(http, "/add_scribble_interaction", nothing), "include_interaction")
    assert engine.sessions[0].prompts("1") == before
    buffer.take(http.post("/undo", json={}))
    assert not buffer.array.any()


def test_a_prediction_that_fails_leaves_no_prompt_behind(http, buffer, engine, monkeypatch):
    buffer.take(click(http, 4, 5, 4))

    def fail(*args, **kwargs):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(engine.sessions[0], "predict", fail)
        assert click(http, 1, 1, 1).status_code == 507
    assert len(engine.sessions[0].prompts("1")) == 1
    buffer.take(http.post("/undo", json={}))
    assert not buffer.array.any()


def test_prompts_are_limited_and_a_new_object_frees_them(http):
    load(http)
    for _ in range(50):
        assert click(http, 4, 5, 4, run=False).is_success
    refused(click(http, 4, 5, 4), "50 prompts")
    http.post("/reset_interactions", json={})
    assert click(http, 4, 5, 4).is_success


def test_unknown_fields_of_newer_clients_are_let_pass(http):
    load(http)
    body = {"coordinates": [4, 5, 6], "include_interaction": True, "novelty": {"a": 1}}
    assert http.post("/add_point_interaction", json=body).is_success
    assert http.post("/set_do_autozoom", json={"do_autozoom": False}).json() == {}


def test_requests_at_the_same_time_are_all_answered(http, engine):
    load(http)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda z: click(http, z, 5, 4), range(1, 9)))
    assert all(answer.status_code == 200 for answer in answers)
    assert len(engine.sessions[0].prompts("1")) == 8
    for _ in answers:
        assert json.loads(http.post("/undo", json={}).headers["X-Meta"])["ran_prediction"]
    assert engine.sessions[0].prompts("1") == []


def test_a_drawing_of_nothing_changes_nothing(http, buffer, engine):
    for kind in ("scribble", "lasso"):
        answer = send(
            *(http, f"/add_{kind}_interaction", np.zeros(SHAPE, np.uint8)), include_interaction=True
        )
        assert buffer.take(answer) == {"ran_prediction": True, "bbox": None}
    assert engine.sessions[0].prompts("1") == []
    buffer.take(click(http, 4, 5, 4))
    buffer.take(http.post("/undo", json={}))
    assert not buffer.array.any()


def test_a_click_just_outside_the_image_counts_at_its_border(http, buffer):
    buffer.take(click(http, -4, 5, 10.4))
    assert buffer.array[0, 5, 10]
    refused(click(http, -5, 5, 5), "outside")
