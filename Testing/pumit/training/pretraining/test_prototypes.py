"""Prototypes do not ship: where class vectors are trained already, theirs begin as the means."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pumit.models.checkpoint import save_checkpoint
from pumit.networks.build import build_network
from pumit.networks.pumit import Anisotropy
from pumit.training.loop.context import TrainingRun
from pumit.training.pretraining.promptable import (
    FEWEST_BATCHES,
    begin_prototypes,
    build,
    class_sums,
)
from pumit.training.promptable.task import PromptableTask
from pumit.training.recipes.model import read_model
from pumit.training.recipes.pretraining import PromptableRecipe
from pumit.training.recipes.reader import RecipeFile
from pumit.training.run.reporter import RunReporter, RunStopped
from pumit.training.run.resume_state import LAST
from pumit.training.synthesis.scene import UNKNOWN, generated_classes

CPU = torch.device("cpu")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches prototypes were made of, each time."""
    counts: list[int] = []

    def counted(task: PromptableTask, degrees: Sequence[int], seed: int = 0, **_: object) -> None:
        counts.append(len(degrees))

    monkeypatch.setattr("pumit.training.pretraining.promptable.begin_prototypes", counted)
    return counts


BATCHES = 35  # of four fields


def run_of(
    recipe: PromptableRecipe, folder: Path, reporter: RunReporter | None = None
) -> TrainingRun:
    file = RecipeFile({}, "recipe", folder)
    return TrainingRun(recipe, file, folder, CPU, 0, reporter or RunReporter())


def recipe_from(
    path: Path,
    sizes: dict[str, Any],
    *,
    class_channels: int,
    keeps_prototypes: bool,
    num_classes: int | None = None,
) -> PromptableRecipe:
    """A recipe that continues from such weights, with class vectors."""
    sizes = {**sizes, "widths": list(sizes["widths"])}
    own = {**sizes, "class_channels": class_channels}
    if class_channels:
        own["num_classes"] = num_classes or len(generated_classes())
    state = build_network("promptable", **own).state_dict()
    if not keeps_prototypes:
        state.pop("prototypes.weight", None)
    save_checkpoint(path, state, {"name": "t", "network": "promptable", "sizes": own})
    keys = {
        "network": "promptable",
        "network_sizes": {**sizes, "class_channels": 6},
        "initial": str(path),
        "generated_classes": True,
        "more_fields": 1,
        "field_sizes": {16: 1.0},
    }
    return read_model(PromptableRecipe, keys, "recipe")


@pytest.mark.parametrize(
    ("sizes", "keeps_prototypes", "goes_on", "expected"),
    [
        ({"class_channels": 6}, False, False, [BATCHES]),
        ({"class_channels": 6}, False, True, []),  # the run's own weights follow
        ({"class_channels": 6}, True, False, []),
        ({"class_channels": 6, "num_classes": 5}, True, False, [BATCHES]),  # of other classes
        ({"class_channels": 0}, False, False, []),  # vectors that no one trained mean nothing
    ],
)
def test_they_begin_as_means_where_vectors_are_trained(
    tmp_path, tiny_sizes, begun, sizes, keeps_prototypes, goes_on, expected
):
    recipe = recipe_from(
        tmp_path / "initial.safetensors", tiny_sizes, keeps_prototypes=keeps_prototypes, **sizes
    )
    if goes_on:
        (tmp_path / LAST).touch()
    build(recipe, run_of(recipe, tmp_path))
    assert begun == expected


def test_a_prototype_is_the_mean_of_its_vectors(tmp_path, tiny_sizes, begun):
    path = tmp_path / "initial.safetensors"
    recipe = recipe_from(path, tiny_sizes, class_channels=6, keeps_prototypes=False)
    recipe = recipe.model_copy(update={"batch_size": 1})
    task = build(recipe, run_of(recipe, tmp_path)).task
    prototypes = task.network.prototypes
    before = prototypes.weight.detach().clone()
    count, degrees = len(before), [2, 5]
    begin_prototypes(task, degrees, seed=1)
    # The same fields, one by one.
    generator, shared = (torch.Generator().manual_seed(1) for _ in range(2))
    sums, cells = torch.zeros_like(before), torch.zeros(count)
    for da0 in degrees:
        batch = task.draw(da0, generator, shared)
        for image, truth in ((batch.image, batch.classes), (batch.more, batch.more_classes)):
            for field, labels in zip(image, truth, strict=True):
                with torch.no_grad():
                    vectors = task.network.embed(field[None], Anisotropy(da0)).classes
                found, there = class_sums(vectors, labels[None], count)
                sums, cells = sums + found, cells + there
    assert (cells > 0).any()
    expected = torch.where(cells[:, None] > 0, sums / cells[:, None].clamp_min(1e-9), before)
    torch.testing.assert_close(prototypes.weight.detach(), expected, atol=1e-4, rtol=1e-3)


def test_sums_are_over_the_cells_of_each_class():
    vectors = torch.randn(1, 3, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    truth = torch.tensor([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, UNKNOWN, 0], [2, 2, 0, UNKNOWN]])
    sums, cells = class_sums(vectors, truth[None, None], 4)
    a, b, c, d = vectors[0, :, 0].flatten(1).T
    torch.testing.assert_close(sums, torch.stack([a + d / 2, b, c, torch.zeros(3)]))
    torch.testing.assert_close(cells, torch.tensor([1.5, 1.0, 1.0, 0.0]))


def test_a_short_run_says_what_it_prepares_and_can_be_stopped_there(tmp_path, tiny_sizes, begun):
    recipe = recipe_from(
        tmp_path / "initial.safetensors", tiny_sizes, class_channels=6, keeps_prototypes=False
    )
    short = recipe.model_copy(update={"schedule": recipe.schedule.model_copy(update={"steps": 2})})
    folder = tmp_path / "run"
    folder.mkdir()
    task = build(short, run_of(short, folder, RunReporter(folder))).task
    assert begun == [FEWEST_BATCHES]
    assert "The class vectors start from 6 batches" in (folder / "log.txt").read_text()

    def stop() -> None:
        raise RunStopped

    with pytest.raises(RunStopped):
        begin_prototypes(task, [0] * 1000, check=stop)
