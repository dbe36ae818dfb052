"""Scan, reconstruction and error side by side."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pumit.errors import ExportError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.report.reconstruction_picture import write_reconstruction_picture, write_token_plot
from pumit.volume import Volume

PLANAR = (PLANAR_SLICE_SPACING_MM, 1.0, 1.0)


def drawn(path: Path, shape: tuple[int, int, int], spacing: tuple[float, float, float]) -> Path:
    """A picture of a scan whose reconstruction is dark on the left and too bright on the right."""
    scan = np.full(shape, 100, dtype=np.float32)
    scan[..., 0] = 0
    back = scan.copy()
    back[..., shape[2] // 2 :] = 160
    write_reconstruction_picture(
        Volume(scan, spacing), back, back - scan, path, title="T", caption="A sentence. " * 20
    )
    return path


def pixels(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


@pytest.mark.parametrize(
    ("shape", "spacing", "rows"),
    [
        ((1, 60, 90), PLANAR, 1),
        ((4, 60, 90), (5.0, 1.0, 1.0), 1),  # across the slices there is nothing to see
        ((40, 60, 90), (2.0, 1.0, 1.0), 2),
        ((1, 1, 1), PLANAR, 1),
    ],
)
def test_rows_show_what_there_is_to_see(tmp_path, shape, spacing, rows):
    image = pixels(drawn(tmp_path / "p.png", shape, spacing))
    red = (image[..., 0] > 150) & (image[..., 2] < 60)  # the error where it is too bright
    in_rows = red.sum(1) > 40
    starts = np.flatnonzero(np.diff(in_rows.astype(int)) == 1)
    assert len(starts) == rows
    assert np.flatnonzero(red.any(0)).min() > image.shape[1] / 2  # the last of three columns


def test_a_scan_without_any_error_is_drawn(tmp_path):
    scan = np.zeros((3, 20, 20), dtype=np.float32)
    path = tmp_path / "p.png"
    write_reconstruction_picture(Volume(scan), scan, scan, path)
    assert pixels(path).shape[1] > 500
    with pytest.raises(ExportError):
        write_reconstruction_picture(Volume(scan), scan, scan, tmp_path / "gone" / "p.png")


def test_the_token_plot_shows_the_usual_use_in_its_order(tmp_path):
    usual = np.linspace(2, 1, 200) / 300  # token 0 is the most usual one
    shares = usual[::-1]
    plain, compared = tmp_path / "a.png", tmp_path / "b.png"
    write_token_plot(shares, plain)
    write_token_plot(shares, compared, usual=usual)

    def heights(path: Path) -> np.ndarray:
        """Uppermost blue pixel of the columns that have any, from the left."""
        image = pixels(path)
        blue = (image[..., 2] > 150) & (image[..., 0] < 120) & (image[..., 1] > 90)
        blue[: image.shape[0] // 8] = False  # the legend
        return blue.argmax(0)[blue.any(0)]

    assert heights(plain)[:50].mean() < heights(plain)[-50:].mean()  # falls to the right
    assert heights(compared)[:50].mean() > heights(compared)[-50:].mean()
    with pytest.raises(ValueError, match="200 tokens, got 3"):
        write_token_plot(shares, plain, usual=usual[:3])
