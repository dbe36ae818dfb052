"""Button that removes downloaded data after confirmation."""

from __future__ import annotations

from collections.abc import Callable

from PUMITSlicerLib.computing.compute import Compute
from PUMITSlicerLib.installing.downloaded import (
    Downloaded,
    findDownloaded,
    removeDownloaded,
    sizeInWords,
)
from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITSegmentLib.panel.question import confirm


class DownloadedData:
    """Button that removes downloaded files after confirmation.

    Args:
        compute: Its worker is stopped first.
    """

    def __init__(
        self,
        button,
        compute: Compute,
        status: StatusBoard,
        find: Callable[[], list[Downloaded]] = findDownloaded,
    ) -> None:
        self._compute = compute
        self._status = status
        self.find = find
        button.connect("clicked()", self._onRemove)

    def _onRemove(self) -> None:
        with self._status.showingErrors():
            found = self.find()
            if not found:
                self._status.waiting(_("There is no downloaded data on this computer."))
            elif confirm(questionOf(found)):
                # The worker may have a model file open.
                self._compute.stop()
                size = sizeInWords(removeDownloaded(found))
                self._status.done(_("Removed {size} of downloaded data.").format(size=size))


def questionOf(found: list[Downloaded]) -> str:
    """Return a question that lists what would be removed, the sizes, and what is kept."""
    line = _("{what}: {size}")
    lines = [f"• {line.format(what=d.what, size=sizeInWords(d.byteCount))}" for d in found]
    total = sizeInWords(sum(each.byteCount for each in found))
    return "\n".join(
        [
            _("Remove {size} of downloaded data?").format(size=total),
            *lines,
            _(
                "Your scans, segmentations, exports, trained models and installed packages stay. "
                "Models and packages are downloaded again when they are needed."
            ),
        ]
    )
