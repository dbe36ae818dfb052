"""Masks, labels and files by one call each, in any frame, from volumes, paths and arrays."""

import pickle
from dataclasses import replace
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pumit
import pytest
import SimpleITK
from pumit import simple
from pumit.errors import ExportError, PromptError, VolumeError
from pumit.file_image import DicomSource
from pumit.inference.interactive.segmenter import Segmenter
from pumit.segmentation import ClassLabel, LabelMap, Segment, Segmentation
from pumit.volume import Volume

STEP = (3.0, 1.5, 1.0)


@pytest.fixture(autouse=True)
def bright_model(monkeypatch: pytest.MonkeyPatch, bright_segmenter: Segmenter) -> None:
    monkeypatch.setattr(simple, "_segmenter", lambda model, device: bright_segmenter)


def scan() -> tuple[Volume, npt.NDArray[np.bool_]]:
    """A bright ball off the middle, its grid turned and mirrored."""
    d, h, w = np.indices((16, 40, 48))
    ball = ((d - 6) * 3) ** 2 + ((h - 18) * 1.5) ** 2 + (w - 30) ** 2 < 14**2
    noise = np.random.default_rng(0).normal(0, 5, ball.shape)
    direction = np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]])
    return Volume(
        (ball * 150 + 40 + noise).astype(np.int16), STEP, (5.0, -20.0, 7.0), direction
    ), ball


def dice(a: npt.NDArray[np.bool_], b: npt.NDArray[np.bool_]) -> float:
    return 2 * float((a & b).sum()) / float(a.sum() + b.sum())


@pytest.mark.parametrize("frame", ["LPS", "RAS", "voxel", "IJK"])
def test_a_click_and_a_box_mean_the_same_in_every_frame(frame):
    volume, ball = scan()

    def told(index: tuple[int, int, int]) -> Any:
        lps = volume.index_to_world(index)
        ras, ijk = lps * (-1, -1, 1), index[::-1]
        return {"LPS": lps, "RAS": ras, "voxel": index, "IJK": ijk}[frame]

    mask = pumit.segment(volume, [told((6, 18, 30))], frame=frame)
    assert mask.shape == volume.shape
    assert dice(mask, ball) > 0.9
    box = [told((1, 8, 15)), told((11, 28, 45))]
    assert dice(pumit.segment(volume, box=box, frame=frame), ball) > 0.9


def test_arrays_and_paths_are_scans_too(tmp_path):
    volume, ball = scan()
    image = SimpleITK.GetImageFromArray(volume.array)
    image.SetSpacing(STEP[::-1])
    SimpleITK.WriteImage(image, str(tmp_path / "scan.nii.gz"))
    click = {"points": [(6, 18, 30)], "frame": "voxel"}
    masks = [
        pumit.segment(volume.array, spacing_mm=STEP, **click),  # type: ignore[arg-type]
        pumit.segment(tmp_path / "scan.nii.gz", **click),  # type: ignore[arg-type]
    ]
    assert all(dice(mask, ball) > 0.9 for mask in masks)
    flat = pumit.segment(volume.array[6], [(0, 18, 30)], frame="voxel")
    assert flat.shape == (40, 48)
    assert dice(flat, ball[6]) > 0.9


def test_an_array_of_slices_is_asked_for_its_spacing():
    volume, _ = scan()
    with pytest.raises(VolumeError, match="give spacing_mm"):
        pumit.segment(volume.array, [(6, 18, 30)], frame="voxel")
    with pytest.raises(VolumeError, match="give spacing_mm"):
        pumit.InteractiveSession(simple._segmenter("", "")).set_volume(volume.array)


@pytest.mark.parametrize(
    ("frame", "point", "bounds"),
    [
        ("LPS", (100, 0, 10), r"100, 0, 10 mm \(L, P, S\).*L 5 to 63.5, P -20 to 27, S 7 to 52"),
        ("RAS", (100, 0, 10), r"100, 0, 10 mm \(R, A, S\).*R -63.5 to -5, A -27 to 20, S 7 to 52"),
        ("voxel", (16, 0, 0), r"16, 0, 0 \(d, h, w\).*d 0 to 15, h 0 to 39, w 0 to 47"),
        ("IJK", (0, 0, 16), r"0, 0, 16 \(i, j, k\).*i 0 to 47, j 0 to 39, k 0 to 15"),
    ],
)
def test_a_point_outside_is_answered_in_its_own_frame(frame, point, bounds):
    with pytest.raises(PromptError, match=bounds):
        pumit.segment(scan()[0], [point], frame=frame)


def test_what_is_no_point_and_no_frame_is_refused():
    with pytest.raises(PromptError, match="choose LPS, RAS, voxel or IJK"):
        pumit.segment(scan()[0], [(0, 0, 0)], frame="XYZ")  # type: ignore[arg-type]
    with pytest.raises(PromptError, match="three numbers"):
        pumit.segment(scan()[0], [(1, 2)])
    with pytest.raises(PromptError, match="two opposite corners"):
        pumit.segment(scan()[0], box=[(1, 2, 3)])


@pytest.mark.parametrize("suffix", [".seg.nrrd", ".nii.gz"])
def test_a_mask_is_saved_in_one_line(tmp_path, suffix):
    volume, ball = scan()
    path = tmp_path / f"liver{suffix}"
    pumit.save(ball, volume, path, name="liver")
    image = SimpleITK.ReadImage(str(path))
    assert image.GetSpacing() == pytest.approx(STEP[::-1])
    found = SimpleITK.GetArrayFromImage(image)
    if suffix == ".nii.gz":
        np.testing.assert_array_equal(found > 0, ball)
    else:
        assert int((found > 0).sum()) == int(ball.sum())  # the file holds the segment's box alone
        assert "10200004" in image.GetMetaData("Segment0_Tags")


def test_labels_of_an_automatic_model_are_saved_as_such(tmp_path, monkeypatch):
    volume, ball = scan()
    written: list[Segmentation] = []
    monkeypatch.setattr("pumit.export.write.write_segmentation", lambda s, path: written.append(s))
    pumit.save(LabelMap(ball.astype(np.uint8), (ClassLabel("liver"),)), volume, tmp_path / "a.dcm")
    pumit.save(ball, volume, tmp_path / "b.dcm")
    assert [made.algorithm.kind for made in written] == ["AUTOMATIC", "SEMIAUTOMATIC"]


def test_labels_are_not_saved_on_another_scan(tmp_path, monkeypatch):
    volume, ball = scan()
    labels = LabelMap(ball.astype(np.uint8), (ClassLabel("liver"),))
    model = SimpleNamespace(segment=lambda volume: labels)
    monkeypatch.setattr(
        "pumit.inference.automatic.segmentation.load_automatic", lambda *given: model
    )
    unpacked = DicomSource((), "1", keep_alive=TemporaryDirectory())  # as of a zip
    zipped = replace(volume, source=unpacked, path=tmp_path / "name.zip")
    found, path = pumit.predict(zipped, "model"), tmp_path / "liver.nii.gz"
    assert b"name.zip" not in pickle.dumps(found)  # which also needs no unpacked file
    elsewhere = replace(volume, origin_lps=(5.0, -20.0, 10.0))
    turned = replace(volume, direction=-volume.direction)
    for other, words in ((elsewhere, "first voxel 3 mm away"), (turned, "turned by up to 180")):
        with pytest.raises(VolumeError, match=f"The label map is not of this image: .*{words}"):
            pumit.save(found, other, path)
    pumit.save(found, replace(volume, array=volume.array.astype(np.float32)), path)
    path.unlink()
    pumit.save(pumit.predict(volume.array, "model", spacing_mm=STEP), elsewhere, path)


def test_several_masks_are_saved_by_their_names(tmp_path):
    volume, ball = scan()
    pumit.save({"Liver": ball, "Tumour": np.roll(ball, 3, 2)}, volume, tmp_path / "two.seg.nrrd")
    image = SimpleITK.ReadImage(str(tmp_path / "two.seg.nrrd"))
    names = [image.GetMetaData(f"Segment{i}_Name") for i in (0, 1)]
    assert names == ["Liver", "Tumour"]


def test_what_cannot_be_saved_is_one_sentence(tmp_path):
    volume, ball = scan()
    for result in ({}, ball[1:], np.zeros_like(ball)):
        with pytest.raises((ExportError, VolumeError)):
            pumit.save(result, volume, tmp_path / "x.nii.gz")
    assert not list(tmp_path.iterdir())
    path = tmp_path / "scan.nii.gz"
    pumit.save(ball, volume, path)
    before = path.read_bytes()
    with pytest.raises(ExportError, match="give another name"):
        pumit.save(ball, path, path)
    with pytest.raises(ExportError, match="give another name"):
        pumit.save(ball, Volume.read(path), path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("factors", [(1, 2), (0.3, 0.6), (1, -1)])
def test_labels_and_probabilities_are_not_saved_as_one_mask(tmp_path, factors):
    volume, ball = scan()
    values = np.where(np.indices(ball.shape)[2] < 30, *factors) * ball
    with pytest.raises(VolumeError, match="Segment' has 2 values beside 0"):
        pumit.save(values, volume, tmp_path / "x.nii.gz")
    pumit.save(ball.astype(np.uint8) * 255, volume, tmp_path / "x.nii.gz")


def test_results_are_shown_in_one_line_without_voxels():
    labels = LabelMap(np.zeros((2, 3, 4), np.uint8), (ClassLabel("liver"), ClassLabel("spleen")))
    assert repr(labels) == "<LabelMap: 2 x 3 x 4 voxels (D x H x W), 2 classes: liver, spleen>"
    segment = Segment("liver", np.ones((30, 40, 50), dtype=bool))
    assert "\n" not in repr(segment)
    assert "array" not in repr(segment)
    assert repr(scan()[0]) == "<Volume: 16 x 40 x 48 voxels, 3 x 1.5 x 1 mm (D x H x W), int16>"


def test_a_model_that_was_replaced_is_loaded_again(monkeypatch, tiny_checkpoint):
    monkeypatch.undo()
    first = simple._segmenter(str(tiny_checkpoint), "cpu")
    assert simple._segmenter(str(tiny_checkpoint), "cpu") is first
    tiny_checkpoint.write_bytes(tiny_checkpoint.read_bytes())
    assert simple._segmenter(str(tiny_checkpoint), "cpu") is not first


def test_classes_keep_their_values_although_one_is_not_there(tmp_path):
    volume, ball = scan()
    names = tuple(map(ClassLabel, ("liver", "spleen", "tumour")))
    pumit.save(LabelMap(ball.astype(np.uint8) * 3, names), volume, tmp_path / "a.nii.gz")
    values = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "a.nii.gz")))
    assert np.array_equal(values, ball * 3)
