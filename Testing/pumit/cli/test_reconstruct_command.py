"""`pumit reconstruct` writes the reconstruction, the error, the figures and a plot."""

import json
from pathlib import Path

import numpy as np
import pytest
import SimpleITK
import torch
from PIL import Image
from pumit.models.checkpoint import save_checkpoint
from pumit.networks.build import build_network

SIZES = {"widths": [4, 8, 8], "num_tokens": 16, "groups": 2}


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "tiny.safetensors"
    usual = {"usual": [-1.0, 0.0, 1.0], "weight": [2.0, 0.0]}
    reference = {
        "psnr_db": [28.0, 33.0],
        "usual_shares": [1 / 16] * 16,
        "familiarity": {"bias": 1.0, "figures": {"fineness": usual, "slice_step": usual}},
    }
    recipe = {
        "name": "tiny",
        "version": "1",
        "network": "pumit_tokenizer",
        "sizes": SIZES,
        "reference": reference,
    }
    save_checkpoint(path, build_network("pumit_tokenizer", **SIZES).state_dict(), recipe)
    return path


def test_everything_is_written_next_to_the_output(run, scan, tokenizer):
    out = scan.with_name("back.nii.gz")
    ran = run("reconstruct", scan, "--model", tokenizer, "-o", out, "--json")
    image = SimpleITK.ReadImage(str(scan))
    back = SimpleITK.ReadImage(str(out))
    error = SimpleITK.ReadImage(str(out.with_name("back-error.nii.gz")))
    for written in (back, error):
        assert written.GetSize() == image.GetSize()
        np.testing.assert_allclose(written.GetDirection(), image.GetDirection(), atol=1e-5)
    a, b, e = map(SimpleITK.GetArrayFromImage, (image, back, error))
    assert np.median(np.abs(a + e - b)) < 1  # where nothing was clipped
    figures = json.loads(out.with_name("back-tokens.json").read_text())
    assert len(figures["shares"]) == 16
    assert sum(figures["shares"]) == pytest.approx(1, abs=1e-4)
    assert json.loads(ran.out)["psnr_db"] == figures["psnr_db"]
    assert 0 <= figures["familiarity"]["score"] <= 100
    assert {part["name"] for part in figures["familiarity"]["parts"]} == {"fineness", "slice_step"}
    assert figures["sentence"].startswith(("Familiar", "Partly familiar", "Unfamiliar"))
    for name in ("back-tokens.png", "back-picture.png"):
        assert Image.open(out.with_name(name)).size[0] > 500


def written(path: Path, array: np.ndarray) -> Path:
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(array, isVector=False), str(path))
    return path


def test_odd_images_are_answered_or_refused_in_one_line(run, refused, tmp_path, tokenizer):
    rng = np.random.default_rng(0)
    out = tmp_path / "back.nii.gz"
    options = ("--model", tokenizer, "-o", out)
    flat = written(tmp_path / "flat.nii.gz", np.full((4, 20, 20), 3, dtype=np.int16))
    assert "same value (3)" in refused("reconstruct", flat, *options)
    assert not list(tmp_path.glob("back*"))
    noise = rng.normal(size=(4, 20, 20)).astype(np.float32)
    noise[0, 0, :5] = np.nan  # outside of a registered scan's field
    films = rng.normal(size=(3, 2, 16, 17)).astype(np.float32)  # (time, D, H, W)
    Image.fromarray(rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(tmp_path / "rgb.png")
    for path, shape in (
        (written(tmp_path / "nan.nii.gz", noise), (4, 20, 20)),
        (written(tmp_path / "tiny.nii.gz", noise[1:3, :3, :5]), (2, 3, 5)),
        (written(tmp_path / "film.nii.gz", films), (2, 16, 17)),
        (tmp_path / "rgb.png", (40, 50)),
    ):
        ran = run("reconstruct", path, *options)
        back = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(out)))
        assert back.shape == shape
        assert np.isfinite(back).all()
        assert "too small" in ran.out  # fewer cells than figures can be trusted of
    assert "no channel 7" in refused(
        "reconstruct", tmp_path / "film.nii.gz", "--channel", "7", *options
    )


def test_bad_input_ends_in_one_line(refused, scan, tokenizer):
    out = scan.with_name("back.nii.gz")
    assert "reconstructs nothing" in refused("reconstruct", scan, "--model", "default", "-o", out)
    gif = scan.with_name("x.gif")
    assert "must end with" in refused("reconstruct", scan, "--model", tokenizer, "-o", gif)
    gone = scan.with_name("gone.nii")
    assert "another name" in refused("reconstruct", scan, "--model", tokenizer, "-o", scan)
    assert "no file" in refused("reconstruct", gone, "--model", tokenizer, "-o", out)
