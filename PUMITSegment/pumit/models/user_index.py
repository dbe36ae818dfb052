"""Index of the user's own models, added by a training or an import, and removed on request.

Each model has its own folder with the checkpoint, the card and the card's pictures. `index.yaml` is
replaced last, so a model is present completely or not at all.
"""

import json
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from pumit.errors import CheckpointError, ExportError
from pumit.models.card import classes_of, kind_of
from pumit.models.checkpoint import ModelHeader, copy_checkpoint, load_checkpoint
from pumit.models.index import (
    INDEX_FILE,
    ModelEntry,
    list_models,
    package_folder,
    read_index,
    user_folder,
)
from pumit.system.files import atomic_path, file_lock, file_sha256, make_folder, write_text
from pumit.system.wording import listed

LOCK_FILE = "index.lock"
CARD = "card.md"
CARD_DATA = "card.json"
# File next to a checkpoint that identifies the run, to replace its earlier index entry.
RUN_FILE = "registered.json"
NAME = r"\w[\w.-]{0,59}"
# Device names on Windows, with any suffix.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_SHOWN_CLASSES = 4


def register(
    checkpoint: Path,
    *,
    name: str | None = None,
    card: Path | None = None,
    origin: str = "trained here",
) -> str:
    """Add a checkpoint to the user's index, replacing an earlier one of the same run.

    Args:
        name: Name in the index; None for the name in its recipe. A number is appended if the name
            is taken: `mine-2`.
        card: Model card, a Markdown file. Its linked pictures and `card.json` are copied too.
        origin: See `ModelEntry`.

    Returns:
        Name in the index.

    Raises:
        CheckpointError: If the checkpoint or the index is damaged.
        ExportError: If the folder of models cannot be written.
    """
    recipe = load_checkpoint(checkpoint).recipe
    preferred = name_from(name or ModelHeader.of(recipe).name or checkpoint.stem)
    files = {} if card is None else card_files(card)
    with changing() as folder:
        run = _run_of(checkpoint)
        entry = enter(
            folder, checkpoint, recipe, files, preferred=preferred, origin=origin, run=run
        )  # fmt: skip
    return entry.name


def remove(name: str) -> None:
    """Remove a user's model from the index and from disk.

    Raises:
        CheckpointError: If it is not one of the user's models.
        ExportError: If the folder of models cannot be written.
    """
    _own(name)  # raises before a folder is created
    with changing() as folder:
        entry = _own(name)
        _write_rows(folder, [row for row in _rows(folder) if row.get("name") != name])
        _delete(entry, folder)


def _own(name: str) -> ModelEntry:
    user = user_folder()
    own = read_index(user, user)
    for entry in own:
        if entry.name == name:
            return entry
    if any(entry.name == name for entry in list_models()):
        raise CheckpointError(f"Model {name!r} comes with the program and cannot be removed.")
    known = ", ".join(entry.name for entry in own) or "none"
    raise CheckpointError(f"There is no model {name!r} of your own; yours: {known}.")


def name_from(text: str) -> str:
    """Return a text as a valid name for the index and for files."""
    name = re.sub(r"[^\w.-]+", "-", text)
    name = re.sub(r"\.safetensors$", "", name).strip(".-")[:50].rstrip(".-")
    return f"model-{name}" if not name or _DEVICES.fullmatch(name) else name


def check_name(name: str) -> None:
    """Check a name chosen by the user.

    Raises:
        CheckpointError: If the name is invalid or taken.
    """
    if not re.fullmatch(NAME, name) or name_from(name) != name:
        raise CheckpointError(
            f"{name!r} cannot be a model's name; use letters, digits, '-' and '_'; such as "
            f"{name_from(name)!r}."
        )
    if name in {entry.name for entry in list_models()}:
        raise CheckpointError(f"There is a model {name!r} already; choose another --name.")


@contextmanager
def changing() -> Iterator[Path]:
    """Provide the user's folder of models, locked against other processes."""
    folder = user_folder()
    make_folder(folder)
    with file_lock(folder / LOCK_FILE):
        yield folder


def enter(
    folder: Path,
    checkpoint: Path,
    recipe: Mapping[str, Any],
    files: Mapping[str, Path],
    *,
    preferred: str,
    origin: str,
    run: str = "",
    description: str = "",
) -> ModelEntry:
    """Install a model and write the index; the caller holds the lock.

    Args:
        files: The card and its files, by name inside the model's folder.
        preferred: Name to use unless it is taken.
        run: Identifier of the training run; an earlier entry of the same run is replaced.
    """
    rows = _rows(folder)
    before = [entry for entry in read_index(folder, folder) if run and entry.run == run]
    taken = {e.name for e in [*read_index(package_folder(), folder), *read_index(folder, folder)]}
    name = _free_name(preferred, taken - {entry.name for entry in before}, before)
    home = folder / f"{name}-{secrets.token_hex(4)}"
    with atomic_path(home) as temporary:
        temporary.mkdir()
        target = temporary / f"{name}.safetensors"
        if ModelHeader.of(recipe).name == name:
            shutil.copyfile(checkpoint, target)
        else:  # results name the algorithm by the recipe's name, which must match the index
            copy_checkpoint(checkpoint, target, {**recipe, "name": name})
        for inside, source in files.items():
            place = temporary / inside
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
        sha256 = file_sha256(target)
    row = {
        "name": name,
        "file": f"{home.name}/{name}.safetensors",
        "sha256": sha256,
        "kind": kind_of(recipe),
        "description": description or description_of(recipe),
        "licence": ModelHeader.of(recipe).licence,
        "source": "own",
        "added": datetime.now().astimezone().isoformat(timespec="seconds"),
        "origin": origin,
    }
    row |= {"card": f"{home.name}/{CARD}"} if CARD in files else {}
    row |= {"run": run} if run else {}
    replaced = {entry.name for entry in before}
    try:
        _write_rows(folder, [*(r for r in rows if r.get("name") not in replaced), row])
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    for entry in before:
        _delete(entry, folder)
    return ModelEntry(**row, folder=folder)


def _free_name(preferred: str, taken: set[str], before: list[ModelEntry]) -> str:
    """Return the preferred name, with a number if it is taken."""
    for entry in before:
        if entry.name == preferred or re.fullmatch(re.escape(preferred) + r"-\d+", entry.name):
            return entry.name
    name, number = preferred, 1
    while name.casefold() in {t.casefold() for t in taken}:
        number += 1
        name = f"{preferred}-{number}"
    return name


def description_of(recipe: Mapping[str, Any]) -> str:
    """Return a sentence on what a model does, from its recipe."""
    if description := ModelHeader.of(recipe).description:
        return description
    kind = kind_of(recipe)
    if kind == "promptable":
        return "Clicks and boxes, tuned on own scans."
    if kind not in ("automatic", "classifier"):
        return f"Own {kind}."
    names = [c.name for c in classes_of(recipe)]
    verb = "Segments" if kind == "automatic" else "Tells apart"
    return f"{verb} {listed(names, _SHOWN_CLASSES)}."


def card_files(card: Path) -> dict[str, Path]:
    """Return a card, its data and its pictures, by path relative to the card.

    Links that lead out of the card's folder are ignored.

    Raises:
        ExportError: If the card cannot be read.
    """
    try:
        text = card.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"The model card {card.name} cannot be read ({error}).") from None
    home = card.parent.resolve()
    files = {CARD: card}
    if (home / CARD_DATA).is_file():
        files[CARD_DATA] = home / CARD_DATA
    for link in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", text):
        path = (home / link).resolve()
        if path.is_relative_to(home) and path.is_file() and path.suffix.lower() == ".png":
            files[path.relative_to(home).as_posix()] = path
    return files


def _run_of(checkpoint: Path) -> str:
    """Return an identifier of a checkpoint's run, stored next to it.

    It is random, not the path: another run may start later in an emptied folder of the same name.
    """
    path = checkpoint.parent / RUN_FILE
    marks: dict[str, str] = {}
    with suppress(OSError, ValueError):
        content = json.loads(path.read_text(encoding="utf-8"))
        marks = {str(k): str(v) for k, v in content.items()} if isinstance(content, dict) else {}
    if checkpoint.name not in marks:
        marks[checkpoint.name] = secrets.token_hex(8)
        with suppress(OSError, ExportError), atomic_path(path) as temporary:
            temporary.write_text(json.dumps(marks), encoding="utf-8")
    return marks[checkpoint.name]


def _rows(folder: Path) -> list[dict[str, Any]]:
    """Return the raw rows of the user's index; raise CheckpointError if it is damaged."""
    if not read_index(folder, folder):
        return []
    content = yaml.safe_load((folder / INDEX_FILE).read_text(encoding="utf-8"))
    return list(content["models"])


def _write_rows(folder: Path, rows: list[dict[str, Any]]) -> None:
    head = "# Your own models; `pumit models list` shows them, `pumit models remove` removes one.\n"
    body = yaml.safe_dump({"models": rows}, sort_keys=False, allow_unicode=True)
    write_text(folder / INDEX_FILE, head + body)


def _delete(entry: ModelEntry, folder: Path) -> None:
    """Remove a model's files, but only where this program puts them."""
    home = entry.path.parent
    is_own_folder = home.parent.resolve() == folder.resolve() and home.name.startswith(entry.name)
    if is_own_folder and ".." not in entry.file:
        shutil.rmtree(home, ignore_errors=True)  # a worker may hold it open on Windows
    elif home.resolve() == folder.resolve():
        with suppress(OSError):
            entry.path.unlink(missing_ok=True)
