"""The model index finds, verifies and fetches; what fails its checksum is never put in place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from pumit.errors import CheckpointError, ExportError
from pumit.models.index import (
    ModelEntry,
    fetch_model,
    find_model,
    list_models,
    package_folder,
    user_folder,
    verify_model,
)

CONTENT = b"weights" * 1000
SHA = hashlib.sha256(CONTENT).hexdigest()


def row(**changes: Any) -> dict[str, Any]:
    return {
        "name": "mine",
        "file": "mine.safetensors",
        "sha256": SHA,
        "kind": "promptable",
        "description": "My own.",
        "licence": "Apache-2.0",
        "source": "https://example.org/mine.safetensors",
        **changes,
    }


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of models, with an index of one."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "index.yaml").write_text(yaml.safe_dump({"models": [row()]}))
    monkeypatch.setenv("PUMIT_MODELS", str(folder))
    return folder


def entry_named(name: str) -> ModelEntry:
    return next(e for e in list_models() if e.name == name)


SHIPPED = {
    "default": 12,
    "tokenizer": 6,
    "research": 12,
    "abdomen-ct": 3,
    "abdomen-mr": 3,
    "heart-mr": 3,
    "hippocampus-mr": 3,
}  # and the most MiB of each


class _Answer:
    def __init__(self, content: bytes, status: int = 200, breaks: bool = False) -> None:
        self.content, self.status, self.breaks = content, status, breaks

    def __enter__(self) -> _Answer:
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def raise_for_status(self) -> None:
        if self.status >= 400:
            raise requests.HTTPError(f"{self.status} for https://secret.example")

    def iter_content(self, size: int) -> Iterator[bytes]:
        yield self.content[: len(self.content) // 2]
        if self.breaks:
            raise requests.ConnectionError("broke off")
        yield self.content[len(self.content) // 2 :]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Answer the next downloads."""

    def use(answer: _Answer | Exception) -> None:
        def get(address: str, **kwargs: object) -> _Answer:
            assert address.startswith("https://")
            assert kwargs["timeout"]
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(requests, "get", get)

    return use


def test_models_of_the_package_and_of_the_user_are_listed(models):
    assert [e.name for e in list_models()] == [*SHIPPED, "mine"]
    assert entry_named("default").folder == package_folder()
    assert entry_named("mine").folder == models == user_folder()


@pytest.mark.parametrize(("name", "mebibytes"), SHIPPED.items())
def test_the_shipped_weights_match_the_index(name, mebibytes):
    entry = entry_named(name)
    if not entry.path.is_file():
        pytest.skip(f"the weights of {name} are absent from pumit/models")
    verify_model(entry)
    assert entry.path.stat().st_size <= mebibytes << 20
    assert entry.path.with_suffix(".md").is_file()


def test_without_an_index_of_the_user_only_the_package_counts(tmp_path, monkeypatch):
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "absent"))
    assert [e.name for e in list_models()] == [*SHIPPED]


def test_an_empty_setting_means_the_usual_folder(monkeypatch):
    monkeypatch.setenv("PUMIT_MODELS", "")
    assert user_folder() == Path.home() / ".pumit" / "models"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"models: [3]",
        b"models: [{name: x}]",
        b"models: [{name: x\n",
        b"- a\n- b",
        b"\xff\xfe\x00",
        yaml.safe_dump({"models": [row(surprise=1)]}).encode(),
        b"!!python/object/apply:os.system ['true']",
    ],
)
def test_a_damaged_index_is_one_line(models, content):
    (models / "index.yaml").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"index\.yaml is damaged") as caught:
        list_models()
    assert "\n" not in str(caught.value)
    assert str(models) not in str(caught.value)


def test_a_file_is_found_whatever_the_index_says(models):
    (models / "index.yaml").write_text("damaged")
    path = models / "other.safetensors"
    path.touch()
    assert find_model(path) == path


def test_names_with_a_dot_are_names(models):
    rows = {"models": [row(name="mine.v2")]}
    (models / "index.yaml").write_text(yaml.safe_dump(rows))
    (models / "mine.safetensors").write_bytes(CONTENT)
    assert find_model("mine.v2") == models / "mine.safetensors"


def test_an_unknown_model_names_the_known_ones(models):
    with pytest.raises(CheckpointError, match=r"known: .*, hippocampus-mr, mine"):
        find_model("none")


def test_a_model_that_is_not_here_asks_to_be_fetched(models):
    with pytest.raises(CheckpointError, match="pumit models fetch mine"):
        find_model("mine")


def test_verify_notices_absence_and_damage(models):
    entry = entry_named("mine")
    with pytest.raises(CheckpointError, match="not on this machine"):
        verify_model(entry)
    entry.path.write_bytes(CONTENT)
    verify_model(entry)
    entry.path.write_bytes(CONTENT[:-1])
    with pytest.raises(CheckpointError, match="differs from its checksum"):
        verify_model(entry)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_fetch_puts_a_whole_model_in_place(models, serve, is_damaged):
    if is_damaged:
        (models / "mine.safetensors").write_bytes(b"damaged")
    serve(_Answer(CONTENT))
    path = fetch_model(entry_named("mine"))
    assert path == models / "mine.safetensors"
    assert path.read_bytes() == CONTENT
    assert find_model("mine") == path


def test_fetch_downloads_nothing_that_is_already_whole(models, serve):
    (models / "mine.safetensors").write_bytes(CONTENT)
    serve(AssertionError("reached the network"))
    fetch_model(entry_named("mine"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (_Answer(b"something else"), "fails its checksum"),
        (_Answer(CONTENT, status=404), "cannot be downloaded"),
        (_Answer(CONTENT, breaks=True), "cannot be downloaded"),
        (requests.Timeout("too slow"), "cannot be downloaded"),
    ],
    ids=["checksum", "not found", "broken off", "timeout"],
)
def test_a_failed_fetch_leaves_nothing_behind(models, serve, answer, reason):
    serve(answer)
    with pytest.raises(CheckpointError, match=reason) as caught:
        fetch_model(entry_named("mine"))
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert [p.name for p in models.iterdir()] == ["index.yaml"]


@pytest.mark.parametrize("source", ["http://example.org/x", "package"])
def test_only_https_is_fetched(models, serve, source):
    (models / "index.yaml").write_text(yaml.safe_dump({"models": [row(source=source)]}))
    serve(AssertionError("reached the network"))
    with pytest.raises(CheckpointError, match="https"):
        fetch_model(entry_named("mine"))


def test_fetch_into_a_folder_that_cannot_be_made(models, serve, monkeypatch):
    entry = entry_named("mine")
    blocked = models / "file"
    blocked.write_text("")
    serve(_Answer(CONTENT))
    target = ModelEntry(**{**vars(entry), "folder": blocked / "below"})
    with pytest.raises(ExportError, match="Cannot make the folder"):
        fetch_model(target)
