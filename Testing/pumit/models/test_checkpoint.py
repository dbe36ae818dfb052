"""A checkpoint is read whole or not at all, and nothing in it is ever run."""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from pumit.errors import CheckpointError, ExportError
from pumit.models.checkpoint import (
    FORMAT,
    copy_checkpoint,
    fingerprint,
    load_checkpoint,
    read_recipe,
    save_checkpoint,
)
from safetensors.torch import save_file

RECIPE = {"name": "x", "network": "promptable", "sizes": {"dim": 24}, "licence": "Apache-2.0"}


def state() -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    return {
        "single": torch.randn(3, 4, generator=g),
        "half": torch.randn(5, generator=g).half(),
        "bfloat": torch.randn(2, 2, generator=g).bfloat16(),
        "scalar": torch.tensor(7),
        "flags": torch.tensor([True, False]),
        "turned": torch.randn(3, 4, generator=g).T,
        "none": torch.zeros(0, 3),
    }


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, state(), RECIPE)
    return path


def a_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("weights", b"0" * 100)
    return buffer.getvalue()


def assert_refused(path: Path, reason: str | None = None) -> None:
    with pytest.raises(CheckpointError, match=reason) as caught:
        load_checkpoint(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path.parent) not in message


def test_weights_and_recipe_round_trip(checkpoint):
    read = load_checkpoint(checkpoint)
    assert read.recipe == RECIPE
    assert read.state.keys() == state().keys()
    for name, tensor in state().items():
        assert read.state[name].dtype == tensor.dtype
        torch.testing.assert_close(read.state[name], tensor, rtol=0, atol=0)
    assert read.sha256 == fingerprint(state())


@pytest.mark.skipif(os.name != "posix", reason="the system has other permissions")
def test_a_checkpoint_may_be_read_like_any_other_file(checkpoint):
    """As by the other people of a shared campaign, or by a server."""
    other = checkpoint.with_name("other")
    other.touch()
    assert checkpoint.stat().st_mode == other.stat().st_mode


def test_recipe_is_read_without_the_weights(checkpoint):
    assert read_recipe(checkpoint) == (RECIPE, fingerprint(state()))


def test_shared_tensors_are_saved_each(tmp_path):
    tensor = torch.ones(4)
    path = tmp_path / "tied.safetensors"
    save_checkpoint(path, {"a": tensor, "b": tensor, "c": tensor[:2]}, RECIPE)
    assert load_checkpoint(path).state.keys() == {"a", "b", "c"}


def test_fingerprint_tells_names_types_shapes_and_values_apart():
    base = {"a": torch.zeros(2, 3)}
    others = [
        {"b": torch.zeros(2, 3)},
        {"a": torch.zeros(3, 2)},
        {"a": torch.zeros(2, 3, dtype=torch.int32)},
        {"a": torch.tensor([[0.0, 0, 0], [0, 0, 1e-30]])},
        {"a": -torch.zeros(2, 3)},
        {**base, "b": torch.zeros(0)},
    ]
    assert len({fingerprint(s) for s in [base, *others]}) == 1 + len(others)


def test_flipped_bits_are_noticed(checkpoint):
    whole = checkpoint.read_bytes()
    header_end = 8 + struct.unpack("<Q", whole[:8])[0]
    last_letter = max(i for i in range(header_end) if whole[i : i + 1] == b"}")
    for i in range(0, len(whole), 2):
        damaged = bytearray(whole)
        damaged[i] ^= 1 << (i % 8)
        checkpoint.write_bytes(damaged)
        if i in range(last_letter + 1, header_end):
            continue  # blanks that fill the header up
        try:
            read = load_checkpoint(checkpoint)
        except CheckpointError:
            continue
        # Only the name of the recipe's checksum may be lost: everything that counts is whole.
        assert read.recipe == RECIPE
        assert read.sha256 == fingerprint(state())


def test_truncations_and_what_is_appended_are_noticed(checkpoint):
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole + b"\0" * 16)
    assert_refused(checkpoint)
    for length in range(0, len(whole), 7):
        checkpoint.write_bytes(whole[:length])
        assert_refused(checkpoint)


class _Trap:
    """Leaves a file where it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.mkdir, (str(self.trace), 0o700)


@pytest.mark.parametrize("protocol", [0, pickle.HIGHEST_PROTOCOL])
def test_a_pickle_in_disguise_is_not_run(tmp_path, protocol):
    trace = tmp_path / "trace"
    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(_Trap(trace), protocol=protocol))
    assert_refused(path)
    assert not trace.exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_torch_file_in_disguise_is_not_run(tmp_path, zipped):
    trace = tmp_path / "trace"
    path = tmp_path / "model.safetensors"
    torch.save({"state": _Trap(trace)}, path, _use_new_zipfile_serialization=zipped)
    assert_refused(path, "pickle")
    assert not trace.exists()


def test_a_header_whose_length_looks_like_a_pickle_is_read(tmp_path):
    path = tmp_path / "m.safetensors"
    save_checkpoint(path, {"w": torch.zeros(1)}, {"note": ""})
    length = struct.unpack("<Q", path.read_bytes()[:8])[0]
    recipe = {"note": "x" * (640 - length)}
    save_checkpoint(path, {"w": torch.zeros(1)}, recipe)
    assert path.read_bytes()[:2] == b"\x80\x02"  # 640 bytes of header
    assert read_recipe(path)[0] == recipe


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    path = tmp_path / "foreign.safetensors"
    save_file({"a": torch.zeros(3)}, str(path))
    assert_refused(path, "another program's")
    save_file({"a": torch.zeros(3)}, str(path), metadata={"format": "pt"})
    assert_refused(path, "another program's")


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"recipe": recipe}
            for recipe in ("", "[]", "3", "null", "{", "[" * 20000, '{"a": ' + "9" * 5000 + "}")
        ),
        {"recipe": None},
        {"sha256": None},
    ],
)
def test_a_damaged_or_absent_recipe_is_refused(tmp_path, changes):
    path = tmp_path / "model.safetensors"
    given = {"format": FORMAT, "sha256": "0", "recipe": "{}", **changes}
    metadata = {key: value for key, value in given.items() if value is not None}
    save_file({"a": torch.zeros(3)}, str(path), metadata=metadata)
    assert_refused(path, "recipe")


def test_a_checkpoint_without_a_checksum_of_its_recipe_still_loads(tmp_path):
    path = tmp_path / "early.safetensors"
    metadata = {"format": FORMAT, "sha256": fingerprint(state()), "recipe": json.dumps(RECIPE)}
    save_file({k: v.contiguous() for k, v in state().items()}, str(path), metadata=metadata)
    assert load_checkpoint(path).recipe == RECIPE


@pytest.mark.parametrize(
    "content", [b"", b"\x00", b"{}", b"\xff" * 64, b"# not a model\n" * 20, a_zip()]
)
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    assert_refused(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    assert_refused(tmp_path / "none.safetensors", "no checkpoint")
    assert_refused(tmp_path, "is a folder; name the .safetensors file in it")


def test_a_file_that_may_not_be_read_is_refused(checkpoint, monkeypatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert_refused(checkpoint, "Permission denied")


def test_saving_below_a_file_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError):
        save_checkpoint(tmp_path / "file" / "model.safetensors", state(), RECIPE)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_failed_save_keeps_the_earlier_checkpoint(checkpoint, monkeypatch):
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pumit.models.checkpoint.write_tensors", fail)
    with pytest.raises(ExportError, match="full"):
        save_checkpoint(checkpoint, {"a": torch.ones(1)}, RECIPE)
    assert load_checkpoint(checkpoint).recipe == RECIPE
    assert [p.name for p in checkpoint.parent.iterdir()] == [checkpoint.name]


def test_a_copy_has_the_same_weights_and_its_own_recipe(tmp_path):
    state = {"a": torch.rand(3, 4), "b": torch.rand(5).half()}
    source, target = tmp_path / "source.safetensors", tmp_path / "target.safetensors"
    sha256 = save_checkpoint(source, state, {"name": "source", "sizes": {"dim": 3}})
    copy_checkpoint(source, target, {"name": "another", "text": "é" * 100})
    copied = load_checkpoint(target)
    assert copied.recipe == {"name": "another", "text": "é" * 100}
    assert copied.sha256 == sha256
    assert all(torch.equal(copied.state[name], state[name]) for name in state)
    assert load_checkpoint(source).recipe["name"] == "source"
