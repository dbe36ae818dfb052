"""Labels come onto their scan's grid exactly, or it is said in what the grids differ."""

import zipfile
from dataclasses import replace

import numpy as np
import pytest
import SimpleITK
from label_objects_made import (
    SHAPE,
    a_series,
    a_volume,
    blobs,
    reordered,
    save,
    save_segments,
    write_seg,
    write_struct,
)
from pumit.errors import VolumeError
from pumit.io.file_part import split_part
from pumit.io.labels.label_source import announced_segments, read_all_labels, read_labels, read_scan
from pumit.io.scans import channel_files, scan_name
from pumit.volume import Volume

LABELS = blobs()[0].astype(np.uint8) * 3


def test_label_map_may_be_stored_along_other_axes(tmp_path):
    volume = a_volume()
    path = save(tmp_path / "a.nrrd", reordered(volume, LABELS))
    assert np.array_equal(read_labels(path, volume).volume.array, LABELS)


def test_cropped_segments_are_put_where_they_were(tmp_path):
    volume = a_volume()
    cut = (slice(1, 6), slice(2, 14), slice(0, 15))
    found = read_labels(save_segments(tmp_path / "a.seg.nrrd", volume, cut), volume)
    for segment, mask in zip(found.segments, blobs(), strict=True):
        expected = np.zeros(SHAPE, dtype=bool)
        expected[cut] = mask[cut]
        assert np.array_equal(found.mask(segment), expected)
    assert found.segments[0].terminology.split("~")[2] == "SCT^10200004^Liver"
    assert found.segments[0].color_rgb is not None


def test_segments_beyond_the_scan_are_reported(tmp_path):
    volume = a_volume()
    path = save_segments(tmp_path / "a.seg.nrrd", volume)
    part = replace(volume, array=volume.array[:3])
    found = read_labels(path, part)
    lost = int(sum(mask[3:].sum() for mask in blobs()))
    _unreviewed, doubt = found.doubts
    assert doubt.startswith(f"{lost} labelled voxels ")


def test_slicer_before_layers_wrote_a_component_a_segment(tmp_path):
    masks = np.stack(blobs(), axis=-1).astype(np.uint8)
    image = SimpleITK.GetImageFromArray(masks, isVector=True)
    for i, name in enumerate(("liver", "spleen")):
        image.SetMetaData(f"Segment{i}_ID", f"s{i}")
        image.SetMetaData(f"Segment{i}_Name", name)
    SimpleITK.WriteImage(image, str(tmp_path / "a.seg.nrrd"))
    found = read_labels(tmp_path / "a.seg.nrrd", Volume(np.zeros(SHAPE)))
    for segment, mask in zip(found.segments, blobs(), strict=True):
        assert np.array_equal(found.mask(segment), mask)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spacing_mm": (2.5, 0.9, 0.8)}, r"spacing 2\.5 x 0\.9 x 0\.8 mm instead of"),
        ({"origin_lps": (-12.5, 30.25, 108.5)}, r"its first voxel 7\.5 mm away"),
        ({"direction": np.eye(3)}, r"axes turned by up to 3\d\.\d degrees"),
        ({"array": LABELS[:5]}, "5 x 14 x 17 voxels instead of 6 x 14 x 17"),
    ],
)
def test_different_grid_is_said_with_its_difference(tmp_path, change, message):
    volume = a_volume()
    path = save(tmp_path / "a.nrrd", replace(volume, **{"array": LABELS, **change}))
    with pytest.raises(VolumeError, match=message):
        read_labels(path, volume)


def test_part_of_a_voxel_is_doubted(tmp_path):
    volume = a_volume()
    moved = replace(volume, array=LABELS, origin_lps=tuple(volume.index_to_world((0, 0.3, 0))))
    found = read_labels(save(tmp_path / "a.nrrd", moved), volume)
    assert np.array_equal(found.volume.array, LABELS)
    assert "is 0.30 voxels off the image's grid" in found.doubts[0]


def test_several_files_are_one_segmentation(tmp_path):
    volume = a_series(tmp_path / "series")
    masks = [mask.astype(np.uint8) for mask in blobs()]
    paths = [
        write_seg(tmp_path / "a.dcm", volume, masks[0], "BINARY", ["Liver"]),
        write_struct(tmp_path / "b.dcm", volume, {"Box": [[(2, 1, 1), (2, 5, 1), (2, 5, 5)]]}),
    ]
    found = read_all_labels(paths, volume)
    assert [s.name for s in found.segments] == ["Liver", "Box"]
    assert np.array_equal(found.mask(found.segments[0]), masks[0] > 0)
    with pytest.raises(VolumeError, match="names no segments"):
        read_all_labels(
            [paths[0], save(tmp_path / "c.nrrd", replace(volume, array=LABELS))], volume
        )


def test_zip_may_hold_scan_and_segmentation(tmp_path):
    volume = a_series(tmp_path / "p" / "series")
    write_seg(tmp_path / "p" / "s.dcm", volume, LABELS // 3, "BINARY", ["Liver"])
    path = tmp_path / "p.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in (tmp_path / "p").rglob("*.dcm"):
            archive.write(file, file.relative_to(tmp_path))
    assert [s.name for s in announced_segments(path)] == ["Liver"]
    scan = read_scan([path], path)
    assert np.array_equal(scan.array, volume.array)
    assert np.array_equal(read_labels(path, scan).volume.array, LABELS // 3)


def test_part_of_a_file_is_reported_from_a_name_with_a_number_sign(tmp_path):
    (tmp_path / "a#1.nrrd").touch()
    (tmp_path / "b.mrb").touch()
    assert split_part(tmp_path / "a#1.nrrd") == (tmp_path / "a#1.nrrd", "")
    assert split_part(tmp_path / "b.mrb#CT #2") == (tmp_path / "b.mrb", "CT #2")
    assert split_part(tmp_path / "c.mrb#CT") == (tmp_path / "c.mrb#CT", "")


def test_files_of_channels_are_one_scan_if_they_share_a_grid(tmp_path):
    for number in (0, 1, 3):
        save(tmp_path / f"a_b_{number:04d}.nrrd", replace(a_volume(), array=LABELS + number))
    first = tmp_path / "a_b_0000.nrrd"
    assert (scan_name(first), scan_name(tmp_path / "a_b_0001.nrrd")) == ("a_b", None)
    files = channel_files(first)
    assert [path.name for path in files] == ["a_b_0000.nrrd", "a_b_0001.nrrd"]
    assert np.array_equal(read_scan(files).array, np.stack([LABELS, LABELS + 1]))
    assert np.array_equal(read_scan(files[:1]).array, LABELS)
    for change, message in (
        ({"origin_lps": tuple(a_volume().index_to_world((0, 0, 2)))}, r"0001\.nrrd .* by 2\.0"),
        ({"array": LABELS[..., :-1]}, "6 x 14 x 16 voxels"),
    ):
        save(files[1], replace(a_volume(), **{"array": LABELS, **change}))
        with pytest.raises(VolumeError, match=message):
            read_scan(files)
    save(files[1], reordered(a_volume(), LABELS))
    with pytest.raises(VolumeError, match="axes in another order"):
        read_scan(files)
