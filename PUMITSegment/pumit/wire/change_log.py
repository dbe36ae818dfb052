"""What a user did to a session, in order, so that it can be done again elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from pumit.prompts import Prompt


@dataclass(frozen=True, eq=False)
class Added:
    """A prompt was added to a segment."""

    segment: str
    prompt: Prompt


@dataclass(frozen=True)
class Removed:
    """A segment's prompt at a place was removed."""

    segment: str
    position: int


@dataclass(frozen=True)
class Reset:
    """A segment's prompts were removed; None for all segments."""

    segment: str | None


Change = Added | Removed | Reset


class ChangeLog:
    """The changes of one volume; those taken back stay until something new is done.

    Each change is one step of `InteractiveSession.undo`.
    """

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._done = 0

    @property
    def changes(self) -> list[Change]:
        """All changes, those taken back included."""
        return list(self._changes)

    @property
    def undone(self) -> int:
        """How many of the last changes are taken back."""
        return len(self._changes) - self._done

    @property
    def segments(self) -> list[str]:
        """Segments that have prompts, in the order of their first one."""
        return list(self._prompts())

    def prompts(self, segment: str) -> list[Prompt]:
        """Prompts of a segment, oldest first."""
        return self._prompts().get(segment, [])

    def append(self, change: Change) -> None:
        """Note a new change; what was taken back cannot be repeated any more.

        Resetting what is empty already is no change.
        """
        if isinstance(change, Reset):
            segments = self.segments
            if not segments or change.segment not in (None, *segments):
                return
        del self._changes[self._done :]
        self._changes.append(change)
        self._done = len(self._changes)

    def keep(self, count: int, segment: str) -> None:
        """Keep the first prompts of a segment, and nothing of how it came to the present ones."""
        prompts = self._prompts()
        prompts[segment] = prompts.get(segment, [])[:count]
        self._changes = [Added(name, prompt) for name in prompts for prompt in prompts[name]]
        self._done = len(self._changes)

    def undo(self) -> None:
        """Note that the last change was taken back."""
        self._done = max(0, self._done - 1)

    def redo(self) -> None:
        """Note that a change was repeated."""
        self._done = min(len(self._changes), self._done + 1)

    def clear(self) -> None:
        """Forget everything, as for a new volume."""
        self._changes.clear()
        self._done = 0

    def _prompts(self) -> dict[str, list[Prompt]]:
        prompts: dict[str, list[Prompt]] = {}
        for change in self._changes[: self._done]:
            if isinstance(change, Added):
                prompts.setdefault(change.segment, []).append(change.prompt)
            elif isinstance(change, Removed):
                del prompts[change.segment][change.position]
            elif change.segment is None:
                prompts.clear()
            else:
                prompts.pop(change.segment, None)
        return prompts
