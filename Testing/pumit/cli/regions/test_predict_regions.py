"""`pumit predict` writes regions whole where the format can hold them."""

import json
from pathlib import Path

import highdicom
import numpy as np
import pytest
from known_networks import PLAN, REGIONS, save_model
from pumit.export.dicom_series import write_dicom_series
from pumit.io.labels.label_file import read_label_file
from pumit.volume import Volume
from scipy.ndimage import gaussian_filter

pytestmark = pytest.mark.usefixtures("known_networks")


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """A scan with values from -100 to 300, of which the model's regions are above 20 and 100."""
    noise = gaussian_filter(np.random.default_rng(4).normal(size=(6, 24, 24)), 2)
    scan = (noise - noise.min()) / np.ptp(noise) * 400 - 100
    write_dicom_series(
        Volume(scan.astype(np.int16), (2.0, 1.0, 1.0)), tmp_path / "s", patient_id="X"
    )
    return tmp_path / "s"


def test_every_format_holds_what_it_can(run, series, tmp_path):
    (tmp_path / "weights").mkdir()
    model = save_model(tmp_path / "weights" / "nested.safetensors", "nested", plan=PLAN, **REGIONS)
    counted = []
    for name in ("out.seg.nrrd", "out.dcm", "out.nii.gz"):
        ran = run("predict", series, "--model", model, "-o", tmp_path / name, "--json")
        counted.append({c["name"]: c["voxels"] for c in json.loads(ran.out)[0]["classes"]})
    assert counted[0] == counted[1] == counted[2]
    assert 0 < counted[0]["core"] < counted[0]["whole"]
    file = read_label_file(tmp_path / "out.seg.nrrd")
    found = {s.name: file.mask(s) for s in file.segments}
    assert {name: int(mask.sum()) for name, mask in found.items()} == counted[0]
    assert not (found["core"] & ~found["whole"]).any()
    written = highdicom.seg.segread(tmp_path / "out.dcm")
    numbers = written.get_segment_numbers()
    counts = [int(written.get_volume(segment_numbers=[n]).array.sum()) for n in numbers]
    assert counts == list(counted[0].values())
    flat = read_label_file(tmp_path / "out.nii.gz").volume.array  # the inner region stands
    assert (flat == 2).sum() == counted[0]["core"]
    assert (flat > 0).sum() == counted[0]["whole"]
