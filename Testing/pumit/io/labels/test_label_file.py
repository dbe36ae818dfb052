"""Label maps are read with the names and layers of their segments."""

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


def test_segments_that_overlap_come_back_whole(tmp_path):
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


def test_values_are_segments_where_nothing_is_named(tmp_path):
    array = np.zeros((3, 4, 5), dtype=np.float32)
    array[1, 1:3], array[2, 2] = 7, 2
    for name in ("a.nii.gz", "a.nrrd", "a.mha"):
        file = read_label_file(save(array, tmp_path / name))
        assert [segment.value for segment in file.segments] == [2, 7]
        assert not file.is_named
        np.testing.assert_array_equal(file.mask(file.segments[1]), array == 7)


def test_values_below_zero_are_doubted(tmp_path):
    array = np.zeros((2, 3, 4), dtype=np.int16)
    array[1], array[0, 0] = 2, -1
    file = read_label_file(save(array, tmp_path / "a.nii.gz"))
    assert [segment.value for segment in file.segments] == [2]
    assert file.doubts == ("the label map has values below 0, which count as background",)


@pytest.mark.parametrize("suffix", [".nii.gz", ".nrrd", ".mha"])
def test_names_come_from_the_color_table_beside_a_label_map(tmp_path, suffix):
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


def test_names_in_the_code_page_of_windows_are_read(tmp_path):
    mask = np.zeros((2, 3, 4), bool)
    mask[1] = True
    segmentation = Segmentation(
        Volume(mask.astype(np.uint8)), (Segment("Schädel", mask),), Algorithm("PUMIT", "1")
    )
    write_seg_nrrd(segmentation, tmp_path / "a.seg.nrrd")
    data = (tmp_path / "a.seg.nrrd").read_bytes()
    (tmp_path / "a.seg.nrrd").write_bytes(data.replace("ä".encode(), "ä".encode("cp1252")))
    save(mask.astype(np.uint8), tmp_path / "b.nrrd")
    (tmp_path / "b_ColorTable.ctbl").write_bytes("1 Schädel 255 0 0 255\n".encode("cp1252"))
    for name in ("a.seg.nrrd", "b.nrrd"):
        assert [s.name for s in read_label_file(tmp_path / name).segments] == ["Schädel"]


def test_what_is_no_label_map_is_refused(tmp_path):
    with pytest.raises(VolumeError, match="not whole numbers"):
        read_label_file(save(np.full((3, 4, 5), 0.5, np.float32), tmp_path / "a.nii.gz"))
    with pytest.raises(VolumeError, match="channels"):
        read_label_file(save(np.ones((2, 3, 4, 5), np.uint8), tmp_path / "b.nii.gz"))


INDEX = np.zeros((12, 16), np.uint8)
INDEX[2:8, 3:9], INDEX[5:10, 8:14] = 1, 2
COLOURS = np.array([[0, 0, 0], [128, 0, 0], [128, 128, 128]], np.uint8)  # one entry is grey
GREY = np.array([0, 127, 255], np.uint8)[INDEX]
GREY_AS_COLOURS = np.repeat(GREY[..., None], 3, axis=-1)


def palette(colours: np.ndarray) -> Image.Image:
    image = Image.fromarray(INDEX, "P")
    image.putpalette(colours.ravel().tolist())
    return image


@pytest.mark.parametrize(
    ("image", "values"),
    [
        (palette(COLOURS), [1, 2]),
        (palette(np.repeat([0, 127, 255], 3)), [127, 255]),
        (Image.fromarray(GREY), [127, 255]),
        (Image.fromarray(GREY_AS_COLOURS), [127, 255]),
        (Image.fromarray(np.dstack([GREY_AS_COLOURS, np.full_like(GREY, 255)])), [127, 255]),
    ],
    ids=["palette", "grey palette", "grey", "grey as colours", "opaque grey"],
)
def test_pictures_hold_classes(tmp_path, image, values):
    image.save(tmp_path / "a.png")
    file = read_label_file(tmp_path / "a.png")
    assert [s.value for s in file.segments] == values
    for k, segment in enumerate(file.segments, start=1):
        np.testing.assert_array_equal(file.mask(segment)[0], k == INDEX)


def test_pictures_without_classes_are_refused(tmp_path):
    Image.fromarray(COLOURS[INDEX]).save(tmp_path / "a.png")
    with pytest.raises(VolumeError, match="colours are not label values"):
        read_label_file(tmp_path / "a.png")
    Image.fromarray(GREY).save(tmp_path / "a.jpg")
    with pytest.raises(VolumeError, match="JPEG"):
        read_label_file(tmp_path / "a.jpg")


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
def test_labels_that_nobody_reviewed_say_so(tmp_path, kind, name, status, sentence):
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


@pytest.mark.parametrize("name", ["a.nii.gz", "a.nrrd", "a.mha"])
def test_a_label_map_of_a_model_is_unreviewed_until_it_is_changed(tmp_path, name):
    path = tmp_path / name
    write_labelmap(Segmentation(VOLUME, KIDNEY, Algorithm("hippo", "1", "AUTOMATIC")), path)
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


def test_a_label_map_with_a_models_manifest_is_unreviewed_until_it_is_changed(tmp_path):
    path = tmp_path / "a.nii.gz"
    save(np.ones((4, 5, 6), np.uint8), path)
    assert unreviewed_of([path]) == ""
    algorithm = Algorithm("hippo", "1", "AUTOMATIC")
    write_json(tmp_path / "a.manifest.json", manifest_of(path, VOLUME, KIDNEY, algorithm))
    assert unreviewed_of([path]) == BY_HIPPO
    assert read_label_file(path).unreviewed == BY_HIPPO
    save(np.zeros((4, 5, 6), np.uint8), path)
    assert unreviewed_of([path]) == ""
