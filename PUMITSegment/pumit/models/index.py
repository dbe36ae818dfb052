"""Model index: available models, their sources and checksums."""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from pumit.errors import CheckpointError
from pumit.system.consent import user_folder as user_folder
from pumit.system.files import atomic_path, file_sha256, make_folder

INDEX_FILE = "index.yaml"
_TIMEOUT_S = 30.0  # of a download without data


@dataclass(frozen=True)
class ModelEntry:
    """Entry of the model index.

    Attributes:
        sha256: SHA-256 of the whole file, hexadecimal.
        source: "package", "own", or the URL that `pumit models fetch` downloads.
        folder: Folder of the checkpoint, or its target folder before it is fetched.
        added: Time when the user added it, ISO 8601; empty for shipped models.
        origin: Origin of a user's model, such as "trained here" or "imported".
        card: Path of its model card; empty for one next to the checkpoint, or none.
    """

    name: str
    file: str
    sha256: str
    kind: str
    description: str
    licence: str
    source: str
    folder: Path
    added: str = ""
    origin: str = ""
    card: str = ""
    run: str = ""

    @property
    def path(self) -> Path:
        """Path of the checkpoint."""
        return self.folder / self.file

    @property
    def card_path(self) -> Path:
        """Path of the model card, which may not exist."""
        return self.folder / self.card if self.card else self.path.with_suffix(".md")


def read_index(folder: Path, fetched: Path) -> list[ModelEntry]:
    """Read the index of a folder.

    Args:
        folder: Folder of `index.yaml` and the checkpoints; without an index there are no models.

    Raises:
        CheckpointError: If the index is damaged.
    """
    path = folder / INDEX_FILE
    if not path.is_file():
        return []
    try:
        rows: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))["models"]
        entries = []
        for row in rows:
            home = (
                folder if row["source"] == "package" or (folder / row["file"]).exists() else fetched
            )
            # Old indexes call the kind `task`.
            named = {"kind" if k == "task" else k: str(v) for k, v in row.items()}
            entries.append(ModelEntry(**named, folder=home))
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"The model index {path.name} is damaged ({type(error).__name__}: {reason}); "
            "repair it or remove it."
        ) from None
    return entries


def package_folder() -> Path:
    """Return the folder of the shipped models."""
    return Path(str(resources.files("pumit.models")))


def list_models() -> list[ModelEntry]:
    """List the shipped models, then the user's own."""
    user = user_folder()
    return read_index(package_folder(), user) + read_index(user, user)


def find_model(model: str | Path) -> Path:
    """Resolve a name in the index, or a file, to a checkpoint path.

    Raises:
        CheckpointError: If the model is unknown, or has to be fetched first.
    """
    path = Path(model)
    if path.parent != Path() or (path.suffix and path.is_file()):
        return path
    models = list_models()
    entry = next((e for e in models if e.name == str(model)), None)
    if entry is None:
        if path.suffix or path.is_file():
            return path
        names = ", ".join(e.name for e in models)
        raise CheckpointError(
            f"Unknown model {str(model)!r}; known: {names}; or give a checkpoint file."
        )
    if not entry.path.is_file():
        remedy = f"run `pumit models fetch {entry.name}`"
        if entry.source == "own":
            remedy = f"import it again, or `pumit models remove {entry.name}`"
        raise CheckpointError(f"Model {entry.name!r} is not on this machine; {remedy}.")
    return entry.path


def verify_model(entry: ModelEntry) -> None:
    """Check a model against its index entry.

    Raises:
        CheckpointError: If the file is missing or differs.
    """
    if not entry.path.is_file():
        raise CheckpointError(f"Model {entry.name!r} is not on this machine; fetch it first.")
    if file_sha256(entry.path) != entry.sha256:
        raise CheckpointError(
            f"Model {entry.name!r} differs from its checksum; it is damaged or was replaced."
        )


def fetch_model(entry: ModelEntry) -> Path:
    """Download a model and verify it before it is moved into place; a damaged one is replaced.

    Raises:
        CheckpointError: If it cannot be downloaded or differs from its checksum.
        ExportError: If it cannot be written.
    """
    is_downloadable = entry.source.startswith("https://")
    if entry.path.is_file() and (not is_downloadable or file_sha256(entry.path) == entry.sha256):
        verify_model(entry)
        return entry.path
    if not is_downloadable:
        raise CheckpointError(f"Model {entry.name!r} has no https address to fetch it from.")
    make_folder(entry.folder)
    with atomic_path(entry.path) as temporary:
        _download(entry, temporary)
        if file_sha256(temporary) != entry.sha256:
            raise CheckpointError(f"What was downloaded as {entry.name!r} fails its checksum.")
    return entry.path


def _download(entry: ModelEntry, target: Path) -> None:
    import requests

    try:
        with (
            requests.get(entry.source, stream=True, timeout=_TIMEOUT_S) as answer,
            target.open("wb") as handle,
        ):
            answer.raise_for_status()
            for block in answer.iter_content(1 << 20):
                handle.write(block)
    except requests.RequestException as error:  # an OSError, else reported as a write error
        reason = type(error).__name__
        raise CheckpointError(
            f"Model {entry.name!r} cannot be downloaded ({reason}); check the network."
        ) from error
