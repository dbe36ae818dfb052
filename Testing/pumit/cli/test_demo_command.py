"""`pumit demo` goes the whole way with what the package holds."""

import json
from dataclasses import replace

import numpy as np
import pydicom
import pytest
import SimpleITK
import torch
from pumit.cli.demo import CLICKS
from pumit.export.dicom_series import write_dicom_series
from pumit.inference.engine.torch_engine import TorchEngine
from pumit.inference.interactive.segmenter import Segmenter
from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.networks.promptable.prompt_encoder import PromptBatch
from pumit.networks.pumit import Anisotropy
from pumit.volume import Volume
from torch import Tensor, nn


class BallNetwork(nn.Module):
    """Answers a click with a ball around it."""

    field_size, num_masks = 48, 1

    def embed(self, image: Tensor, anisotropy: Anisotropy) -> ImageEmbedding:
        return ImageEmbedding(image, image, image, image, image, anisotropy)

    def decode(self, embedding: ImageEmbedding, prompts: PromptBatch) -> tuple[Tensor, Tensor]:
        shape = embedding.image.shape[2:]
        axes = [torch.arange(n, dtype=torch.float32) for n in shape]
        axes[0] = axes[0] * prompts.slice_ratio
        grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
        distance = (grid - prompts.points[0, 0]).square().sum(-1).sqrt()
        return (6 - distance)[None, None], torch.full((1, 1), 0.9)


@pytest.fixture
def balls(monkeypatch: pytest.MonkeyPatch, bright_segmenter: Segmenter) -> None:
    network = BallNetwork()
    engine = TorchEngine(network, torch.device("cpu"), torch.float32)  # type: ignore[arg-type]
    segmenter = replace(bright_segmenter, engine=engine)
    monkeypatch.setattr(
        "pumit.inference.interactive.segmenter.load_segmenter", lambda *a, **k: segmenter
    )


@pytest.mark.slow
@pytest.mark.usefixtures("balls")
def test_demo_runs_again_over_its_own_results(run, tmp_path):
    earlier = Volume(np.arange(4 * 8 * 8).reshape(4, 8, 8).astype(np.int16))
    write_dicom_series(earlier, tmp_path / "scan", patient_id="PUMIT-DEMO")
    (tmp_path / "mask.nii.gz").write_text("earlier")
    ran = run("demo", "--output", tmp_path, "--json")
    assert ran.err == ""
    assert list(json.loads(ran.out)["dice_after_one_click"]) == list(CLICKS)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "mask.nii.gz",
        "picture.png",
        "scan",
        "segmentation.dcm",
        "segmentation.seg.nrrd",
    ]
    scan = Volume.read(tmp_path / "scan")
    seg = pydicom.dcmread(tmp_path / "segmentation.dcm")
    referenced = seg.ReferencedSeriesSequence[0].SeriesInstanceUID
    assert referenced == scan.source.series_instance_uid
    mask = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "mask.nii.gz")))
    assert mask.shape == scan.shape
    assert set(np.unique(mask)) == {0, 1, 2, 3, 4}


def test_demo_without_a_model_writes_nothing(refused, tmp_path):
    assert "Unknown model" in refused("demo", "--output", tmp_path / "new", "--model", "none")


@pytest.mark.usefixtures("balls")
def test_demo_below_a_file_is_one_line(refused, tmp_path):
    (tmp_path / "file").write_text("")
    assert "Cannot make the folder" in refused("demo", "--output", tmp_path / "file" / "below")
    assert "Cannot make the folder" in refused("demo", "--output", tmp_path / "file")


@pytest.mark.usefixtures("balls")
@pytest.mark.parametrize("kind", ["text", "folder", "patient", "file", "note"])
def test_demo_never_removes_what_it_did_not_make(refused, tmp_path, kind):
    """A user may have a folder `scan` of one's own where the results go."""
    series = tmp_path / "scan"
    if kind == "file":
        series.write_text("mine")
    elif kind in ("patient", "note"):
        volume = Volume(np.arange(4 * 8 * 8).reshape(4, 8, 8).astype(np.int16))
        patient = "SOMEONE" if kind == "patient" else "PUMIT-DEMO"
        write_dicom_series(volume, series, patient_id=patient)
        if kind == "note":  # one foreign file in an earlier scan
            (series / "notes.txt").write_text("mine")
    else:
        series.mkdir()
        if kind == "text":
            (series / "thesis.txt").write_text("mine")
        else:
            (series / "below").mkdir()
    assert "not from a demonstration" in refused("demo", "--output", tmp_path)
