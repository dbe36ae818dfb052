"""Array bodies: exact both ways, and harmless whatever a stranger sends."""

import contextlib
import pickle
import struct
import sys
import tracemalloc

import blosc2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pumit.wire.arrays import pack_array, pack_array_in_parts, unpack_array
from pumit.wire.protocol import ArrayError, TooLarge

MIB = 1 << 20
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
DTYPES = ["bool", *INTEGERS, "float16", "float32", "float64"]


def envelope(chunk: bytes, *, plain: int, shape=(4, 4, 4), dtype=b"int16", codec=2) -> bytes:
    """An envelope written field by field, as the protocol describes it."""
    head = struct.pack("<4sBBBB", b"NNIA", 1, codec, len(shape), len(dtype)) + dtype
    head += struct.pack(f"<{len(shape)}q", *shape)
    return head + struct.pack("<IQQ", 1, plain, len(chunk)) + chunk


def compressed(plain: bytes, typesize: int = 2) -> bytearray:
    return bytearray(blosc2.compress2(plain, typesize=typesize, codec=blosc2.Codec.LZ4))


def unpack(body: bytes):
    return unpack_array(body, max_bytes=MIB, axes=(1, 2, 3, 4))


@settings(max_examples=40, deadline=None)
@given(
    array=hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=1, max_dims=4)),
    codec=st.sampled_from(["lz4", "zstd", "stored"]),
)
def test_an_array_comes_back_exactly(array, codec):
    back = unpack(pack_array(array, codec=codec))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("dtype", ["bool", "int16", "float64"])
def test_a_stored_chunk_is_one_of_blosc2(dtype):
    array = (np.arange(5 * 7 * 300) % 2).astype(dtype).reshape(5, 7, 300)
    *_, sizes, head, piece = pack_array_in_parts(array, codec="stored")
    assert blosc2.decompress2(bytes(head) + bytes(piece)) == array.tobytes()
    assert struct.unpack("<QQ", sizes) == (array.nbytes, array.nbytes + len(head))


def test_stored_arrays_need_no_blosc2(monkeypatch):
    monkeypatch.setitem(sys.modules, "blosc2", None)
    array = np.arange(3 << 20, dtype=np.int16).reshape(3, 1024, 1024)  # two chunks
    body = pack_array(array, codec="stored")
    np.testing.assert_array_equal(unpack_array(body, max_bytes=8 * MIB, axes=(3,)), array)
    with pytest.raises(ImportError):
        pack_array(array)


@pytest.mark.parametrize("layout", ["F", "big-endian", "strided", "zeros"])
def test_memory_layout_does_not_matter(layout):
    array = np.arange(2 * 3 * 500, dtype=np.int32).reshape(2, 3, 500)
    array = {
        "F": np.asfortranarray(array),
        "big-endian": array.astype(">i4"),
        "strided": array[:, ::-1, ::3],
        "zeros": np.zeros_like(array),
    }[layout]
    np.testing.assert_array_equal(unpack(pack_array(array)), array)


def test_the_published_layout_is_read():
    array = np.arange(64, dtype="<i2").reshape(4, 4, 4)
    body = envelope(bytes(compressed(array.tobytes())), plain=128)
    np.testing.assert_array_equal(unpack(body), array)


def test_the_parts_of_an_envelope_are_the_envelope_and_are_joined(monkeypatch):
    monkeypatch.setattr("pumit.wire.arrays._CHUNK_BYTES", 1 << 10)
    array = np.random.default_rng(2).integers(0, 99, (5, 20, 20)).astype(np.int16)
    parts = pack_array_in_parts(array)
    assert len(list(parts)) > 4
    assert b"".join(parts) == pack_array(array)
    assert len(parts) == len(pack_array(array))
    np.testing.assert_array_equal(unpack(pack_array(array)), array)


def test_a_bomb_is_refused_before_anything_is_allocated():
    side = 1 << 11
    zeros = bytes(compressed(bytes(1 << 20), 1))
    body = envelope(zeros, plain=1 << 20, shape=(side, side, side), dtype=b"uint8")
    tracemalloc.start()
    with pytest.raises(TooLarge, match="8589934592 bytes"):
        unpack(body)
    assert tracemalloc.get_traced_memory()[1] < MIB
    tracemalloc.stop()


def test_a_chunk_that_says_more_than_its_envelope_is_refused():
    bomb = bytes(compressed(bytes(64 * MIB), 1))
    with pytest.raises(ArrayError):
        unpack(envelope(bomb, plain=128, dtype=b"int16"))
    with pytest.raises(ArrayError):
        unpack(envelope(bomb, plain=64 * MIB, dtype=b"int16"))


def test_more_than_allowed_is_refused_though_it_is_sound():
    body = pack_array(np.zeros((4, 4, 4)))
    with pytest.raises(TooLarge):
        unpack_array(body, max_bytes=511, axes=(3,))
    with pytest.raises(ArrayError, match="axes"):
        unpack_array(body, max_bytes=512, axes=(4,))
    assert unpack_array(body, max_bytes=512, axes=(3,)).shape == (4, 4, 4)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (31, 0x08),  # lazy chunk: its bytes would be read from a file
        (31, 0x40),  # uninitialised: would show what memory held before
        (31, 0x01),  # dictionary
        (16, 35),  # a registered filter
        (2, 0xC5),  # a user's codec
        (2, 0x24),  # header without filters
        (3, 0),
        (3, 3),
        (8, 0xFF),
        (0, 0x63),
    ],
)
def test_exotic_or_damaged_chunks_are_refused_before_they_are_decoded(at, value, monkeypatch):
    monkeypatch.setattr(blosc2, "decompress2", lambda *_, **__: pytest.fail("was decoded"))
    chunk = compressed(np.arange(64, dtype="<i2").tobytes())
    chunk[at] = value
    with pytest.raises(ArrayError):
        unpack(envelope(bytes(chunk), plain=128))


def test_an_array_in_crumbs_is_refused_before_they_are_inspected():
    one = bytes(compressed(b"a", 1))
    piece = struct.pack("<QQ", 1, len(one)) + one
    body = envelope(b"", plain=0, shape=(1, 100, 100), dtype=b"uint8")[:-20]
    with pytest.raises(ArrayError, match="too many chunks"):
        unpack(body + struct.pack("<I", 10_000) + piece * 10_000)


def test_truth_is_one_whatever_was_sent():
    body = pack_array(np.arange(64, dtype=np.uint8).reshape(4, 4, 4))
    mask = unpack(body.replace(b"\x05uint8", b"\x04bool"))
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask.view(np.uint8).ravel(), [0] + [1] * 63)


@pytest.mark.parametrize("dtype", [b"object", b"complex64", b"V16", b""])
def test_only_plain_numbers_are_read(dtype):
    with pytest.raises(ArrayError, match="type"):
        unpack(envelope(b"", plain=0, dtype=dtype))


@pytest.mark.parametrize("shape", [(0, 4, 4), (), (1,) * 5, (2**62, 2**62, 2**62)])
def test_impossible_shapes_are_refused(shape):
    with pytest.raises(ArrayError):
        unpack(envelope(b"", plain=0, shape=shape))


def test_every_truncation_and_every_addition_is_refused():
    body = pack_array(np.arange(60, dtype=np.int16).reshape(3, 4, 5))
    for length in range(len(body)):
        with pytest.raises(ArrayError):
            unpack(body[:length])
    with pytest.raises(ArrayError):
        unpack(body + b"\0")


def test_a_pickle_is_no_array():
    with pytest.raises(ArrayError):
        unpack(pickle.dumps(np.zeros(3)))
    with pytest.raises(ArrayError):
        unpack(blosc2.pack(np.zeros(300)))
    with pytest.raises(ArrayError):
        pack_array(np.array([{}, {}]))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damage_never_raises_anything_else(data):
    array = np.arange(2000, dtype=np.int16).reshape(10, 20, 10) % 7
    body = bytearray(pack_array(array, codec=data.draw(st.sampled_from(["lz4", "zstd"]))))
    for _ in range(data.draw(st.integers(1, 5))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ArrayError):
        assert unpack(bytes(body)).nbytes <= MIB
