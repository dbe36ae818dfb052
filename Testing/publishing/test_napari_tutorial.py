"""The napari tutorial: its programs run, its commands exist, and a saved layer fits its scan."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
from pumit.cli.main import parser_of
from pumit.export.dicom_series import write_dicom_series
from pumit.io.labels.label_source import read_labels
from pumit.volume import Volume
from serving import server, serving, volume  # noqa: F401

SHAPE, SPACING = (12, 40, 36), (3.0, 1.0, 0.8)


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "tutorials" / "napari.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def test_its_commands_of_pumit_are_ones(page):
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    ours = [shlex.split(line)[1:] for line in lines if line.startswith("pumit ")]
    assert [arguments[0] for arguments in ours] == ["serve"]
    for arguments in ours:
        parser_of(arguments[0]).parse_args(arguments)


def test_its_programs_lead_from_a_series_to_a_dicom_seg(
    page: str,
    server: Any,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("nnInteractive.inference.remote", reason="no nninteractive-client")
    from loopback_server import TOKEN

    monkeypatch.chdir(tmp_path)
    array = np.random.default_rng(0).integers(0, 900, SHAPE).astype(np.int16)
    # The place that the page clicks on lies inside.
    scan = Volume(array, SPACING, (-70.0, -20.0, 4.0))
    (tmp_path / "demo-output").mkdir()
    write_dicom_series(scan, tmp_path / "demo-output" / "scan")
    (to_nifti, to_dicom_seg, client) = blocks(page, "python")
    names: dict[str, Any] = {}
    exec(to_nifti, names)
    client = client.replace("http://127.0.0.1:1527", server.url).replace('"TOKEN"', f'"{TOKEN}"')
    exec(client, names)
    clicked = names["session"].target_buffer > 0
    assert clicked[tuple(names["click"])]

    # As napari's plugin for NIfTI saves a layer: axes towards right, anterior and superior.
    image = SimpleITK.GetImageFromArray(clicked.astype(np.uint8))
    image.CopyInformation(SimpleITK.ReadImage("scan.nii.gz"))
    SimpleITK.WriteImage(SimpleITK.DICOMOrient(image, "RAS"), "liver.nii.gz")
    exec(to_dicom_seg, names)
    labels = names["labels"]
    np.testing.assert_array_equal(labels.mask(labels.segments[0]), clicked)
    back = read_labels(Path("liver.dcm"), names["scan"])
    assert [segment.name for segment in back.segments] == ["Liver"]
    np.testing.assert_array_equal(back.mask(back.segments[0]), clicked)
