"""The nnInteractive protocol's endpoints: what they refuse, bound, and let pass."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from pumit.preprocessing.guessed_spacing import guess_spacing
from viewer_requests import IMAGE, SHAPE, Buffer, click, load, send


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
