import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from export_checks import a_volume, two_overlapping
from PIL import Image
from pumit.errors import ExportError, VolumeError
from pumit.export.companions import Companions, ResultOrigin
from pumit.prompts import BoxPrompt, PointPrompt, ScribblePrompt
from pumit.report import panels
from pumit.report.panels import _box_outline, add_legend, new_figure
from pumit.report.picture import _layout, write_picture
from pumit.report.views import views_through
from pumit.segmentation import Algorithm, Segment
from pumit.system import files
from pumit.volume import Volume

RED, BLUE = (1.0, 0.0, 0.0), (0.0, 0.2, 1.0)


def pixels(path):
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def count(picture, rgb, tolerance=40):
    return int((np.abs(picture - np.array(rgb)).max(axis=-1) < tolerance).sum())


def a_block(shape, color=RED, name="s"):
    mask = np.zeros(shape, dtype=bool)
    d, h, w = shape
    mask[d // 3 : d // 3 + 2, h // 4 : h // 2, w // 4 : w // 2] = True
    if d == 1:
        mask[0, h // 4 : h // 2, w // 4 : w // 2] = True
    return Segment(name, mask, color_rgb=color)


def test_picture_shows_outlines_and_prompts(tmp_path):
    volume = a_volume()
    (segment,) = (a_block(volume.shape),)
    plain, prompted = tmp_path / "a.png", tmp_path / "b.png"
    write_picture(volume, [segment], plain)
    assert count(pixels(plain), (255, 0, 0)) > 200
    centre = volume.index_to_world(np.argwhere(segment.mask).mean(axis=0).round())
    index = np.argwhere(segment.mask)
    corners = [
        (d, h, w)
        for d in (index[:, 0].min(), index[:, 0].max())
        for h in (index[:, 1].min(), index[:, 1].max())
        for w in (index[:, 2].min(), index[:, 2].max())
    ]
    prompts = [
        PointPrompt(tuple(centre)),
        PointPrompt(tuple(centre), False),
        ScribblePrompt((tuple(centre), tuple(centre + 5.0))),
        BoxPrompt(tuple(tuple(c) for c in volume.index_to_world(corners))),
    ]
    write_picture(volume, [segment], prompted, prompts=prompts, title="Title")
    for color in ((0x4A, 0xDE, 0x80), (0xFF, 0x6B, 0x6B), (0xFF, 0xD1, 0x66)):
        assert count(pixels(prompted), color) > count(pixels(plain), color) + 20
    far = PointPrompt(tuple(volume.index_to_world((8, 20, 29))))
    write_picture(volume, [segment], prompted, prompts=[far])
    np.testing.assert_array_equal(pixels(prompted), pixels(plain))


@pytest.mark.parametrize("shape", [(4, 60, 80), (80, 20, 20), (20, 20, 20), (1, 30, 90)])
def test_physical_proportions_are_kept(shape):
    volume = Volume(np.zeros(shape), (3.0, 1.0, 2.0))
    panels, (width, height) = _layout(views_through(volume, (0, 0, 0)), shape)
    d, h, w = (n * s for n, s in zip(shape, volume.spacing_mm, strict=True))
    expected = [w / h] if shape[0] == 1 else [w / h, w / d, h / d]
    np.testing.assert_allclose([p.width / p.height for p in panels], expected)
    scales = [p.width / e for p, e in zip(panels, [w, w, h], strict=False)]
    np.testing.assert_allclose(scales, scales[0])
    for panel in panels:
        assert panel.left > 0
        assert panel.top > 0
        assert panel.left + panel.width < width
        assert panel.top + panel.height < height
    for i, a in enumerate(panels):
        for b in panels[i + 1 :]:
            apart_x = a.left + a.width < b.left or b.left + b.width < a.left
            apart_y = a.top + a.height < b.top or b.top + b.height < a.top
            assert apart_x or apart_y


def test_colour_image_stays_in_colour(tmp_path):
    image = np.zeros((3, 1, 40, 60), np.uint8)
    image[1] = 180
    volume = Volume(image, (1e8, 0.5, 0.5))
    write_picture(volume, [a_block((1, 40, 60))], tmp_path / "p.png")
    assert count(pixels(tmp_path / "p.png"), (0, 180, 0), 5) > 10000


@pytest.mark.parametrize("values", [np.nan, 7.0])
def test_scan_without_contrast_is_drawn(tmp_path, values):
    volume = Volume(np.full((5, 20, 20), values))
    write_picture(volume, [a_block(volume.shape)], tmp_path / "p.png")
    assert count(pixels(tmp_path / "p.png"), (255, 0, 0)) > 100


def test_many_names_fit_the_legend():
    figure = new_figure(11, 1, dpi=50)
    add_legend(figure, 0.1, 0.5, [(f"A long name of a segment {i}", BLUE) for i in range(30)])
    assert re.fullmatch(r"and \d+ more", figure.texts[-1].get_text())
    assert max(text.get_window_extent().x1 for text in figure.texts) < figure.bbox.width


def test_drawing_needs_no_display():
    for file in Path(panels.__file__).parent.glob("*.py"):
        assert "pyplot" not in file.read_text(encoding="utf-8"), file.name


def test_oblique_box_is_cut_by_the_slice():
    # A unit cube standing on a corner: its middle section is a regular hexagon.
    from scipy.spatial.transform import Rotation

    cube = np.array([(x, y, z) for x in (-9, 9) for y in (-9, 9) for z in (-9, 9)], float)
    upright, _ = Rotation.align_vectors([[0, 0, 1]], [[1, 1, 1]])
    outline = _box_outline(upright.apply(cube) + 1e-6, is_planar=False)
    sides = np.linalg.norm(np.diff(outline, axis=0), axis=1)
    sides = sides[sides > 1e-3]
    np.testing.assert_allclose(sides, np.full(6, 9 * np.sqrt(2)), rtol=1e-3)
    assert len(_box_outline(upright.apply(cube) + np.array([0, 0, 50]), is_planar=False)) == 0


def test_no_segment_wrong_grid_and_bad_target_are_refused(tmp_path):
    volume = a_volume()
    with pytest.raises(ExportError, match="no segment"):
        write_picture(volume, [], tmp_path / "p.png")
    with pytest.raises(VolumeError, match="own grid"):
        write_picture(volume, [a_block((3, 8, 8))], tmp_path / "p.png")
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(ExportError, match="cannot be written"):
        write_picture(volume, two_overlapping(volume).segments, tmp_path / "file" / "p.png")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_every_segment_is_seen_in_a_colour_of_its_own(tmp_path):
    """Also small ones on other slices than the largest, of the colour of another."""
    volume = Volume(np.random.default_rng(0).normal(size=(30, 60, 60)), (2.0, 1.0, 1.0))
    masks = np.zeros((3, *volume.shape), dtype=bool)
    masks[0, 2:18, 20:50, 30:58] = masks[1, 14:22, 30:40, 4:12] = masks[2, 15:24, 32:42, 16:24] = 1
    names = ("large", "left", "right")
    segments = [Segment(n, m, color_rgb=RED) for n, m in zip(names, masks, strict=True)]
    write_picture(volume, segments, tmp_path / "picture.png")
    picture = pixels(tmp_path / "picture.png")
    for color in ((255, 0, 0), (79, 209, 197), (242, 193, 78)):
        assert count(picture, color) > 500, color


def test_a_full_disk_is_not_blamed_on_the_result(tmp_path, monkeypatch):
    volume = a_volume()
    full = SimpleNamespace(f_blocks=1000, f_bavail=0, f_frsize=4096)
    monkeypatch.setattr(files.os, "statvfs", lambda folder: full, raising=False)
    with pytest.raises(ExportError, match="The picture cannot be written: the disk is full"):
        write_picture(volume, [a_block(volume.shape)], tmp_path / "a.png")
    (tmp_path / "a.nii.gz").touch()
    for kind in (Companions("csv"), Companions(has_manifest=True)):
        with pytest.raises(ExportError, match=r"The (statistics|manifest) cannot be written: the "):
            kind.write(
                tmp_path / "a.nii.gz",
                *(volume, (a_block(volume.shape),), Algorithm("a", "1"), ResultOrigin()),
            )


def test_names_are_no_formulas(tmp_path):
    volume = a_volume()
    segment = a_block(volume.shape, name="a$_$b")
    write_picture(volume, [segment], tmp_path / "a.png", title=segment.name)
    assert (tmp_path / "a.png").exists()
