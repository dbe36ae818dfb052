"""Run lengths are compared with the bytes that a frame has."""

from __future__ import annotations

import struct

from pumit.io.dicom.codestream import check_frame
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.pixels.encoders.native import _encode_segment
from pydicom.uid import RLELossless


def test_packed_bits_take_an_eighth_of_a_byte() -> None:
    ds = Dataset()
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = RLELossless
    ds.Rows = ds.Columns = 512
    ds.BitsAllocated = ds.SamplesPerPixel = 1
    body = bytes(_encode_segment(bytes(512 * 512 // 8), 512 // 8))
    assert check_frame(ds, struct.pack("<16I", 1, 64, *[0] * 14) + body)
    body = bytes(_encode_segment(bytes(512 * 512 // 8), 512 * 512 // 8))
    assert check_frame(ds, struct.pack("<16I", 1, 64, *[0] * 14) + body)
