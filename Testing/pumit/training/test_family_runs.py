"""Every family trains, predicts and is judged on thick slices and on images."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from family_runs import KINDS, TINY, Kind, made, recipe_for, train, write_set
from pumit.cli.main import main
from pumit.export.labelmap import write_labels
from pumit.inference.automatic.segmentation import load_automatic
from pumit.models.checkpoint import read_recipe
from pumit.networks.build import build_network
from pumit.training.model_card import write as run_card
from pumit.training.segmentation import run as segmentation_run
from pumit.volume import Volume


@dataclass
class Run:
    """A network that `pumit train` has made."""

    network: str
    kind: str
    model: Path

    @property
    def scans(self) -> Kind:
        return KINDS[self.kind]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three cases of each kind."""
    folder = tmp_path_factory.mktemp("sets")
    return {name: write_set(folder / name, kind) for name, kind in KINDS.items()}


@pytest.fixture(scope="module", autouse=True)
def undrawn() -> Iterator[None]:
    """Cards and pictures are those of any run, and take longer than these trainings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_card, "write_card", lambda folder, best: None)
        patch.setattr(segmentation_run, "OverlayPictures", lambda *rest: lambda *answer: None)
        yield


@pytest.fixture(
    scope="module",
    params=[(name, kind) for name in TINY for kind in KINDS],
    ids=lambda pair: "-".join(pair),
)
def run(
    request: pytest.FixtureRequest, sets: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """A training of one step."""
    name, kind = request.param
    folder = tmp_path_factory.mktemp(f"{name}_{kind}")
    return Run(name, kind, train(folder, recipe_for(name, sets[kind], KINDS[kind])))


def test_checkpoint_says_what_it_is_and_fits_the_data(run: Run) -> None:
    recipe, _ = read_recipe(run.model)
    sizes, plan = recipe["sizes"], recipe["plan"]
    assert recipe["network"] == run.network
    assert sizes["in_channels"] == plan["channels"] == len(run.scans.channels)
    assert sizes["num_classes"] == 3
    assert {key: sizes[key] for key in TINY[run.network]} == TINY[run.network]
    network = build_network(run.network, **sizes)
    if run.network != "pumit_segmentation_small":
        assert all(n % s == 0 for n, s in zip(plan["patch_size"], network.stride, strict=True))
        if run.kind == "slice":
            assert plan["patch_size"][0] == network.stride[0] == 1
    assert plan["patch_size"][0] < 3 * run.scans.shape[0] + 8  # not padding for the most part


def test_a_scan_of_another_size_is_predicted_and_judged(run: Run, tmp_path: Path) -> None:
    kind = run.scans
    d, h, w = kind.shape
    other = Kind((max(d - 2, 1), h + 8, w - 4), kind.spacing, kind.channels)
    images, labels = made(other, 7)
    model = load_automatic(run.model, "cpu")
    answer = model.segment(
        Volume(np.stack(images) if len(images) > 1 else images[0], kind.spacing), overlap=0.0
    )
    assert answer.labels.shape == other.shape
    for folder, array in (("predictions", answer.labels), ("labels", labels)):
        (tmp_path / folder).mkdir()
        write_labels(array, Volume(images[0], kind.spacing), tmp_path / folder / "a.nii.gz")
    arguments = ["--predictions", tmp_path / "predictions", "--labels", tmp_path / "labels"]
    output = tmp_path / "rows.json"
    assert main(["evaluate", *map(str, arguments), "-o", str(output)]) == 0
    rows = json.loads(output.read_text())["rows"]
    assert {row["true_voxels"] for row in rows} == {(labels == 1).sum(), (labels == 2).sum()}
