"""Export and import of a model with its card as one file, `NAME.pumit.zip`.

The zip holds `model.safetensors`, `card.md`, `card.json`, the card's pictures, and
`manifest.json`, which lists them with their SHA-256. An import checks everything first, and rejects
files that the manifest does not list.
"""

import hashlib
import json
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pumit.errors import CheckpointError, ExportError, PumitError
from pumit.models.card import classes_of, kind_of
from pumit.models.checkpoint import Checkpoint, ModelHeader, load_checkpoint
from pumit.models.ensemble import members_of
from pumit.models.index import ModelEntry, find_model, list_models, verify_model
from pumit.models.user_index import (
    CARD,
    card_files,
    changing,
    check_name,
    description_of,
    enter,
    name_from,
)
from pumit.models.weights import read_weights
from pumit.system.files import atomic_path, file_sha256

SUFFIX = ".pumit.zip"
FORMAT = "pumit-model-1"
MANIFEST = "manifest.json"
WEIGHTS = "model.safetensors"
# The only files that an import ever writes; pictures may be in a subfolder.
_ALLOWED = re.compile(r"model\.safetensors|card\.md|card\.json|(\w[\w-]*/)?\w[\w-]*\.png", re.ASCII)
_PNG = b"\x89PNG\r\n\x1a\n"
MOST_FILES = 100
MOST_BYTES = 32 << 30
MOST_TEXT_BYTES = 4 << 20
# Weights and pictures compress little; a larger ratio means a zip bomb.
MOST_GROWTH = 100
_BLOCK = 1 << 20
# Fixed date, so that exports of the same model are identical.
_DATE = (1980, 1, 1, 0, 0, 0)


def export_model(model: str | Path, target: Path) -> None:
    """Export a model with its card as one file.

    Args:
        model: Name in the index, or a checkpoint; `card.md` in its folder is included.

    Raises:
        CheckpointError: If the model is unknown or damaged.
        ExportError: If the file cannot be written.
    """
    if not target.name.endswith(SUFFIX) or target.name == SUFFIX:
        raise ExportError(f"{target.name} must end in {SUFFIX}, such as mine{SUFFIX}.")
    path = find_model(model)
    entry = next((e for e in list_models() if e.name == str(model) and e.path == path), None)
    if entry is not None:
        verify_model(entry)
    has_torch = find_spec("torch") is not None
    recipe = load_checkpoint(path).recipe if has_torch else read_weights(path, None).recipe
    header = ModelHeader.of(recipe)
    card = path.with_name(CARD) if entry is None else entry.card_path
    files = {WEIGHTS: path, **(card_files(card) if card.is_file() else {})}
    odd = [name for name in files if not _ALLOWED.fullmatch(name)]
    if odd:
        raise ExportError(f"The card shows {odd[0]}, whose name cannot be handed on; rename it.")
    manifest = {
        "format": FORMAT,
        "name": name_from(header.name or path.stem) if entry is None else entry.name,
        "kind": kind_of(recipe),
        "description": description_of(recipe) if entry is None else entry.description,
        "licence": header.licence,
        "files": {
            name: {"sha256": file_sha256(source), "bytes": source.stat().st_size}
            for name, source in files.items()
        },
    }
    with (
        atomic_path(target) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive,
    ):
        archive.writestr(zipfile.ZipInfo(MANIFEST, _DATE), json.dumps(manifest, indent=1))
        for name, source in files.items():
            info = zipfile.ZipInfo(name, _DATE)
            info.file_size = source.stat().st_size
            with source.open("rb") as content, archive.open(info, "w") as place:
                shutil.copyfileobj(content, place, _BLOCK)


def import_model(source: Path, *, name: str | None = None) -> ModelEntry:
    """Check a model file, and add its model to the user's index.

    Args:
        name: Name of the model; None for the one in the file.

    Raises:
        CheckpointError: If the file is invalid or the name is taken; nothing is installed then.
        ExportError: If the folder of models cannot be written, or the disk is full.
    """
    if name is not None:
        check_name(name)
    try:
        with zipfile.ZipFile(source) as archive:
            manifest = _manifest(archive, source.name)
            preferred = name_from(str(manifest.get("name", ""))) if name is None else name
            check_name(preferred)
            listed = _listed(manifest, source.name)
            _check_members(archive, listed, source.name)
            with changing() as folder, tempfile.TemporaryDirectory(prefix=".", dir=folder) as made:
                unpacked = Path(made)
                _require_room(listed, unpacked)
                _unpack(archive, listed, unpacked, source.name)
                try:
                    recipe = _checked(unpacked / WEIGHTS)
                except PumitError as error:
                    raise CheckpointError(f"{source.name} cannot be used: {error}") from None
                check_name(preferred)  # it may have been taken since
                return enter(
                    folder,
                    unpacked / WEIGHTS,
                    recipe,
                    {inside: unpacked / inside for inside in listed if inside != WEIGHTS},
                    preferred=preferred,
                    origin="imported",
                    description=" ".join(str(manifest.get("description", "")).split())[:300],
                )
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
        raise CheckpointError(
            f"{source.name} is no model file, or not whole; get it again."
        ) from None
    except RuntimeError:  # raised by zipfile for an encrypted member
        raise CheckpointError(f"{source.name} is encrypted; export it again.") from None
    except OSError as error:
        reason = error.strerror or "the system refused"
        raise CheckpointError(f"{source.name} cannot be imported: {reason}.") from None


def _manifest(archive: zipfile.ZipFile, file: str) -> dict[str, Any]:
    try:
        info = archive.getinfo(MANIFEST)
        if info.file_size > MOST_TEXT_BYTES:
            raise ValueError
        manifest = json.loads(archive.read(info))
        if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
            raise ValueError
    except (KeyError, ValueError, RecursionError):
        raise CheckpointError(f"{file} is no model file: it lacks a usable {MANIFEST}.") from None
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"{file} is of the format {str(manifest.get('format'))[:40]!r}, not {FORMAT!r}; it "
            "needs another version of this program."
        )
    return manifest


def _listed(manifest: Mapping[str, Any], file: str) -> dict[str, tuple[str, int]]:
    """Return checksum and size of the manifest's files, with names and sizes checked."""
    listed = {}
    for inside, row in manifest["files"].items():
        if not _ALLOWED.fullmatch(inside):
            raise CheckpointError(f"{file} holds {inside[:60]!r}, which belongs to no model.")
        try:
            sha256, size = str(row["sha256"]), int(row["bytes"])
        except (KeyError, TypeError, ValueError):
            raise CheckpointError(f"{file} lacks the checksum of {inside}; get it again.") from None
        if not 0 <= size <= (MOST_TEXT_BYTES if inside.startswith("card.") else MOST_BYTES):
            raise CheckpointError(f"{file} holds a {inside} of {size} bytes; that is no model.")
        listed[inside] = (sha256, size)
    if WEIGHTS not in listed or len(listed) > MOST_FILES:
        raise CheckpointError(f"{file} holds no {WEIGHTS}, or too many files; get it again.")
    return listed


def _check_members(
    archive: zipfile.ZipFile, listed: Mapping[str, tuple[str, int]], file: str
) -> None:
    """Compare the archive with its manifest, before anything is unpacked."""
    members = [info for info in archive.infolist() if not info.is_dir()]
    names = [info.filename for info in members]
    if len(set(names)) != len(names):
        raise CheckpointError(f"{file} holds a file twice; get it again.")
    for name in sorted({*names, *listed} - {MANIFEST}):
        if name not in listed:
            raise CheckpointError(f"{file} holds {name[:60]!r}, which belongs to no model.")
        if name not in names:
            raise CheckpointError(f"{file} lacks {name}; get it again.")
    for info in members:
        if info.filename == MANIFEST:
            continue
        if info.file_size != listed[info.filename][1]:
            raise CheckpointError(f"{info.filename} in {file} has another size; get it again.")
        if info.file_size > MOST_GROWTH * info.compress_size + _BLOCK:
            raise CheckpointError(
                f"{info.filename} in {file} unpacks to more than {MOST_GROWTH} times its size; "
                "that is no model."
            )


def _require_room(listed: Mapping[str, tuple[str, int]], folder: Path) -> None:
    needed = 2 * sum(size for _, size in listed.values())  # unpacked, then put in place
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ExportError(
            f"The disk of your models has {free >> 20} MiB left, {needed >> 20} MiB are needed; "
            "make room, or set PUMIT_MODELS to another folder."
        )


def _unpack(
    archive: zipfile.ZipFile, listed: Mapping[str, tuple[str, int]], folder: Path, file: str
) -> None:
    for inside, (sha256, size) in listed.items():
        place = folder / inside
        place.parent.mkdir(exist_ok=True)
        digest, left = hashlib.sha256(), size
        with archive.open(inside) as packed, place.open("wb") as handle:
            # Read no more than the manifest announced, whatever the zip directory says.
            while left >= 0 and (block := packed.read(_BLOCK)):
                left -= len(block)
                digest.update(block)
                handle.write(block)
        if left != 0 or digest.hexdigest() != sha256:
            raise CheckpointError(f"{inside} in {file} differs from its checksum; get it again.")
        with place.open("rb") as handle:
            if inside.endswith(".png") and handle.read(len(_PNG)) != _PNG:
                raise CheckpointError(f"{inside} in {file} is no picture.")


def _checked(path: Path) -> dict[str, Any]:
    """Return the recipe of a model that this version can use; see `check_model`."""
    if find_spec("torch") is not None:
        model = load_checkpoint(path)
        check_model(model)
        return model.recipe
    # Without PyTorch, weights are compared with their network only when they are loaded.
    recipe = read_weights(path, None).recipe
    _check_classes(recipe)
    return recipe


def _check_classes(recipe: Mapping[str, Any]) -> None:
    if kind_of(recipe) in ("automatic", "classifier") and not classes_of(recipe):
        raise CheckpointError("it names no class; get it again.")


def check_model(model: Checkpoint) -> None:
    """Check that this version can use a model.

    Raises:
        PumitError: If its network or kind is unknown, its weights do not fit or are not finite, or
            an automatic model or classifier has no classes.
    """
    _check_classes(model.recipe)
    for member in members_of(model):
        _check_weights(member)
    if not all(bool(v.isfinite().all()) for v in model.state.values()):
        raise CheckpointError("its weights are not finite numbers: its training failed.")


def _check_weights(model: Checkpoint) -> None:
    from pumit.models.public_weights import unfitting_weights

    try:
        unfitting = unfitting_weights(model.header.network, model.header.sizes, model.state)
    except PumitError:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        raise CheckpointError("the sizes that it names give no network; get it again.") from None
    if unfitting:
        raise CheckpointError("its weights do not fit the network that it names; get it again.")
