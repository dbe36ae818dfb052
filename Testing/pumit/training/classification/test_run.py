"""`pumit train` of a classifier learns, keeps the best, resumes, and says what is wrong."""

import csv
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import made_classifier
import numpy as np
import pytest
import SimpleITK
import torch
import yaml
from pumit.errors import CheckpointError, DiskFullError, PumitError, TrainingError
from pumit.inference.automatic.classifier import load_classifier
from pumit.models.checkpoint import load_checkpoint, read_recipe, save_checkpoint
from pumit.networks.build import build_network
from pumit.runs import read_log
from pumit.training.classification import run as classification_run
from pumit.training.classification.run import plan_of, read_data
from pumit.training.loop.step import Step
from pumit.training.model_card.write import write_card
from pumit.training.recipes.classification import ClassificationRecipe
from pumit.training.recipes.model import read_model
from pumit.training.recipes.reader import read_yaml
from pumit.training.train import finetune
from pumit.volume import Volume
from safetensors.torch import load_file

pytestmark = pytest.mark.usefixtures("blank_pictures")

SIZES = {k: v for k, v in made_classifier.SIZES.items() if k != "position_table"}
RECIPE: dict[str, Any] = {
    "task": "classification",
    "name": "made",
    "version": "7",
    "network": "pumit_classifier_small",
    "network_sizes": SIZES,
    "data": {"file": "set.npz"},
    "image_size": [8, 8, 8],
    "batch_size": 8,
    "device": "cpu",
    "threads": 1,
    "schedule": {
        "steps": 40,
        "learning_rate": 3e-3,
        "warm_up": 4,
        "average": 0.8,
        "validate_every": 8,
        "precision": "fp32",
    },
}


def bright_or_dark(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Noise whose level tells the class."""
    labels = np.arange(count) % 2
    images = rng.integers(0, 60, (count, 8, 8, 8)) + 190 * labels[:, None, None, None]
    return images.astype(np.uint8), labels[:, None]


def write_set(folder: Path) -> Path:
    """Write the images of all splits; returns the folder."""
    content, rng = {}, np.random.default_rng(0)
    for split, count in (("train", 24), ("val", 8), ("test", 8)):
        content[f"{split}_images"], content[f"{split}_labels"] = bright_or_dark(count, rng)
    np.savez(folder / "set.npz", **content)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_set(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of a whole run, whose folder no one changes."""
    return run(write_set(tmp_path_factory.mktemp("trained")))


def write(folder: Path, changes: Mapping[str, Any]) -> Path:
    path = folder / "recipe.yaml"
    recipe = {k: v for k, v in {**RECIPE, **changes}.items() if v is not None}
    path.write_text(yaml.safe_dump(recipe))
    return path


def run(folder: Path, name: str = "out", seconds: float | None = None, **changes: Any) -> Path:
    overrides = {} if seconds is None else {"seconds": seconds}
    return finetune(write(folder, changes), folder / name, changes={"schedule": overrides})


def test_a_classifier_learns_and_the_best_is_kept_with_its_measures(trained):
    path = trained
    assert (path.parent.name, path.name) == ("out", "made.safetensors")
    log = read_log(path.parent)[0]
    assert log[0] == {
        "classes": ["0", "1"],
        "cases": {"train": [12, 12], "val": [4, 4], "test": [4, 4]},
    }
    scores = {r["step"]: r["validation"]["score"] for r in log if "validation" in r}
    assert list(scores) == [8, 16, 24, 32, 40]
    recipe, _ = read_recipe(path)
    assert recipe["kind"] == "classifier"
    assert recipe["step"] == max(scores, key=lambda step: scores[step])
    test = recipe["metrics"]["test"]
    assert (test["auc"], test["accuracy"]) == (1.0, 1.0)
    assert log[-2]["test"] == test
    with (path.parent / "answers.csv").open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["split"] for row in rows] == ["val"] * 8 + ["test"] * 8
    assert all((float(row["1"]) > 0.5) == (row["truth"] == "1") for row in rows[8:])
    model = load_classifier(path, device="cpu")
    likely = model.classify(Volume(np.full((8, 8, 8), 220, np.uint8))).probabilities
    assert likely["1"] > 0.6


@pytest.mark.parametrize("place", ["_write_answers", "save_checkpoint"])
def test_a_disk_that_is_full_at_the_end_is_waited_for(folder, swift, monkeypatch, place):
    monkeypatch.setattr("pumit.training.run.reporter.ROOM_TRY_SECONDS", 0.1)
    work, tried = getattr(classification_run, place), []

    def full_at_first(*given: Any) -> Any:
        tried.append(given)
        if len(tried) == 1:
            raise DiskFullError("The disk is full.")
        return work(*given)

    monkeypatch.setattr(classification_run, place, full_at_first)
    path = run(folder, schedule={**RECIPE["schedule"], "steps": 1})
    assert len(tried) == 2
    assert "test" in read_recipe(path)[0]["metrics"]


@pytest.mark.slow
def test_a_stopped_run_goes_on_as_if_it_had_not(trained, folder):
    for _ in range(3):
        run(folder, "parts", seconds=0.0)
    run(folder, "parts")
    runs = (trained.parent, folder / "parts")
    whole, parts = (load_file(each / "last.safetensors") for each in runs)
    torch.testing.assert_close(parts, whole, rtol=0, atol=0)
    found = [
        {r["step"]: r["validation"] for r in read_log(each)[0] if "validation" in r}
        for each in runs
    ]
    assert {1, 2, 3} < found[1].keys()  # each part ends with a validation
    assert found[0].items() <= found[1].items()


def test_a_rate_that_diverges_is_left_out_and_the_others_are_trained(folder, monkeypatch):
    taken = Step._gradients_everywhere

    def diverging(step: Step) -> Any:
        losses, cases = taken(step)
        return losses * (float("nan") if step.run.schedule.learning_rate > 0.1 else 1.0), cases

    monkeypatch.setattr(Step, "_gradients_everywhere", diverging)
    path = run(folder, learning_rates=[0.9, 3e-3])
    assert read_recipe(path)[0]["training"]["learning_rate"] == 0.003
    (event,) = [r for r in read_log(path.parent)[0] if r.get("event") == "diverged"]
    assert event["learning_rate"] == 0.9
    assert event["sentence"] == "The learning rate 0.9 diverges and is left out."
    with pytest.raises(TrainingError, match=r"Step 1: the loss .* lower learning_rate"):
        run(folder, "none", learning_rates=[0.9, 0.8])


def test_a_folder_per_class_is_learned_from(tmp_path, rng):
    images, labels = bright_or_dark(20, rng)
    for i, (image, label) in enumerate(zip(images, labels.ravel(), strict=True)):
        inner = tmp_path / "scans" / ("dark", "bright")[label]
        inner.mkdir(parents=True, exist_ok=True)
        file = inner / f"doe_jane_{i}.nii.gz"
        SimpleITK.WriteImage(SimpleITK.GetImageFromArray(image[:6]), str(file))
    intensity = {"method": "range", "source": [0, 255]}
    # Of several rates the best is kept.
    path = run(tmp_path, data={"folder": "scans"}, intensity=intensity, learning_rates=[1e-9, 3e-3])
    out = path.parent
    model = load_classifier(path, device="cpu")
    assert model.classes == ("bright", "dark")
    assert model.classify(Volume.read(file)).most_probable == "bright"
    recipe, _ = read_recipe(path)
    assert recipe["metrics"]["test"]["auc"] == 1.0
    assert recipe["training"]["learning_rate"] == 0.003
    assert {"prepared", "rate_1e-09", "rate_0.003"} <= {p.name for p in out.iterdir()}
    # If scans are added, the same ones are tested on when the run is resumed.
    shutil.copy(file, file.with_name("doe_john_1.nii.gz"))
    followed = read_model(
        ClassificationRecipe, yaml.safe_load((out / "recipe.yaml").read_text()), "it"
    )
    again = read_data(followed, Path)
    with (out / "answers.csv").open() as table:
        tested = [row["case"] for row in csv.DictReader(table)]
    assert [*again.splits["val"].names, *again.splits["test"].names] == tested
    assert len(again.splits["train"]) == 13
    file.with_name("doe_john_1.nii.gz").unlink()
    first = tmp_path / "scans" / tested[0]
    first.rename(tmp_path / "away.nii.gz")
    with pytest.raises(PumitError, match=f"split names '{tested[0]}', which is no scan"):
        read_data(followed, Path)
    (tmp_path / "away.nii.gz").rename(first)
    # The card tells of each class and names no one, also when the images are gone.
    for right, of_dark in (("1.000", "1.000"), ("0.750", "0.667")):
        text = write_card(out, path).read_text()
        for part in (
            "Tells apart bright, dark.",
            "Measured on 4 validation cases, which were not used for training.",
            "Measured on 4 test cases, which were not used for training.",
            f"| right | {right} [",
            f"| right of dark | {of_dark} [",
            "![Losses",
        ):
            assert part in text, part
        assert "chosen by the very cases" not in text  # there are test cases
        images_there = (tmp_path / "scans").is_dir()
        assert ("SHA-256 over the fingerprints of all cases" in text) == images_there
        assert b"jane" not in (out / "card.md").read_bytes() + (out / "card.json").read_bytes()
        numbers = json.loads((out / "case_numbers.json").read_text())
        assert len(numbers) == (20 if images_there else 8)
        assert ("20 cases: " in text) == ("12 for training" in text) == images_there
        shutil.rmtree(tmp_path / "scans", ignore_errors=True)
        answers = out / "answers.csv"  # one of the four turns out to be dark
        wrong = re.sub("(?m)^(val,.*,)bright,", r"\1dark,", answers.read_text(), count=1)
        answers.write_text(wrong)


def test_an_image_in_two_splits_is_reported(tmp_path, rng):
    images, labels = bright_or_dark(6, rng)
    for split in ("train", "val", "test"):
        for i, (image, label) in enumerate(zip(images, labels.ravel(), strict=True)):
            inner = tmp_path / "scans" / split / ("dark", "bright")[label]
            inner.mkdir(parents=True, exist_ok=True)
            own = image if (split, i) == ("val", 0) or split == "train" else image ^ (7 + i)
            own = own ^ 1 if split == "test" else own
            file = inner / f"{split}{'abcdef'[i]}.nii.gz"
            SimpleITK.WriteImage(SimpleITK.GetImageFromArray(own), str(file))
    run(tmp_path, data={"folder": "scans"}, schedule={**RECIPE["schedule"], "steps": 1})
    (copy,) = (r["sentence"] for r in read_log(tmp_path / "out")[0] if r.get("event") == "copies")
    assert copy == (
        "Look at this: images in several splits: val/dark/vala.nii.gz is train/dark/traina.nii.gz."
    )


def test_training_begins_with_a_pre_trained_encoder(folder):
    sizes = {k: v for k, v in SIZES.items() if k != "fixed_patch"}
    sizes |= {"patch_halvings": 2, "position_table": [2, 2, 2], "num_tokens": 8}
    torch.manual_seed(5)
    state = build_network("pumit_vit_small_mim", **sizes).state_dict()
    recipe = {"network": "pumit_vit_small_mim", "sizes": sizes}
    encoder = folder / "encoder.safetensors"
    save_checkpoint(encoder, {k: v.half() for k, v in state.items()}, recipe)
    still = {"steps": 1, "learning_rate": 0.0}
    path = run(folder, initial="encoder.safetensors", schedule=still)
    name = "vit.blocks.0.mlp.w1.weight"
    torch.testing.assert_close(load_checkpoint(path).state[name], state[name].half())
    with pytest.raises(CheckpointError, match=r"initial encoder\.safetensors does not fit"):
        run(folder, "other", initial=str(encoder), network_sizes={**SIZES, "dim": 24})
    with pytest.raises(CheckpointError, match="'pumit_classifier_small'; give a universal ViT"):
        run(folder, "wrong", initial=str(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": 3}, "did you mean 'epochs'"),
        ({"data": None}, "either file"),
        ({"data": {"file": "absent.npz"}}, "There is no 'absent.npz'"),
        ({"data": {"file": "set.npz", "classes": ["a", "a"]}}, "a name twice"),
        ({"data": {"file": "set.npz", "classes": ["a"]}}, "2 classes, but the recipe names 1"),
        ({"network": "pumit_vit_b_mim"}, "is no classifier"),
        ({"network_sizes": {"width": 3}}, "no size 'width'"),
        ({"network_sizes": {**SIZES, "fixed_patch": None}}, "patch is fixed"),
        ({"data": {"file": "set.npz", "split": {"val": 0.2}}}, "leave split out"),
        ({"image_size": [8, 8]}, "image_size in recipe.yaml must have at least 3"),
        ({"image_size": [8, 8, 9]}, "no multiple of the network's patch"),
        ({"drop_epochs": [0]}, "drop_epochs, number 1 in recipe.yaml must be at least 1"),
        ({"intensity": {"method": "magic"}}, "method in intensity must be"),
        ({"epochs": 2}, "both epochs and steps"),
        ({"initial": "a", "eva02": "b"}, "initial and with eva02"),
        ({"initial": "absent.safetensors"}, r"no checkpoint absent\.safetensors"),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused(folder, changes, message):
    with pytest.raises(PumitError, match=message) as caught:
        run(folder, **changes)
    assert "\n" not in str(caught.value)
    assert str(folder) not in str(caught.value)
    assert not (folder / "out").exists()


def test_epochs_become_steps():
    given = {"epochs": 100, "drop_epochs": [50, 75], "learning_rates": [1e-5, 1e-4]}
    recipe = read_model(ClassificationRecipe, {**given, "data": {"folder": "scans"}}, "")
    plan = plan_of(recipe, 1188, processes=1)
    assert recipe.batch_size == 32
    first, second = plan
    assert (first.learning_rate, second.learning_rate) == (1e-5, 1e-4)
    assert first.steps == 100 * 38
    assert first.validate_every == 38
    before, after, last = (first.rate_at(step) for step in (50 * 38 - 1, 50 * 38, 75 * 38))
    assert after == pytest.approx(before / 10)
    assert last == pytest.approx(before / 100)
    # Fewer batches hold every case where several processes draw.
    assert plan_of(recipe, 1188, processes=4)[0].steps == 100 * 10


def test_every_epoch_ends_with_a_validation_unless_the_recipe_says_otherwise(folder):
    rates = {"learning_rate": 3e-3, "warm_up": 4, "average": 0.8}
    for name, schedule, steps in (
        ("each", rates, [3, 6, 9]),
        ("rarely", {**rates, "validate_every": 7}, [7, 9]),
    ):
        path = run(folder, name, epochs=3, schedule=schedule)
        assert [r["step"] for r in read_log(path.parent)[0] if "validation" in r] == steps
        # By the recipe that the run keeps, too.
        kept = read_yaml(path.parent / "recipe.yaml")["schedule"]
        assert ("validate_every" in kept, "steps" in kept) == (name == "rarely", False)
    finetune(folder / "recipe.yaml", folder / "short", changes={"schedule": {"steps": 2}})
    assert max(r["step"] for r in read_log(folder / "short")[0] if "validation" in r) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("classification", {"learning_rates": [1e-3]}),
        # One rate of the grid, two of twelve blocks, narrow, and 8 of 1000 patches.
        (
            "pumit_medmnist",
            {
                "learning_rates": [1e-5],
                "workers": 0,
                "network_sizes": {"depth": 2, "dim": 48, "num_heads": 2, "hidden": 64},
                "image_size": [32, 32, 32],
            },
        ),
    ],
)
def test_shipped_recipes_start(name, changes, folder, monkeypatch):
    from pumit.training import train as module

    path = Path(module.__file__).with_name("recipes") / f"{name}.yaml"
    recipe = {**yaml.safe_load(path.read_text()), **changes, "batch_size": 2}
    monkeypatch.setattr("pumit.training.recipes.reader.read_yaml", lambda _: recipe)
    data = {"file": str(folder / "set.npz")}
    made = finetune(
        path, folder / "out", changes={"data": data, "schedule": {"steps": 1}}, device="cpu"
    )
    assert read_recipe(made)[0]["metrics"].keys() == {"val", "test"}
    assert load_classifier(made, device="cpu").form.factor == 1.0
