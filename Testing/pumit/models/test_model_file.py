"""A model goes through one file whole, and no file of another kind gets past the checks."""

import json
import shutil
import zipfile
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from known_networks import save_model
from pumit.errors import CheckpointError, ExportError, PumitError
from pumit.models import model_file
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.models.index import find_model, list_models, verify_model
from pumit.models.model_file import check_model, export_model, import_model
from pumit.models.user_index import register, remove
from pumit.networks.build import build_network

pytestmark = pytest.mark.usefixtures("known_networks")

PNG = b"\x89PNG\r\n\x1a\n and so on"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of models; in it one called `bright`, with a card."""
    folder = tmp_path / "home"
    monkeypatch.setenv("PUMIT_MODELS", str(folder))
    run = tmp_path / "run"
    (run / "pictures").mkdir(parents=True)
    (run / "pictures" / "worst_1.png").write_bytes(PNG)
    (run / "card.md").write_text("# bright\n![worst](pictures/worst_1.png)\n")
    (run / "card.json").write_text('{"name": "bright"}')
    register(save_model(run / "bright.safetensors", licence="CC0"), card=run / "card.md")
    return folder


@pytest.fixture
def exported(home: Path, tmp_path: Path) -> Path:
    """`bright` as one file, and no longer in the index."""
    path = tmp_path / "bright.pumit.zip"
    export_model("bright", path)
    remove("bright")
    return path


def content(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(
    path: Path, change: Callable[[dict[str, bytes]], Any], kind: int = zipfile.ZIP_STORED
) -> None:
    """Write an archive again after a change to its members."""
    members = content(path)
    change(members)
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def listed(**changes: Any) -> Callable[[dict[str, bytes]], None]:
    """A change to the manifest."""

    def change(members: dict[str, bytes]) -> None:
        manifest = json.loads(members["manifest.json"])
        for key, value in changes.items():
            if key == "files":
                manifest["files"].update(value)
            else:
                manifest[key] = value
        members["manifest.json"] = json.dumps(manifest).encode()

    return change


def own() -> list[str]:
    return [entry.name for entry in list_models() if entry.source == "own"]


def test_a_model_goes_through_a_file_whole(exported):
    entry = import_model(exported)
    verify_model(entry)
    assert (entry.name, entry.kind, entry.licence) == ("bright", "automatic", "CC0")
    assert entry.origin == "imported"
    assert entry.card_path.read_text().startswith("# bright")
    assert (entry.path.parent / "pictures" / "worst_1.png").read_bytes() == PNG
    assert json.loads((entry.path.parent / "card.json").read_text()) == {"name": "bright"}


def test_it_can_be_called_otherwise_and_is_then_called_so_inside(exported):
    assert import_model(exported, name="theirs").name == "theirs"
    assert load_checkpoint(find_model("theirs")).recipe["name"] == "theirs"


def test_the_same_model_gives_the_same_file(home, tmp_path):
    for name in ("a", "b"):
        export_model("bright", tmp_path / f"{name}.pumit.zip")
    a, b = ((tmp_path / f"{name}.pumit.zip").read_bytes() for name in ("a", "b"))
    assert a == b


def test_a_checkpoint_goes_with_the_card_next_to_it(home, tmp_path):
    export_model(tmp_path / "run" / "bright.safetensors", tmp_path / "x.pumit.zip")
    assert sorted(content(tmp_path / "x.pumit.zip")) == [
        "card.json",
        "card.md",
        "manifest.json",
        "model.safetensors",
        "pictures/worst_1.png",
    ]


@pytest.mark.parametrize("name", ["x.zip", "x", ".pumit.zip"])
def test_the_target_says_what_it_is(home, tmp_path, name):
    with pytest.raises(ExportError, match=r"must end in \.pumit\.zip"):
        export_model("bright", tmp_path / name)


def test_a_damaged_model_is_not_handed_on(home, tmp_path):
    path = find_model("bright")
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(CheckpointError, match="differs from its checksum"):
        export_model("bright", tmp_path / "x.pumit.zip")
    assert not (tmp_path / "x.pumit.zip").exists()


def swap(members: dict[str, bytes], old: str, new: str) -> None:
    members[new] = members.pop(old)


BAD: dict[str, tuple[Callable[[dict[str, bytes]], Any], str]] = {
    "no manifest": (lambda m: m.pop("manifest.json"), "no model file"),
    "manifest is no JSON": (lambda m: m.update({"manifest.json": b"{"}), "no model file"),
    "nested manifest": (lambda m: m.update({"manifest.json": b"[" * 100_000}), "no model file"),
    "later format": (listed(format="pumit-model-9"), "another version"),
    "no weights": (lambda m: m.pop("model.safetensors"), "lacks model.safetensors"),
    "no card": (lambda m: m.pop("card.md"), "lacks card.md"),
    "more than is listed": (lambda m: m.update({"virus.exe": b"x"}), "belongs to no model"),
    "out of the folder": (lambda m: m.update({"../evil.png": PNG}), "belongs to no model"),
    "listed out of the folder": (
        listed(files={"../evil.png": {"sha256": "0", "bytes": 1}}),
        "belongs to no model",
    ),
    "changed card": (lambda m: m.update({"card.md": m["card.md"][::-1]}), "from its checksum"),
    "shorter card": (lambda m: m.update({"card.md": b""}), "has another size"),
    "changed weights": (
        lambda m: m.update({"model.safetensors": m["model.safetensors"][:-1] + b"\x07"}),
        "from its checksum",
    ),
    "no checksum": (listed(files={"card.md": {"bytes": 1}}), "lacks the checksum of card.md"),
    "huge": (
        listed(files={"card.md": {"sha256": "0", "bytes": 1 << 50}}),
        "1125899906842624 bytes",
    ),
    "negative": (listed(files={"card.md": {"sha256": "0", "bytes": -1}}), "that is no model"),
    "name of a model that ships": (listed(name="default"), "'default' already"),
    "name is a path": (listed(name="../../etc"), ""),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_as_it_should_be_is_refused_in_one_line(exported, home, case):
    change, reason = BAD[case]
    rewrite(exported, change)
    before = sorted(home.rglob("*"))
    if not reason:  # only the name has to be made usable
        assert import_model(exported).path.is_relative_to(home)
        return
    with pytest.raises(CheckpointError, match=reason) as caught:
        import_model(exported)
    assert "\n" not in str(caught.value)
    assert sorted(home.rglob("*")) == before
    assert own() == []


@pytest.mark.parametrize("part", [0.0, 0.9])
def test_a_file_that_broke_off_is_refused(exported, home, part):
    whole = exported.read_bytes()
    exported.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(CheckpointError, match="not whole"):
        import_model(exported)
    assert own() == []


def test_a_bomb_is_refused_before_it_is_unpacked(exported, home, monkeypatch):
    def bomb(members: dict[str, bytes]) -> None:
        members["pictures/worst_1.png"] = PNG + bytes(8 << 20)
        listed(files={"pictures/worst_1.png": {"sha256": "0", "bytes": (8 << 20) + len(PNG)}})(
            members
        )

    rewrite(exported, bomb, zipfile.ZIP_DEFLATED)
    monkeypatch.setattr(model_file, "_unpack", None)
    with pytest.raises(CheckpointError, match="more than 100 times its size"):
        import_model(exported)


def test_a_small_disk_is_reported_before_anything_is_written(exported, home, monkeypatch):
    usage = namedtuple("usage", "total used free")(10, 10, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(ExportError, match="0 MiB left"):
        import_model(exported)
    assert own() == []


def test_a_taken_name_is_reported(exported):
    import_model(exported)
    with pytest.raises(CheckpointError, match="'bright' already; choose another --name"):
        import_model(exported)
    for name in ("a/b", "", "nul", "x" * 99, ".hidden"):
        with pytest.raises(CheckpointError, match="cannot be a model's name"):
            import_model(exported, name=name)


def test_no_file_and_no_archive_are_one_line(home, tmp_path):
    with pytest.raises(CheckpointError, match="No such file"):
        import_model(tmp_path / "absent.pumit.zip")
    (tmp_path / "x.pumit.zip").write_bytes(b"no archive")
    with pytest.raises(CheckpointError, match="no model file"):
        import_model(tmp_path / "x.pumit.zip")


def packed(path: Path, checkpoint: Path) -> Path:
    """A whole file around any checkpoint."""
    export_model(checkpoint, path)
    return path


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"network": "of_tomorrow"}, "Unknown network 'of_tomorrow'"),
        ({"sizes": {"in_channels": 2}}, "do not fit the network"),
        ({"sizes": {"num_classes": "many"}}, "Cannot build|give no network"),
        ({"classes": []}, "no class"),
        ({"kind": "oracle"}, "unknown kind 'oracle'"),
    ],
    ids=["network", "other sizes", "senseless sizes", "classes", "kind"],
)
def test_a_model_that_this_version_cannot_use_is_refused(
    home, tmp_path, changes, reason, monkeypatch
):
    good = load_checkpoint(save_model(tmp_path / "odd.safetensors"))
    save_checkpoint(tmp_path / "odd.safetensors", good.state, {**good.recipe, **changes})
    with monkeypatch.context() as patch:  # written by another version, which knows it
        patch.setattr(model_file, "kind_of", lambda recipe: "automatic")
        patch.setattr(model_file, "description_of", lambda recipe: "")
        path = packed(tmp_path / "odd.pumit.zip", tmp_path / "odd.safetensors")
    with pytest.raises(CheckpointError, match=reason) as caught:
        import_model(path)
    assert "\n" not in str(caught.value)
    assert own() == ["bright"]


def test_weights_that_are_not_numbers_are_refused(home, tmp_path):
    good = load_checkpoint(save_model(tmp_path / "odd.safetensors"))
    state = {key: torch.full_like(value, float("nan")) for key, value in good.state.items()}
    save_checkpoint(tmp_path / "odd.safetensors", state, good.recipe)
    with pytest.raises(CheckpointError, match="not finite"):
        import_model(packed(tmp_path / "odd.pumit.zip", tmp_path / "odd.safetensors"))


def test_real_networks_are_checked_by_their_shapes():
    with torch.device("meta"):
        state = build_network("pumit_segmentation_small").state_dict()
    state = {key: torch.zeros(value.shape, dtype=torch.float16) for key, value in state.items()}
    recipe = {"network": "pumit_segmentation_small", "sizes": {}, "classes": [{"name": "a"}]}
    check_model(model_file.Checkpoint(state, recipe, ""))
    state.popitem()
    with pytest.raises(PumitError, match="do not fit"):
        check_model(model_file.Checkpoint(state, recipe, ""))
