"""Reader of PNG and JPEG images: one slice, gray or RGB."""

import os
from pathlib import Path

import numpy as np
import SimpleITK
from PIL import Image, ImageOps

from pumit.errors import VolumeError
from pumit.file_image import FileImage
from pumit.geometry import PLANAR_SLICE_SPACING_MM, Array
from pumit.io.parser_errors import MAX_COMPRESSION, muted_stderr, parsing

# Offsets of bit depth and colour type in a PNG.
_PNG_BIT_DEPTH, _PNG_COLOUR_TYPE = 24, 25
# Pillow calls a JPEG that holds several pictures, as of telephones, an MPO.
_JPEG = ("JPEG", "MPO")
_EXIF_ORIENTATION = 0x0112
# Each scan of a progressive JPEG is a pass over all pixels; programs write about ten.
_SCAN, _MOST_SCANS = b"\xff\xda", 100

# Pixels are 1 mm, as pictures state no physical size, and planar.
PICTURE_STEPS = np.diag([1.0, 1.0, PLANAR_SLICE_SPACING_MM])


def read_picture(path: Path) -> FileImage:
    """Read a PNG or JPEG as a planar volume with 1 mm pixels.

    The stated resolution is for a screen or printer and is ignored. The EXIF orientation is
    applied. Gray stays one channel, 8 or 16 bits; colour and palettes become RGB, shape
    (3, 1, H, W). Transparent pixels are blended with black, like the background of a scan.

    Raises:
        VolumeError: If the file is damaged, truncated or absurdly large.
    """
    with parsing("picture"):
        try:
            pixels = _without_alpha(_read(path))
        except Image.DecompressionBombError as error:
            raise VolumeError(
                f"The picture has more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels; "
                "crop it or scale it down."
            ) from error
    array = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)[:, None]
    return FileImage(
        np.ascontiguousarray(array),
        PICTURE_STEPS.copy(),
        np.zeros(3),
        has_spacing=False,
        has_position=False,
    )


def is_picture(start: bytes) -> bool:
    """Return whether a file starts like a PNG or JPEG."""
    return start.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"))


def read_label_picture(path: Path) -> FileImage:
    """Read a PNG or JPEG as a planar label map.

    Labels are palette indices if the palette has colours, else grey values, even if stored as RGB.

    Raises:
        VolumeError: If the file is damaged, holds colours without a palette, or is a JPEG with more
            than two values, which its compression changed.
    """
    with parsing("picture"), Image.open(path, formats=("PNG", "JPEG")) as image:
        is_jpeg = image.format in _JPEG
        _check_jpeg(image, path)
        image.load()
        # The palette decides, not the pixels: a file may contain only a few of the classes.
        entries = np.reshape(image.getpalette("RGB") or [], (-1, 3))
        is_index = image.mode == "P" and bool((entries != entries[:, :1]).any())
        indices = np.asarray(ImageOps.exif_transpose(image))[None] if is_index else None
    values = read_picture(path).array if indices is None else indices
    if values.ndim == 4 and (values == values[:1]).all():
        values = values[0]
    if values.ndim == 4:
        raise VolumeError(
            "The label map is a colour image, and colours are not label values; save it as PNG "
            "with one grey value, or one palette entry, for each class."
        )
    if is_jpeg and len(np.unique(values)) > 2:
        raise VolumeError(
            "The label map is a JPEG, whose compression changed its values; save the labels as PNG."
        )
    return FileImage(np.ascontiguousarray(values), PICTURE_STEPS.copy(), np.zeros(3))


def _read(path: Path) -> Array:
    with path.open("rb") as stream:
        start = stream.read(32)
    if _is_deep_colour_png(start):
        return _deep_colour(path)
    with Image.open(path, formats=("PNG", "JPEG")) as image:
        _check_jpeg(image, path)
        image.load()
        return _pixels(ImageOps.exif_transpose(image))


def _check_jpeg(image: Image.Image, path: Path) -> None:
    """Refuse a JPEG that announces far more than it can hold; libjpeg fills missing pixels."""
    if image.format not in _JPEG:
        return
    size, scans = path.stat().st_size, path.read_bytes().count(_SCAN)
    if image.width * image.height > MAX_COMPRESSION * size or scans > _MOST_SCANS:
        raise VolumeError(
            f"The JPEG header states {image.width} x {image.height} pixels in {scans} passes, "
            f"far more than its {size} bytes can hold: it is damaged; save the picture again."
        )


def _is_deep_colour_png(start: bytes) -> bool:
    # Pillow would reduce 16-bit colour, and 16-bit gray with alpha, to 8 bits.
    is_png = start.startswith(b"\x89PNG") and len(start) > _PNG_COLOUR_TYPE
    return is_png and start[_PNG_BIT_DEPTH] == 16 and start[_PNG_COLOUR_TYPE] in (2, 4, 6)


def _deep_colour(path: Path) -> Array:
    with Image.open(path, formats=("PNG",)) as image:
        image.load()  # finds damage that libpng ignores, and pictures that are too large
        orientation = image.getexif().get(_EXIF_ORIENTATION, 1)
    with muted_stderr():
        reader = SimpleITK.ImageFileReader()
        reader.SetImageIO("PNGImageIO")
        reader.SetFileName(os.fspath(path))
        pixels = SimpleITK.GetArrayFromImage(reader.Execute())
    return _turned(pixels, orientation)


def _turned(pixels: Array, orientation: int) -> Array:
    """Apply an EXIF orientation 1..8 to (H, W, C), as Pillow does it to a picture of indices."""
    rows, columns, channels = pixels.shape
    places = Image.fromarray(np.arange(rows * columns, dtype=np.int32).reshape(rows, columns))
    places.getexif()[_EXIF_ORIENTATION] = orientation
    return pixels.reshape(-1, channels)[np.asarray(ImageOps.exif_transpose(places))]


def _pixels(image: Image.Image) -> Array:
    """Return (H, W) for gray, (H, W, C) for others; C = 2 or 4 includes alpha."""
    if image.mode in ("L", "I;16", "LA", "RGB", "RGBA"):
        return np.array(image)
    if image.mode == "I":  # how older versions of Pillow, as in some of Slicer, hold 16-bit gray
        return np.asarray(image).astype(np.uint16)
    if image.mode == "1":
        return np.asarray(image.convert("L"))
    if image.mode in ("P", "PA"):
        has_alpha = image.mode == "PA" or "transparency" in image.info
        pixels = np.asarray(image.convert("RGBA" if has_alpha else "RGB"))
        is_gray = bool((pixels[..., :3] == pixels[..., :1]).all())
        # An image with only gray palette colours is read as gray.
        return pixels[..., (0, 3)[: pixels.shape[-1] - 2]] if is_gray else pixels
    return np.asarray(image.convert("RGB"))


def _without_alpha(pixels: Array) -> Array:
    if pixels.ndim == 2:
        return pixels
    if pixels.shape[-1] in (2, 4):
        alpha = pixels[..., -1:]
        opaque = np.iinfo(pixels.dtype).max
        colour = pixels[..., :-1]
        if (alpha != opaque).any():
            mixed = colour * (alpha / np.float32(opaque))
            colour = np.rint(mixed).astype(pixels.dtype)
        pixels = colour
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels
