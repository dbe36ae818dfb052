"""`pumit train sam` tunes the slopes or the decoder of SAM, and what it makes answers clicks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from labelled_scans import write_pairs
from PIL import Image
from pumit.cli.main import main
from pumit.models.checkpoint import load_checkpoint

pytest.importorskip("transformers", reason="the optional extra `sam` is absent")

from pumit.inference.interactive.segmenter import load_segmenter
from sam_files import sam_file

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with weights of SAM beside it, and models of the test's own."""
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "models"))
    monkeypatch.chdir(tmp_path)
    sam_file(tmp_path / "sam_vit_b.pth")
    return tmp_path


def command(data: str, *more: str) -> list[str]:
    short = ["--steps", "2", "--device", "cpu", "-o", "run", "--data", data]
    return ["train", "sam", *short, *more]


@pytest.mark.parametrize("part", ["slopes", "decoder"])
def test_only_the_chosen_part_learns_and_the_model_answers(lab, part, capsys):
    write_pairs(lab / "set", 4)
    from pumit.training.recipes.reader import shipped_recipe

    text = shipped_recipe("sam").read_text().replace("part: decoder", f"part: {part}")
    (lab / "mine.yaml").write_text(text.replace("1.0e-4", "1.0e-1").replace("warm_up: 20", ""))
    given = command("set", "--initial", "sam_vit_b.pth")
    assert main(["train", "mine.yaml", *given[2:]]) == 0, capsys.readouterr().err
    # Started again, it resumes.
    assert main(["train", "mine.yaml", *given[2:], "--steps", "3"]) == 0, capsys.readouterr().err
    engine: Any = load_segmenter("sam_vit_b.pth", "cpu").engine
    before = {k: v.float() for k, v in engine.network.state_dict().items()}
    after = load_checkpoint(lab / "run" / "sam.safetensors").state
    changed = {k for k, v in after.items() if not torch.allclose(v.float(), before[k], atol=2e-3)}
    slopes = {k for k in after if k.endswith("slopes.beta")}
    decoder = {k for k in after if k.startswith("model.mask_decoder.")}
    assert changed & slopes
    assert changed <= slopes | (decoder if part == "decoder" else set())
    assert bool(changed & decoder) == (part == "decoder")
    rows = json.loads((lab / "run" / "validation.json").read_text())["rows"]
    assert rows
    assert all(0 <= row["clicks"][0] <= 1 for row in rows)
    assert "Dice" in (lab / "run" / "card.md").read_text()
    assert load_segmenter(lab / "run" / "sam.safetensors", "cpu").name == "sam"


def test_photographs_with_masks_are_learnt_from_at_another_size(lab, capsys):
    random = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        for folder in ("images", "labels"):
            (lab / "set" / folder).mkdir(parents=True, exist_ok=True)
        mask = np.zeros((40, 56), np.uint8)
        mask[10:25, 12:30] = 1
        pixels = random.integers(0, 120, (40, 56, 3), np.uint8)
        pixels[mask > 0, 0] += 100
        Image.fromarray(pixels).save(lab / "set" / "images" / f"{name}.png")
        Image.fromarray(mask).save(lab / "set" / "labels" / f"{name}.png")
    from pumit.training.recipes.reader import shipped_recipe

    text = shipped_recipe("sam").read_text().replace("# image_size: 2048", "image_size: 96")
    (lab / "mine.yaml").write_text(text)
    given = command("set", "--initial", "sam_vit_b.pth")
    assert main(["train", "mine.yaml", *given[2:]]) == 0, capsys.readouterr().err


def test_weights_are_asked_for_in_a_sentence(lab, capsys):
    write_pairs(lab / "set", 3)
    assert main(command("set")) == 2
    assert "SAM's weights do not ship; give --initial" in capsys.readouterr().err
    assert main(command("set", "--initial", "default")) == 2
    assert "is no SAM" in capsys.readouterr().err
    assert main(command("set", "--initial", "gone.pth")) == 2
    assert "There is no file gone.pth" in capsys.readouterr().err
