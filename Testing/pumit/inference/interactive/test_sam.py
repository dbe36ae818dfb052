"""SAM's public weights give the same network, and answer clicks and boxes through the session."""

from pathlib import Path
from typing import Any

import numpy as np
import pumit
import pytest
import torch
from PIL import Image
from pumit.cli.main import main
from pumit.errors import CheckpointError, PumitError
from pumit.prompts import BoxPrompt
from pumit.volume import Volume

pytest.importorskip("transformers", reason="the optional extra `sam` is absent")

from pumit.inference.interactive.segmenter import load_segmenter
from pumit.networks.build import build_network
from pumit.networks.sam_names import named, sam_sizes
from safetensors.torch import save_file
from sam_files import SIZES, public_state, sam_file


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    sam_file(tmp_path / "sam_vit_b.pth")
    return tmp_path / "sam_vit_b.pth"


def scan() -> Volume:
    array = np.random.default_rng(0).normal(size=(6, 40, 60)).astype(np.float32)
    return Volume(array, (3.0, 1.0, 1.0))


@pytest.mark.parametrize(("depth", "heads", "dim", "count"), [
    (12, 12, 768, 314), (24, 16, 1024, 482), (32, 16, 1280, 594),
])  # fmt: skip
def test_the_names_are_those_of_the_published_files(depth, heads, dim, count):
    """ViT-B, L and H of segment-anything have this many tensors, and give their own sizes."""
    ends = [depth // 4 * i - 1 for i in range(1, 5)]
    sizes = {"dim": dim, "depth": depth, "num_heads": heads, "hidden": 4 * dim}
    with torch.device("meta"):
        network = build_network("sam", **sizes, global_blocks=ends)
    state = public_state(network)
    assert len(state) == count
    again = named(state)
    found = sam_sizes(again)
    assert {k: found[k] for k in sizes} == sizes
    assert (found["global_blocks"], found["image_size"], found["window"]) == (ends, 1024, 14)


def test_a_public_file_gives_the_network_it_was_written_from(tmp_path):
    network = sam_file(tmp_path / "sam.pth")
    segmenter = load_segmenter(tmp_path / "sam.pth", "cpu")
    ours: Any = segmenter.engine
    state = network.state_dict()
    assert all(torch.equal(v, state[k]) for k, v in ours.network.state_dict().items())
    assert (segmenter.name, segmenter.field_size) == ("sam", SIZES["image_size"])


def test_a_click_answers_its_slice_and_a_box_all_that_it_meets(weights):
    volume = scan()
    session = pumit.InteractiveSession(load_segmenter(weights, "cpu"))
    session.set_volume(volume)
    point = tuple(volume.index_to_world((2, 20, 30)).tolist())
    session.add_point(point)
    mask = session.predict()
    assert mask.shape == volume.shape
    assert not np.delete(mask, 2, axis=0).any()
    session.reset()
    corners = volume.index_to_world([(1, 8, 8), (4, 30, 50)])
    session.add_prompt(BoxPrompt.from_bounds(tuple(corners[0]), tuple(corners[1])))
    first = session.predict()
    assert set(np.flatnonzero(first.any((1, 2)))) <= {1, 2, 3, 4}
    # A correction changes the slice that it lies on, and undo brings the answer back.
    session.add_point(point, positive=False)
    second = session.predict()
    assert np.array_equal(np.delete(first, 2, axis=0), np.delete(second, 2, axis=0))
    session.undo()
    assert np.array_equal(session.predict(), first)
    session.sleep()
    assert np.array_equal(session.predict(), first)


def test_a_photograph_is_segmented_by_the_command_line_at_any_size(weights, tmp_path, capsys):
    pixels = np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    photo, out = str(tmp_path / "photo.png"), str(tmp_path / "mask.nii.gz")
    spans = Volume.read(photo)
    middle = spans.index_to_world((0, 24, 32))
    point = f"--point={-middle[0]},{-middle[1]},{middle[2]}"
    command = ["segment", photo, "--model", str(weights), point, "--device", "cpu", "-o", out]
    for size in ([], ["--size", "128"]):
        status = main([*command, *size])
        said = capsys.readouterr().err
        assert status == 0 or "finds nothing there" in said, said
    assert main([*command, "--size", "100"]) == 2
    assert "--size must be a multiple of 16" in capsys.readouterr().err


def test_it_enters_the_list_of_models_and_is_used_by_name(weights, tmp_path, monkeypatch):
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "models"))
    from pumit.models.card import installed_models
    from pumit.models.index import list_models

    assert main(["models", "add", str(weights), "--name", "sam-b"]) == 0
    assert list_models()[-1].origin == "imported"
    card = next(card for card in installed_models() if card.name == "sam-b")
    assert card.kind == "promptable"
    segmenter, own = load_segmenter("sam-b", "cpu"), load_segmenter(weights, "cpu")
    assert segmenter.sha256 == own.sha256


def test_a_folder_of_the_transformers_package_gives_the_name(tmp_path):
    folder = tmp_path / "sam-vit-base"
    folder.mkdir()
    save_file(public_state(sam_file(tmp_path / "sam.pth")), folder / "model.safetensors")
    assert load_segmenter(folder, "cpu").name == "sam-vit-base"


def test_what_is_not_sam_is_refused_in_a_sentence(tmp_path):
    torch.save({"a.weight": torch.zeros(2)}, tmp_path / "other.pth")
    with pytest.raises(CheckpointError, match="no promptable network"):
        load_segmenter(tmp_path / "other.pth", "cpu")
    with pytest.raises(PumitError, match="--size is only for SAM"):
        load_segmenter("default", "cpu", size=2048)
    network = sam_file(tmp_path / "whole.pth")
    state = public_state(network)
    del state["mask_decoder.iou_token.weight"]
    torch.save(state, tmp_path / "part.pth")
    with pytest.raises(CheckpointError, match="is not whole: 1 weights"):
        load_segmenter(tmp_path / "part.pth", "cpu")
