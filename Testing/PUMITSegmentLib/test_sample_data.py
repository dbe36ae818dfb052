import re
import subprocess
import sys
from importlib import reload
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from PUMITSegmentLib import sample_data
from PUMITSegmentLib.sample_data import registerSampleData
from PUMITSlicerLib import generated_scan
from PUMITSlicerLib.mrml import readVolume
from scipy import ndimage

MODULE = Path(__file__).resolve().parents[2] / "PUMITSegment"
ICONS = MODULE / "Resources" / "Icons"


class Source:
    """What Slicer keeps of an entry: one item for each address, and equal if it reads the same."""

    def __init__(self, **given) -> None:
        self.__dict__.update(given)
        for name in ("uris", "fileNames", "nodeNames", "checksums"):
            assert not isinstance(given[name], list | tuple)
        # Slicer compares lengths of all of these, and takes None for none at all.
        assert isinstance(given["uris"], str)
        assert isinstance(given["fileNames"], str)

    def __str__(self) -> str:
        return str(sorted((k, str(v)) for k, v in self.__dict__.items()))


@pytest.fixture
def sources(scene, monkeypatch) -> dict[str, list[Source]]:
    """Entries of a stand-in for Slicer's module, whose function has the real one's parameters."""
    registered: dict[str, list[Source]] = {}

    class SampleDataLogic:
        @staticmethod
        def registerCustomSampleDataSource(
            category="Custom",
            sampleName=None,
            uris=None,
            fileNames=None,
            nodeNames=None,
            customDownloader=None,
            thumbnailFileName=None,
            loadFileType="VolumeFile",
            loadFiles=None,
            loadFileProperties={},  # noqa: B006
            checksums=None,
        ):
            given = {key: value for key, value in locals().items() if key != "category"}
            source = Source(**given)
            entries = registered.setdefault(category, [])
            if str(source) not in map(str, entries):
                entries.append(source)

    module = ModuleType("SampleData")
    module.SampleDataLogic = SampleDataLogic
    monkeypatch.setitem(sys.modules, "SampleData", module)
    return registered


def test_two_entries_are_offered_once_with_thumbnails_and_a_checksum(sources):
    registerSampleData(ICONS)
    generated, liver = sources["PUMIT"]
    for source in (generated, liver):
        with Image.open(source.thumbnailFileName) as image:
            assert image.format == "PNG"
            assert image.width > image.height
    assert liver.customDownloader is None
    assert generated.customDownloader is not None
    algorithm, digest = liver.checksums.split(":")
    assert algorithm == "SHA256"
    assert re.fullmatch("[0-9a-f]{64}", digest)
    assert liver.uris == (
        f"https://github.com/Slicer/SlicerTestingData/releases/download/SHA256/{digest}"
    )
    sources.clear()
    sample_data.registerSampleData()
    reload(sample_data).registerSampleData()
    assert len(sources["PUMIT"]) == 2


def test_generated_entry_makes_a_volume_ready_to_be_segmented(sources, scene, scan, monkeypatch):
    monkeypatch.setattr(generated_scan, "generatedScan", lambda: scan)
    registerSampleData(ICONS)
    source = sources["PUMIT"][0]
    (node,) = source.customDownloader(source)
    volume, expected = readVolume(node), scan.volume
    np.testing.assert_array_equal(volume.array, expected.array)
    np.testing.assert_allclose(volume.direction, expected.direction, atol=1e-6)
    np.testing.assert_allclose(volume.origin_lps, expected.origin_lps, atol=1e-4)
    assert node.GetDisplayNode().GetWindow() == 400


@pytest.fixture(scope="module")
def scan():
    pytest.importorskip("scipy")
    return generated_scan.generatedScan()


def test_scan_is_oblique_and_looks_like_ct(scan):
    volume = scan.volume
    assert np.abs(volume.direction - np.eye(3)).max() > 0.1
    assert np.linalg.det(volume.direction) == pytest.approx(1.0)
    assert volume.array.dtype == np.int16
    assert volume.array.min() < -900
    assert volume.array.max() > 300
    np.testing.assert_allclose(
        volume.index_to_world((np.array(volume.shape) - 1) / 2), 0, atol=1e-6
    )


def test_organs_differ_from_what_lies_around_them(scan):
    for name, mask in scan.masks.items():
        assert 500 < mask.sum() < 0.2 * mask.size, name
        around = ndimage.binary_dilation(mask, iterations=3) & ~mask
        inside = float(np.median(scan.volume.array[mask]))
        assert abs(inside - float(np.median(scan.volume.array[around]))) > 30, name


def test_organs_share_no_voxel_and_the_tumour_lies_in_the_liver(scan):
    organs = [mask for name, mask in scan.masks.items() if name != "liver tumour"]
    assert np.sum(organs, axis=0).max() == 1
    assert not (scan.masks["liver tumour"] & ~scan.masks["liver"]).any()


def test_scan_needs_neither_torch_nor_slicer_and_is_the_same_in_any_process(scan):
    code = (
        "import sys; from PUMITSlicerLib.generated_scan import generatedScan\n"
        "print({'torch', 'slicer', 'monai'} & set(sys.modules))\n"
        "print([int(mask.sum()) for mask in generatedScan().masks.values()])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=MODULE, capture_output=True, text=True, check=True
    )
    absent, sizes = run.stdout.splitlines()
    assert absent == "set()"
    assert sizes == str([int(mask.sum()) for mask in scan.masks.values()])


def test_patients_are_not_alike_and_their_organs_lie_apart(scan):
    other = generated_scan.generatedScan(1)
    for name in generated_scan.ORGANS:
        a, b = scan.masks[name], other.masks[name]
        dice = 2.0 * (a & b).sum() / (a.sum() + b.sum())
        assert 0.3 < dice < 0.95, name
    assert np.sum([other.masks[name] for name in generated_scan.ORGANS], axis=0).max() == 1
