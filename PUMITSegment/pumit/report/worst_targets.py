"""Pictures of the targets that a simulated user got least of, to see what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pumit.evaluation.simulated_user import Clickable, read_case, simulate_clicks, simulate_gesture
from pumit.prompts import Prompt
from pumit.report.error_picture import Stage, write_error_picture
from pumit.volume import Volume

SHOWN_CLICKS = (1, 3, 5)


class ResettableSession(Clickable, Protocol):
    """A session whose prompts can be read and reset."""

    def prompts(self) -> list[Prompt]:
        """All prompts so far."""

    def reset(self) -> None:
        """Forget them."""


def draw_worst_targets(
    rows: Sequence[Mapping[str, Any]],
    cases: Path,
    folder: Path,
    open_session: Callable[[Volume], ResettableSession],
) -> Iterator[Path]:
    """Answer the prompts of each target again and draw box, one, three and five clicks.

    The truth is green, the answer red; the planes go through the largest error. Who may see such
    a picture is the scan's licence to say.

    Args:
        rows: Rows of `simulated_user.evaluate_case`, the worst first.
        folder: Folder for the pictures, which are numbered from 1 on; made where it is absent.

    Yields:
        Each picture once it is written.

    Raises:
        VolumeError: If a case cannot be read any more.
        ExportError: If a picture cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for rank, row in enumerate(rows, start=1):
        volume, labels = read_case(cases / row["case"])
        target = labels == row["label"]
        session = open_session(volume)
        stages = [Stage("box", simulate_gesture(session, target, "box"), session.prompts())]
        session.reset()
        for count, (mask, _) in enumerate(
            simulate_clicks(session, target, max(SHOWN_CLICKS)), start=1
        ):
            if count in SHOWN_CLICKS:
                name = "1 click" if count == 1 else f"{count} clicks"
                stages.append(Stage(name, mask, session.prompts()))
        path = folder / f"{rank:02d}_{row['case']}_{row['label']}.png"
        write_error_picture(
            volume, target, stages, path, title=f"{row['case']}, label {row['label']}"
        )
        yield path
