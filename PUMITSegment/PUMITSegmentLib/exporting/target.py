"""Valid and unused names of exported files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pumit.errors import ExportError
from slicer.i18n import tr as _

# Longest name without suffix: file systems accept 255 bytes.
_LONGEST_BYTES = 180
# Characters and device names that Windows forbids.
_FORBIDDEN = set('<>:"/\\|?*')
_DEVICES = {"con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(1, 10))}
_MOST_COPIES = 10_000


@dataclass(frozen=True)
class Target:
    """Path of an export.

    Attributes:
        folder: Folder, created together with the file.
        name: Name from the user; any characters.
        suffix: Suffix of the file name.
    """

    folder: Path
    name: str
    suffix: str

    def path(self, others: tuple[str, ...] = ()) -> Path:
        """Return the first unused path: `liver.dcm`, then `liver_2.dcm`.

        Args:
            others: Suffixes of accompanying files, whose names must be unused too.

        Raises:
            ExportError: If there are thousands of files of that name.
        """
        stem = safeFileName(self.name.removesuffix(self.suffix))
        for number in range(1, _MOST_COPIES):
            numbered = stem if number == 1 else f"{stem}_{number}"
            names = [f"{numbered}{suffix}" for suffix in (self.suffix, *others)]
            if not any(_exists(self.folder / name) for name in names):
                return self.folder / names[0]
        raise ExportError(_("The folder is full of files of this name; choose another folder."))

    def reserve(self, others: tuple[str, ...] = ()) -> Path:
        """Create the folder and return the path to write.

        Raises:
            ExportError: If the folder cannot be created.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ExportError(
                _(
                    "The folder cannot be created; choose an existing one that you have permission "
                    "to write to."
                )
            ) from error
        return self.path(others)


def safeFileName(name: str) -> str:
    """Convert text to a similar file name, without suffix, that is valid on every system."""
    text = "".join("_" if c in _FORBIDDEN or not c.isprintable() else c for c in name)
    text = text.encode("utf-8", "replace")[:_LONGEST_BYTES].decode("utf-8", "ignore")
    text = text.strip(" .")
    if not text.strip("_") or text.partition(".")[0].lower() in _DEVICES:
        return f"segmentation{'_' + text if text else ''}"
    return text


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()
