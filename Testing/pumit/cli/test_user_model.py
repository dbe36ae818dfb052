"""A lab's own model from the first scan to the last: trained, listed, used, handed on, and mute."""

import json
from pathlib import Path
from typing import Any

import pytest
import SimpleITK
import yaml
from labelled_scans import ball_and_box, write
from pumit.models.index import find_model, list_models
from pumit.models.user_index import register
from segmentation_runs import RECIPE

pytestmark = pytest.mark.usefixtures("blank_pictures")

# What must never leave the lab, as it stands in names of files and folders.
SECRETS = ("Doe^Jane", "Doe_Jane", "19610203", "1.2.840.113619.2.55.3", "ward_7")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of models, not there yet."""
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "home"))
    return tmp_path / "home"


def recipe_in(folder: Path, **changes: Any) -> Path:
    """A recipe whose cases, files and folder are named after patients, with three scans."""
    names = ["Doe^Jane_19610203", "1.2.840.113619.2.55.3", "Doe_Jane_2"]
    cases = []
    for i, name in enumerate(names):
        image, labels = ball_and_box(i)
        path = write(folder / "ward_7" / f"{name}.nii.gz", image)
        label = write(folder / "ward_7" / f"{name}_seg.nii.gz", labels)
        cases.append({"name": name, "image": str(path), "label": str(label)})
    ball = {"name": "ball", "value": 1, "terminology": "liver", "segments": ["liver of Doe^Jane"]}
    classes = [ball, {"name": "box", "value": 2}]
    recipe = {
        **RECIPE,
        "name": "lab",
        "data": {"cases": cases, "classes": classes, "validation": names[1:2]},
        "card": {"licence": "CC-BY-4.0"},
        "schedule": {"steps": 2, "log_every": 1, "warm_up": 1},
        **changes,
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return folder / "recipe.yaml"


def assert_tells_of_nobody(path: Path, *more: str) -> None:
    content = path.read_bytes()
    for secret in (*SECRETS, *more):
        for encoding in ("utf-8", "utf-16-le"):
            assert secret.encode(encoding) not in content, (path.name, secret)


@pytest.mark.slow
def test_a_trained_model_goes_its_whole_way(run, home, tmp_path):
    run("train", recipe_in(tmp_path), "-o", tmp_path / "out")
    status = json.loads((tmp_path / "out" / "status.json").read_text())
    assert (status["state"], status["registered"]) == ("finished", "lab")
    # It is listed, whole and used by its name.
    assert " here " in run("models", "list").out.splitlines()[-1]
    assert "verified" in run("models", "verify", "lab").out
    scan = tmp_path / "ward_7" / "Doe_Jane_2.nii.gz"
    run("predict", scan, "--model", "lab", "-o", tmp_path / "lab.nii.gz", "--overlap", 0)
    labels = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "lab.nii.gz")))
    assert labels.shape == ball_and_box(0)[1].shape
    # It continues from an own model, whose file tells whose it is.
    own = tmp_path / "Doe^Jane.safetensors"
    own.write_bytes(find_model("lab").read_bytes())
    second = recipe_in(tmp_path, initial=str(own), name="second")
    run("train", second, "-o", tmp_path / "two")
    # What leaves the lab tells of no one.
    for name in ("lab", "second"):
        run("models", "export", name, "-o", tmp_path / f"{name}.pumit.zip")
        assert_tells_of_nobody(tmp_path / f"{name}.pumit.zip", str(tmp_path))
    files = [path for path in home.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"index.yaml", "card.md", "card.json", "curves.png"}
    for path in files:
        assert_tells_of_nobody(path, str(tmp_path))
    last = tmp_path / "out" / "lab_last.safetensors"
    assert_tells_of_nobody(last, str(tmp_path))
    # Another machine takes it as it is.
    run("models", "remove", "lab")
    run("models", "import", tmp_path / "lab.pumit.zip")
    again = next(entry for entry in list_models() if entry.name == "lab")
    assert (again.origin, again.licence) == ("imported", "CC-BY-4.0")
    assert again.card_path.is_file()


def test_a_model_is_kept_to_itself_until_it_is_added(run, home, tmp_path):
    schedule = {"steps": 1, "log_every": 1}
    ran = run("train", recipe_in(tmp_path, register=False, schedule=schedule), "-o", tmp_path / "o")
    assert (tmp_path / "o" / "card.md").is_file()
    assert not home.exists()
    # As it is when a run was stopped after its first validation; its best can be added.
    for name in ("status.json", "validation.json", "card.md"):
        (tmp_path / "o" / name).unlink()
    ran = run("models", "add", tmp_path / "o", "--name", "early")
    assert ran.out == ("Added as early.\n")
    entry = next(entry for entry in list_models() if entry.name == "early")
    assert "measured one by one" in entry.card_path.read_text()


def test_the_name_that_another_one_replaces_is_told(run, home, tmp_path, tiny_checkpoint):
    for _ in range(2):
        assert run("models", "add", tiny_checkpoint, "--name", "early").out == "Added as early.\n"
    ran = run("models", "add", tiny_checkpoint, "--name", "late")
    assert ran.out == "Added as late, instead of early: the same training.\n"
    assert {"early", "late"} & {entry.name for entry in list_models()} == {"late"}


def test_a_run_without_a_model_cannot_be_added(refused, tmp_path):
    (tmp_path / "out").mkdir()
    assert "out has no model yet" in refused("models", "add", tmp_path / "out")
    assert "no checkpoint none" in refused("models", "add", tmp_path / "none.safetensors")


def test_an_own_promptable_model_is_clicked_with_by_name(
    run, refused, home, tmp_path, tiny_checkpoint, scan, inside
):
    assert register(tiny_checkpoint) == "tiny"
    target = tmp_path / "mask.nii.gz"
    run("segment", scan, "--point", inside, "--model", "tiny", "-o", target)
    assert target.is_file()
    find_model("tiny").unlink()
    text = refused("segment", scan, "--point", inside, "--model", "tiny", "-o", tmp_path / "b.nii")
    assert "import it again" in text
