"""A pre-training recipe of each kind that ships takes its first steps in an empty folder.

Networks, crops and batches are shrunk. Recipes name no folder: what learns from real scans only is
given a folder, and says so without one.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from labelled_scans import write
from pumit.cli.main import main
from pumit.errors import PumitError
from pumit.runs import read_log
from pumit.training.pretrain import pretrain
from pumit.training.recipes.reader import read_yaml, recipe_folder, shipped_recipe

pytestmark = pytest.mark.usefixtures("blank_pictures")

VIT = {"dim": 16, "depth": 2, "num_heads": 2, "hidden": 24, "position_table": [1, 2, 2]}
HYMAMBA = {"stem_width": 4, "widths": [6, 6, 6, 12], "depths": [1] * 4, "num_layers": 1}
MAMBA = {**HYMAMBA, "state": 2, "dt_rank": 1, "decoder_widths": [8, 8, 4, 4, 4]}
SWIN = {
    "feature_size": 12,
    "depths": [1] * 4,
    "num_heads": [1] * 4,
    "contrast_size": 8,
    "window_size": 3,
}
TOKENIZER = {"widths": [8, 8, 16], "groups": 4}
CLICKS = {"widths": [8, 8, 16], "dim": 24, "depth": 1, "num_heads": 2, "field_size": 16}
# The others are these with other numbers: `test_model.py` reads all.
SIZES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("tokenizer", "pumit_tokenizer"), TOKENIZER),
    **dict.fromkeys(("vit", "pumit_vit"), VIT),
    "mamba_mim": MAMBA,
    "swin_ssl_small": SWIN,
    **dict.fromkeys(("default", "research"), CLICKS),
}
REAL_ONLY = {"pumit_tokenizer", "pumit_vit", "mamba_mim", "swin_ssl_small"}


@pytest.mark.parametrize("path", sorted(recipe_folder().glob("*.yaml")), ids=lambda p: p.stem)
def test_no_recipe_names_a_folder_beside_its_own(path):
    text = path.read_text()
    assert "../" not in text
    assert not {"real_folder", "real_cases", "real_images", "label_maps"} & set(read_yaml(path))


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("a.nii.gz", "deeper/b.nii.gz"):
        image = rng.integers(1, 900, (40, 48, 48)).astype(np.int16)
        write(tmp_path / "mine" / name, image, (1.0, 1.0, 1.0))
    return tmp_path / "mine"


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_it_takes_two_steps(name, scans, tmp_path, monkeypatch):
    """From generated scans, and from one's own where the recipe needs them, or can use them."""
    on_own = name in (*REAL_ONLY, "vit", "default")
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    recipe = read_yaml(shipped_recipe(name))
    own = dict(recipe.get("network_sizes", {}))
    recipe |= {"network_sizes": {**own, **SIZES[name]}, "batch_size": 2, "device": "cpu"}
    recipe |= {"threads": 1, "workers": 0}
    if SIZES[name] is CLICKS:
        recipe |= {"field_sizes": {16: 1.0}}
        del recipe["initial"]
    else:
        recipe["crop"] = {"depth": 32, "in_plane": 64 if "swin" in name else 32}
    for key in ("eva02", "perceptual", "cache"):  # files that do not ship; the last one is made
        recipe.pop(key, None)
    if "discriminator_sizes" in recipe or recipe.get("discriminator"):
        recipe["discriminator_sizes"] = {"widths": [4, 8, 8], "groups": 4}
    if "tokenizer" in recipe:
        recipe["tokenizer"] = "tokenizer"
    recipe["schedule"] |= {"log_every": 1, "precision": "fp32"}
    path = tmp_path / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    if name in REAL_ONLY:
        with pytest.raises(PumitError, match="give their folder with --on"):
            pretrain(path, empty / "run", changes={"schedule": {"steps": 2}})
    on = ["--on", str(scans)] if on_own else []
    assert main(["pretrain", str(path), "-o", "run", "--steps", "2", *on]) == 0

    log, _ = read_log(empty / "run")
    assert [line["step"] for line in log if "loss" in line] == [1, 2]
