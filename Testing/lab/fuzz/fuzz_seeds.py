"""Seeds for fuzzing the readers: small generated valid files of each kind.

`python Testing/lab/fuzz/fuzz_seeds.py FOLDER` writes a folder for each target of `fuzz_files.py`.
"""

import argparse
import io
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import SimpleITK
from PIL import Image
from pumit.volume import Volume
from pumit.wire.arrays import pack_array
from pydicom.dataset import Dataset
from pydicom.encaps import generate_frames
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "pumit" / "io"))

from compressed_frames import compressed, jpeg_lossless
from generated_scans import dicom_slice, itk_image, pattern, rotation
from label_objects_made import a_series, blobs, save_segments, write_seg, write_struct

PIXELS = (np.add.outer(np.arange(8), np.arange(8)) * 9 + 10).astype(np.uint16)
DEFLATED_FRAMES = "1.2.840.10008.1.2.8.1"


def scan_for_labels(folder: Path) -> Volume:
    """Return the scan of the segmentations and contours."""
    scan = folder / "scan"
    return Volume.read(scan) if scan.is_dir() else a_series(scan)


def write_seeds(folder: Path) -> None:
    """Write the seeds of every target, each into a folder of its name."""
    for name, write in _WRITERS.items():
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        write(target)


def _nifti(folder: Path) -> None:
    for name, dtype in (("a.nii", np.int16), ("b.nii", np.float32), ("c.nii.gz", np.uint8)):
        image = itk_image(pattern((3, 4, 5)).astype(dtype), direction=rotation(10, 20, 30))
        SimpleITK.WriteImage(image, str(folder / name))


def _nrrd(folder: Path) -> None:
    image = itk_image(pattern((3, 4, 5)), direction=rotation(10, 20, 30))
    for name, is_packed in (("a.nrrd", False), ("b.nrrd", True), ("c.mha", False)):
        SimpleITK.WriteImage(image, str(folder / name), is_packed)


def _picture(folder: Path) -> None:
    gray, colour = np.arange(100, dtype=np.uint8).reshape(10, 10), np.zeros((6, 5, 3), np.uint8)
    Image.fromarray(gray).save(folder / "a.png")
    Image.fromarray(colour).save(folder / "b.png")
    Image.fromarray(gray).save(folder / "c.jpg")
    Image.fromarray(gray.astype(np.uint16)).save(folder / "d.png")


def _j2k(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="JPEG2000", no_jp2=True, irreversible=False)
    return stream.getvalue()


def _objects(folder: Path) -> dict[str, Dataset]:
    """Return the same slice in each encoding."""
    small = (PIXELS // 2).astype(np.uint8)
    jpeg = io.BytesIO()
    Image.fromarray(small).save(jpeg, format="JPEG")
    found = {name: dicom_slice(PIXELS, (0.0, 0.0, 1.0)) for name in ("plain", "implicit", "zipped")}
    found["implicit"].file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
    found["zipped"].file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    big = dicom_slice(PIXELS.byteswap(), None)
    big.file_meta.TransferSyntaxUID = ExplicitVRBigEndian
    found["big"] = big
    for name, syntax in (("rle", RLELossless), ("jls", JPEGLSLossless)):
        found[name] = dicom_slice(PIXELS, None)
        found[name].compress(syntax, generate_instance_uid=False)
    frames = {
        "j2k": (PIXELS, _j2k(PIXELS), JPEG2000Lossless),
        "jpeg": (small, jpeg.getvalue(), JPEGBaseline8Bit),
        "jpegll": (PIXELS, jpeg_lossless(PIXELS, folder), JPEGLosslessSV1),
    }
    for name, (pixels, frame, syntax) in frames.items():
        found[name] = compressed(dicom_slice(pixels, None), [frame], syntax)
    several = dicom_slice(PIXELS, None, NumberOfFrames=2)
    several.PixelData = PIXELS.tobytes() * 2
    found["frames"] = several
    colours = dicom_slice(small, None, PhotometricInterpretation="PALETTE COLOR")
    for colour in ("Red", "Green", "Blue"):
        colours.add_new(f"{colour}PaletteColorLookupTableDescriptor", "US", [256, 0, 8])
        colours.add_new(f"{colour}PaletteColorLookupTableData", "OW", bytes(range(256)))
    found["palette"] = colours
    return found


def _dicom(folder: Path) -> None:
    for name, ds in _objects(folder).items():
        ds.save_as(folder / f"{name}.dcm", enforce_file_format=True)
    (folder / "encoded.dcm").unlink(missing_ok=True)
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    frame = deflate.compress(PIXELS.tobytes()) + deflate.flush()
    ds = compressed(dicom_slice(PIXELS, None), [frame], DEFLATED_FRAMES)
    ds.preamble = bytes(128)
    ds.save_as(folder / "deflated.dcm", implicit_vr=False, little_endian=True, force_encoding=True)


def _codestream(folder: Path) -> None:
    """Write only the compressed frames; the target adds headers."""
    for name, ds in _objects(folder).items():
        if ds.file_meta.TransferSyntaxUID.is_compressed:
            frame = next(generate_frames(ds.PixelData, number_of_frames=1))
            (folder / f"{name}.bin").write_bytes(frame)
    (folder / "encoded.dcm").unlink(missing_ok=True)


def _zip(folder: Path) -> None:
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for k in range(2):
            stream = io.BytesIO()
            dicom_slice(PIXELS[:4, :4], (0, 0, 2.0 * k)).save_as(stream, enforce_file_format=True)
            archive.writestr(f"{k}.dcm", stream.getvalue())


def _seg(folder: Path) -> None:
    volume = scan_for_labels(folder.parent)
    masks = np.stack(blobs(), -1)
    write_seg(folder / "binary.dcm", volume, masks.astype(np.uint8), "BINARY", ["a", "b"])
    half = masks[..., :1].astype(np.float32)
    write_seg(folder / "fraction.dcm", volume, half, "FRACTIONAL", ["a"])


def _rtstruct(folder: Path) -> None:
    volume = scan_for_labels(folder.parent)
    square = np.array([(2, 2, 2), (2, 2, 9), (2, 9, 9), (2, 9, 2)])
    write_struct(
        folder / "a.dcm", volume, {"a": [square, square + np.array([1, 0, 0])], "b": [square + 1]}
    )


def _labels(folder: Path) -> None:
    volume = scan_for_labels(folder.parent)
    save_segments(folder / "a.seg.nrrd", volume)
    image = SimpleITK.GetImageFromArray(blobs()[0].astype(np.uint8))
    SimpleITK.WriteImage(image, str(folder / "b.nii.gz"))
    Image.fromarray(np.eye(9, dtype=np.uint8) * 3).convert("P").save(folder / "c.png")


def _wire(folder: Path) -> None:
    for dtype in (np.uint8, np.int16, np.float32, np.bool_):
        for codec in ("zstd", "lz4", "stored"):
            array = np.arange(60).reshape(3, 4, 5).astype(dtype)
            packed = pack_array(array, codec=codec)
            (folder / f"{np.dtype(dtype).name}-{codec}").write_bytes(packed)


_WRITERS: dict[str, Callable[[Path], None]] = {
    "nifti": _nifti,
    "nrrd": _nrrd,
    "picture": _picture,
    "dicom": _dicom,
    "codestream": _codestream,
    "zip": _zip,
    "seg": _seg,
    "rtstruct": _rtstruct,
    "labels": _labels,
    "wire": _wire,
}


def main() -> None:
    """Write the seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder to write into")
    write_seeds(parser.parse_args().folder)


if __name__ == "__main__":
    main()
