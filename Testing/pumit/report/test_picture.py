"""Pictures become planar volumes of 1 mm pixels, gray or RGB, upright and at full depth."""

from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from PIL import Image
from pumit.errors import VolumeError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.volume import Volume

GRAY = (np.arange(30 * 20).reshape(30, 20) % 256).astype(np.uint8)
COLOUR = np.stack([GRAY, 255 - GRAY, GRAY // 2], axis=-1)
EXIF_ORIENTATION = 0x0112


def save(tmp_path: Path, image: Image.Image, name: str = "a.png", **more: object) -> Path:
    image.save(tmp_path / name, **more)
    return tmp_path / name


PALETTE = Image.fromarray(COLOUR).quantize(16)


@pytest.mark.parametrize(
    ("image", "pixels"),
    [
        (Image.fromarray(GRAY), GRAY),
        (Image.fromarray(GRAY).convert("P"), GRAY),
        (Image.fromarray(GRAY > 100), (GRAY > 100) * 255),
        (Image.fromarray(GRAY.astype(np.uint16) * 257), GRAY.astype(np.uint16) * 257),
        (Image.fromarray(COLOUR), COLOUR),
        (Image.fromarray(COLOUR).convert("RGBA"), COLOUR),
        (PALETTE, np.asarray(PALETTE.convert("RGB"))),
    ],
    ids=["gray", "gray palette", "black and white", "16 bit", "colour", "opaque", "palette"],
)
def test_pixels_of_every_kind_are_kept(tmp_path, image, pixels):
    volume = Volume.read(save(tmp_path, image, dpi=(300, 300)))  # which is not trusted
    channels = np.moveaxis(pixels, -1, 0)[:, None] if pixels.ndim == 3 else pixels[None]
    np.testing.assert_array_equal(volume.array, channels)
    assert volume.array.dtype == (np.uint16 if pixels.dtype == np.uint16 else np.uint8)
    assert volume.spacing_mm == (PLANAR_SLICE_SPACING_MM, 1.0, 1.0)
    assert volume.is_planar


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg_is_read(tmp_path, mode):
    image = Image.fromarray(COLOUR).convert(mode)
    volume = Volume.read(save(tmp_path, image, "a.jpg", quality=95))
    assert volume.array.shape == ((1, 30, 20) if mode == "L" else (3, 1, 30, 20))


def test_16_bit_colour_is_kept(tmp_path):
    deep = COLOUR.astype(np.uint16) * 256 + 17
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(deep, isVector=True), str(tmp_path / "a.png"))
    volume = Volume.read(tmp_path / "a.png")
    assert volume.array.dtype == np.uint16
    np.testing.assert_array_equal(volume.array[:, 0], np.moveaxis(deep, -1, 0))


@pytest.mark.parametrize("mode", ["LA", "RGBA", "PA"])
def test_transparent_parts_are_black(tmp_path, mode):
    image = Image.fromarray(COLOUR).convert("RGBA")
    alpha = np.full(GRAY.shape, 255, np.uint8)
    alpha[:10] = 0
    image.putalpha(Image.fromarray(alpha))
    if mode == "PA":
        image = image.quantize(32)
    elif mode == "LA":
        image = image.convert("LA")
    volume = Volume.read(save(tmp_path, image))
    assert volume.array[..., :10, :].max() == 0
    assert volume.array[..., 10:, :].max() > 0


@pytest.mark.parametrize(
    ("name", "orientation"),
    [("a.png", 6), *((name, n) for name in ("a.jpg", "deep.png") for n in range(1, 9))],
)
def test_exif_orientation_is_honoured(tmp_path, orientation, name):
    # One bright corner tells all eight orientations apart together with the picture's shape.
    upright = np.zeros((40, 24, 3), np.uint8)
    upright[:8, :8] = (250, 250, 250)
    upright[:8, 16:] = (120, 120, 120)
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = Image.fromarray(upright)
    if orientation in undo:
        stored = stored.transpose(undo[orientation])
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    if name == "deep.png":
        path = _deep_png_with_exif(tmp_path, np.asarray(stored), exif)
        upright = upright.astype(np.uint16) * 256
    else:
        path = save(tmp_path, stored, name, exif=exif)
    array = Volume.read(path).array[:, 0].astype(int)
    assert array.shape == (3, 40, 24)
    scale = int(upright.max()) / 250
    assert np.abs(array - np.moveaxis(upright, -1, 0)).max() < 30 * scale


def _deep_png_with_exif(tmp_path: Path, pixels: np.ndarray, exif: Image.Exif) -> Path:
    import struct
    import zlib

    path = tmp_path / "deep.png"
    deep = SimpleITK.GetImageFromArray(pixels.astype(np.uint16) * 256, isVector=True)
    SimpleITK.WriteImage(deep, str(path))
    content = path.read_bytes()
    body = b"eXIf" + exif.tobytes().removeprefix(b"Exif\0\0")
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    path.write_bytes(content[:33] + chunk + content[33:])
    return path


@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
@pytest.mark.parametrize("part", [0.05, 0.5, 0.9])
def test_truncated_picture_is_refused(tmp_path, name, part):
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    path = save(tmp_path, Image.fromarray(noise), name)
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(VolumeError, match="damaged") as caught:
        Volume.read(path)
    assert "\n" not in str(caught.value)


def test_absurdly_large_picture_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(VolumeError, match="more than 200 pixels"):
        Volume.read(save(tmp_path, Image.fromarray(GRAY)))
