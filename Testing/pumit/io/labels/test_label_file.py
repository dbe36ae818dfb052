"""Label maps are read with the names and layers of their segments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from PIL import Image
from pumit.errors import VolumeError
from pumit.export.companions import manifest_of
from pumit.export.labelmap import write_labelmap
from pumit.export.seg_nrrd import write_seg_nrrd
from pumit.io.labels.grid_match import same_grid
from pumit.io.labels.label_file import read_label_file
from pumit.io.labels.label_source import unreviewed_of
from pumit.segmentation import Algorithm, Segment, Segmentation
from pumit.system.files import write_json
from pumit.volume import Volume


def save(array: np.ndarray, path: Path) -> Path:
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(array), str(path))
    return path


def test_segments_that_overlap_come_back_whole(tmp_path: Path) -> None:
    volume = Volume(np.zeros((4, 5, 6)), (3.0, 1.0, 1.0), (1.0, 2.0, 3.0))
    masks = np.zeros((2, 4, 5, 6), dtype=bool)
    masks[0, 1:3, 1:4], masks[1, 2:, 2:, 3:] = True, True
    segments = [Segment(name, mask) for name, mask in zip(("kidney", "tumour"), masks, strict=True)]
    path = tmp_path / "a.seg.nrrd"
    write_seg_nrrd(Segmentation(volume, tuple(segments), Algorithm("a", "1")), path)
    file = read_label_file(path)
    assert file.is_named
    same_grid(file.volume, volume, "it")
    assert [segment.name for segment in file.segments] == ["kidney", "tumour"]
    for segment, mask in zip(file.segments, masks, strict=True):
        np.testing.assert_array_equal(file.mask(segment), mask)


@pytest.mark.parametrize("name", ["a.nii.gz", "a.nrrd", "a.mha"])
def test_values_are_segments_where_nothing_is_named(tmp_path: Path, name: str) -> None:
    array = np.zeros((3, 4, 5), dtype=np.float32)
    array[1, 1:3], array[2, 2] = 7, 2
    file = read_label_file(save(array, tmp_path / name))
    assert [segment.value for segment in file.segments] == [2, 7]
    assert not file.is_named
    np.testing.assert_array_equal(file.mask(file.segments[1]), array == 7)


@pytest.mark.parametrize("suffix", [".nii.gz", ".nrrd", ".mha"])
def test_names_come_from_the_color_table_beside_a_label_map(tmp_path: Path, suffix: str) -> None:
    array = np.zeros((3, 4, 5), dtype=np.uint8)
    array[1, 1:3], array[2, 2] = 7, 2
    path = save(array, tmp_path / f"a.1-label{suffix}")
    table = tmp_path / "a.1-label_ColorTable.ctbl"
    rows = ["# Color table file", "0 Background 0 0 0 0", "1 spleen 157 108 162 255", "5"]
    rows += ["2 left_kidney 185 102 83 255", "7 Tumor 255 0 51 255", "3 (none) 0 0 0 0", "x y z"]
    table.write_text("\n".join(rows))
    file = read_label_file(path)
    assert file.is_named
    assert {s.value: s.name for s in file.segments} == {1: "spleen", 2: "left kidney", 7: "Tumor"}
    assert file.segments[-1].color_rgb == pytest.approx((1, 0, 0.2))
    np.testing.assert_array_equal(file.mask(file.segments[-1]), array == 7)
    table.write_text("2 left_kidney\n")
    with pytest.raises(VolumeError, match=r"colour table .* names no segment for the values 7;"):
        read_label_file(path)
    table.write_bytes(b"\xff\xfe")
    assert not read_label_file(path).is_named


def test_what_is_no_label_map_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="not whole numbers"):
        read_label_file(save(np.full((3, 4, 5), 0.5, np.float32), tmp_path / "a.nii.gz"))
    with pytest.raises(VolumeError, match="channels"):
        read_label_file(save(np.ones((2, 3, 4, 5), np.uint8), tmp_path / "b.nii.gz"))


def a_picture(path: Path, kind: str) -> Path:
    """Draw classes 0, 1 and 2 in one of the ways of drawing programs."""
    index = np.zeros((12, 16), np.uint8)
    index[2:8, 3:9], index[5:10, 8:14] = 1, 2
    colours = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0]], np.uint8)
    grey = np.array([0, 127, 255], np.uint8)
    if kind == "palette":
        image = Image.fromarray(index, "P")
        image.putpalette(colours.ravel().tolist())
    elif kind == "grey palette":
        image = Image.fromarray(index, "P")
        image.putpalette(np.repeat(grey, 3).tolist())
    elif kind == "colours":
        image = Image.fromarray(colours[index])
    elif kind == "grey as colours":
        image = Image.fromarray(np.repeat(grey[index][..., None], 3, axis=-1))
    elif kind == "opaque grey":
        opaque = np.full((12, 16, 1), 255, np.uint8)
        image = Image.fromarray(np.dstack([np.repeat(grey[index][..., None], 3, axis=-1), opaque]))
    else:
        image = Image.fromarray(grey[index])
    image.save(path)
    return path


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("palette", [1, 2]),
        ("grey palette", [127, 255]),
        ("grey", [127, 255]),
        ("grey as colours", [127, 255]),
        ("opaque grey", [127, 255]),
    ],
)
def test_pictures_hold_classes(tmp_path: Path, kind: str, values: list[int]) -> None:
    file = read_label_file(a_picture(tmp_path / "a.png", kind))
    assert [s.value for s in file.segments] == values
    assert [int(file.mask(s).sum()) for s in file.segments] == [33, 30]
    assert file.volume.shape == (1, 12, 16)


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [("a.png", "colours", "colours are not label values"), ("a.jpg", "grey", "JPEG")],
)
def test_pictures_without_classes_are_refused(
    tmp_path: Path, name: str, kind: str, reason: str
) -> None:
    with pytest.raises(VolumeError, match=reason):
        read_label_file(a_picture(tmp_path / name, kind))


VOLUME = Volume(np.zeros((4, 5, 6)), (3.0, 1.0, 1.0))
KIDNEY = (Segment("kidney", np.ones((4, 5, 6), dtype=bool)),)
BY_HIPPO = "made by hippo, not reviewed"


@pytest.mark.parametrize(
    ("kind", "name", "status", "sentence"),
    [
        ("AUTOMATIC", "hippo", "inprogress", BY_HIPPO),
        ("AUTOMATIC", "hippo", "", BY_HIPPO),
        ("AUTOMATIC", "", "", "made by a model, not reviewed"),
        ("AUTOMATIC", "hippo", "completed", ""),
        ("", "hippo", "", BY_HIPPO),
        ("SEMIAUTOMATIC", "hippo", "", ""),
        ("SEMIAUTOMATIC", "hippo", "inprogress", ""),
        ("MANUAL", "", "inprogress", ""),
        ("", "", "flagged", "marked for review, not reviewed"),
        ("", "", "", ""),
    ],
)
def test_labels_that_nobody_reviewed_say_so(
    tmp_path: Path, kind: str, name: str, status: str, sentence: str
) -> None:
    """F5: the model's own output was called good."""
    path = tmp_path / "a.seg.nrrd"
    write_seg_nrrd(Segmentation(VOLUME, KIDNEY, Algorithm("hippo", "1", "AUTOMATIC")), path)
    written = b"Type:AUTOMATIC|DICOM.SegmentAlgorithmName:hippo|Segmentation.Status:inprogress|"
    content = path.read_bytes()
    assert written in content
    tags = {"DICOM.SegmentAlgorithmName": name, "Segmentation.Status": status}
    more = "".join(f"{tag}:{value}|" for tag, value in tags.items() if value)
    path.write_bytes(content.replace(written, f"Type:{kind}|{more}".encode()))
    assert unreviewed_of([path]) == sentence
    file = read_label_file(path)
    assert file.unreviewed == sentence
    # What a person draws is doubtful until it is completed, and may be trained on.
    doubt = sentence or ("marked as in progress" if status == "inprogress" else "")
    assert file.doubts == ((doubt,) if doubt else ())


@pytest.mark.parametrize("name", ["a.nii.gz", "a.nii", "a.nrrd", "a.mha"])
def test_a_label_map_of_a_model_is_unreviewed_until_it_is_changed(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    write_labelmap(Segmentation(VOLUME, KIDNEY, Algorithm("hippo", "1", "AUTOMATIC")), path)
    assert unreviewed_of([path]) == BY_HIPPO
    assert read_label_file(path).unreviewed == BY_HIPPO
    image = SimpleITK.ReadImage(path)  # with what its header says
    SimpleITK.WriteImage(image, path)
    assert unreviewed_of([path]) == BY_HIPPO
    image[1, 1, 1] = 0
    SimpleITK.WriteImage(image, path)
    assert unreviewed_of([path]) == ""
    by_hand = Algorithm("hippo", "1", "SEMIAUTOMATIC")
    write_labelmap(Segmentation(VOLUME, KIDNEY, by_hand), path)
    assert unreviewed_of([path]) == ""


def test_a_label_map_with_a_models_manifest_is_unreviewed_until_it_is_changed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.nii.gz"
    save(np.ones((4, 5, 6), np.uint8), path)
    assert unreviewed_of([path]) == ""
    algorithm = Algorithm("hippo", "1", "AUTOMATIC")
    write_json(tmp_path / "a.manifest.json", manifest_of(path, VOLUME, KIDNEY, algorithm))
    assert unreviewed_of([path]) == BY_HIPPO
    assert read_label_file(path).unreviewed == BY_HIPPO
    save(np.zeros((4, 5, 6), np.uint8), path)
    assert unreviewed_of([path]) == ""


def test_grey_entry_of_a_palette_of_colours_is_its_index(tmp_path: Path) -> None:
    index = np.zeros((6, 5), dtype=np.uint8)
    index[2:4, 1:3] = 7
    palette = np.zeros((256, 3), dtype=np.uint8)
    palette[1], palette[7] = (128, 0, 0), (128, 128, 128)
    image = Image.fromarray(index, "P")
    image.putpalette(palette.ravel().tolist())
    image.save(tmp_path / "a.png")
    assert np.array_equal(read_label_file(tmp_path / "a.png").volume.array[0], index)
