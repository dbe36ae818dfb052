"""`pumit reconstruct` writes the reconstruction, the error, the figures and a plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
    recipe = {"name": "tiny", "version": "1", "network": "pumit_tokenizer", "sizes": SIZES}
    save_checkpoint(path, build_network("pumit_tokenizer", **SIZES).state_dict(), recipe)
    return path


def test_everything_is_written_beside_the_output(run: Any, scan: Path, tokenizer: Path) -> None:
    out = scan.with_name("back.nii.gz")
    ran = run("reconstruct", scan, "--model", tokenizer, "-o", out, "--json")
    assert ran.status == 0, ran.err
    image = SimpleITK.ReadImage(str(scan))
    back = SimpleITK.ReadImage(str(out))
    error = SimpleITK.ReadImage(str(out.with_name("back-error.nii.gz")))
    for written in (back, error):
        assert written.GetSize() == image.GetSize()
        np.testing.assert_allclose(written.GetDirection(), image.GetDirection(), atol=1e-5)
    a, b, e = map(SimpleITK.GetArrayFromImage, (image, back, error))
    assert np.median(np.abs(a + e - b)) < 1  # where nothing was clipped
    told = json.loads(out.with_name("back-tokens.json").read_text())
    assert len(told["shares"]) == 16
    assert sum(told["shares"]) == pytest.approx(1, abs=1e-4)
    assert json.loads(ran.out)["psnr_db"] == told["psnr_db"]
    for name in ("back-tokens.png", "back-picture.png"):
        assert Image.open(out.with_name(name)).size[0] > 500


def test_bad_input_ends_in_one_line(refused: Any, scan: Path, tokenizer: Path) -> None:
    out = scan.with_name("back.nii.gz")
    assert "No tokenizer is installed" in refused("reconstruct", scan, "-o", out)
    assert "reconstructs nothing" in refused("reconstruct", scan, "--model", "default", "-o", out)
    gif = scan.with_name("x.gif")
    assert "must end with" in refused("reconstruct", scan, "--model", tokenizer, "-o", gif)
    gone = scan.with_name("gone.nii")
    assert "no file" in refused("reconstruct", gone, "--model", tokenizer, "-o", out)
