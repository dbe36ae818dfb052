"""The name of an exported file: one that every system accepts, and that no file has yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pumit.errors import ExportError
from slicer.i18n import tr as _

# Longest name without its ending: file systems accept 255 bytes.
_LONGEST_BYTES = 180
# What Windows refuses in names, and its devices.
_FORBIDDEN = set('<>:"/\\|?*')
_DEVICES = {"con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(1, 10))}
_MOST_COPIES = 10_000


@dataclass(frozen=True)
class Target:
    """Path of an export.

    Attributes:
        folder: Folder; made when the file is.
        name: Name from the user; any characters.
        suffix: Ending of the file name.
    """

    folder: Path
    name: str
    suffix: str

    def path(self, others: tuple[str, ...] = ()) -> Path:
        """Return the first name that is free: `liver.dcm`, then `liver_2.dcm`.

        Args:
            others: Endings of files that go next to it, whose names must be free too.

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
        """Make the folder and give the name to write.

        Raises:
            ExportError: If the folder cannot be made.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ExportError(
                _("The folder cannot be made; choose one that exists and that you may write to.")
            ) from error
        return self.path(others)


def safeFileName(name: str) -> str:
    """Return a file name without an ending, near to any text, that every system accepts."""
    text = "".join("_" if c in _FORBIDDEN or not c.isprintable() else c for c in name)
    text = text.encode("utf-8", "replace")[:_LONGEST_BYTES].decode("utf-8", "ignore")
    text = text.strip(" .")
    if not text.strip("_") or text.partition(".")[0].lower() in _DEVICES:
        return f"segmentation{'_' + text if text else ''}"
    return text


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()
