"""Review loop of a campaign: open a scan, check it in PUMIT Segment, accept it, open the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import slicer
from pumit.campaign import Campaign, CampaignConflict, ScanEntry
from pumit.campaign.labels import class_named, join_by_class
from pumit.errors import PumitError, VolumeError
from pumit.segmentation import Segment, Segmentation
from PUMITSlicerLib.computing.background import BackgroundJob
from PUMITSlicerLib.computing.settings import ComputeMode
from PUMITSlicerLib.status import Activity, StatusBoard
from slicer.i18n import tr as _

from PUMITTrainLib.campaign.campaign_work import CampaignWork
from PUMITTrainLib.campaign.loading import (
    DRAWN,
    LoadedScan,
    TakenScan,
    nextScan,
    takeScan,
)
from PUMITTrainLib.collaborators import Collaborators
from PUMITTrainLib.processes import sentenceOf

_SEGMENT, _TRAIN = "PUMITSegment", "PUMITTrain"
# Locks expire after two minutes without heartbeat.
_BEAT_MS = 30_000
# Longest wait for writes when the scene or Slicer closes: the share may not answer.
_PATIENCE_S = 20.0
# Segment names and masks from PUMIT Segment.
Masks = Sequence[tuple[str, Any]]


@dataclass(eq=False)
class _Checked:
    """A scan that is being checked, or is not saved yet."""

    campaign: Campaign
    loaded: LoadedScan
    scan: Any  # PUMIT Segment's scan
    segment: Any  # PUMIT Segment's logic
    since: float = field(default_factory=time.monotonic)
    # Held while the draft or label is written, so that no draft follows the final write.
    writing: Any = field(default_factory=threading.RLock)
    beating: BackgroundJob | None = None
    isDone: bool = False
    # State of its segments that is written, and segments drawn since when the scene closed.
    written: tuple = ()
    drawnSince: Masks | None = None

    @property
    def name(self) -> str:
        return self.loaded.entry.name

    def release(self) -> None:
        """Release the lock, and stop writing drafts."""
        self.isDone = True
        if self.loaded.lock is not None:
            self.loaded.lock.release()


class Checking:
    """Review loop of a campaign's scans in PUMIT Segment; implements `Reviewer`.

    A scan leaves the scene only after its label or draft is written. Reading and writing happen on
    worker threads; the next scan is read ahead.
    """

    def __init__(
        self,
        parts: Collaborators,
        status: StatusBoard,
        work: CampaignWork,
        onChanged: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._status = status
        self._work = work
        self._onChanged = onChanged
        self._current: _Checked | None = None
        self._unsaved: list[_Checked] = []
        self._leaving: list[_Checked] = []
        self._ahead: LoadedScan | None = None
        self._opening: BackgroundJob | None = None
        self._decided: list[ScanEntry] = []
        self._skipped: dict[str, str] = {}
        # PUMIT Segment's compute object while it uses the campaign's click model, or None.
        self._borrower: Any = None
        self._saving = 0
        # Scan with an open question on a segment name, and scan whose Accept found nothing drawn.
        self._asked: _Checked | None = None
        self._askedEmpty: tuple[_Checked, tuple] | None = None
        self._beats = parts.makeTimer(self._beat, False)

    # State shown in PUMIT Segment

    @property
    def isChecking(self) -> bool:
        """Whether a scan is open."""
        return self._current is not None

    @property
    def currentID(self) -> str:
        """Identifier of the open scan; empty for none."""
        return self._current.loaded.entry.id if self._current is not None else ""

    @property
    def isOpening(self) -> bool:
        """Whether a scan is being read."""
        return self._opening is not None and self._opening.isActive

    @property
    def sentence(self) -> str:
        """Description of the open scan, and the number of scans left."""
        if self._current is None:
            words = _("{name} is not saved yet: Undo opens it again.")
            return words.format(name=self.undoText) if self._unsaved else ""
        entry, view = self._current.loaded.entry, self._work.view
        words = [entry.name]
        if entry.is_validation and not entry.is_truth:
            words.append(_("for validation: segment it from scratch"))
        elif entry.stored_state == "predicted":
            by = _("round {number}").format(number=entry.round) if entry.round else _("a model")
            words.append(_("predicted by {whom}").format(whom=by))
        if entry.word:
            words.append(entry.word)
        text = ", ".join(words)
        if view is None:
            return text
        left = view.count("open", "predicted", "later") - int(not entry.is_truth)
        return _("{scan}. {count} left in {campaign}.").format(
            scan=text, count=max(left, 0), campaign=view.name
        )

    @property
    def undoText(self) -> str:
        """Name of the scan that Undo returns to: not saved, or decided last; empty for none."""
        if self._unsaved:
            return self._unsaved[-1].name
        return self._decided[-1].name if self._decided else ""

    @property
    def whyNot(self) -> str:
        """Why no decision is possible now; empty if it is."""
        if self._current is None:
            return _("No scan of the campaign is open.")
        if not self._segment.reviewing.isShown:
            words = _("Choose {name} and its segmentation in section 1 to decide on it.")
            return words.format(name=self._current.name)
        return ""

    @property
    def whyNotPutOff(self) -> str:
        """Why the scan can be neither postponed nor excluded; empty if it can."""
        current = self._current
        if current is not None and current.loaded.entry.stored_state == "accepted":
            return _("{name} is accepted; undo that first.").format(name=current.name)
        return ""

    # Opening

    def openNext(self) -> None:
        """Open the next scan, or show the one that is open."""
        if self._current is not None:
            slicer.util.selectModule(_SEGMENT)
            self._segment.reviewing.show(self._current.scan)
        else:
            self.open("")

    def open(self, key: str) -> None:
        """Open a scan, after saving the open one as a draft.

        Args:
            key: Identifier of the scan; empty for the next one.
        """
        campaign = self._work.campaign
        if campaign is None or self.isOpening or (key and key == self.currentID):
            return
        if self._current is not None:
            self._putAway(None)
            if self._current is not None:
                return
        self._forgetRemoved()
        unsaved = {each.loaded.entry.id: each for each in self._unsaved}
        if key in unsaved:
            self._reopen(unsaved[key])
            return
        ahead, self._ahead = self._ahead, None
        prepare = self._segment.reviewing.prepare
        skipped = {} if key else self._skipped | dict.fromkeys(unsaved, "")
        name = self._work.reviewer
        self._status.working(_("Opening the scan..."))

        def take() -> tuple[TakenScan, Path | None]:
            taken = takeScan(campaign, key, ahead, skipped, name=name, prepare=prepare)
            model = campaign.click_model
            return taken, model if model is not None and model.is_file() else None

        self._opening = self._parts.background.submit(
            take, lambda found: self._show(campaign, *found), self._refuse
        )
        self._onChanged()

    def _show(self, campaign: Campaign, taken: TakenScan, clickModel: Path | None) -> None:
        """Add a scan to the scene, and read the next one ahead."""
        self._skipped |= taken.problems
        problem = next(iter(taken.problems.values()), "")
        loaded = taken.loaded
        if campaign is not self._work.campaign:  # another one was opened since
            if loaded is not None and loaded.lock is not None:
                self._parts.background.submit(loaded.lock.release)
            return
        if loaded is None:
            self._endOfLoop(problem or next(iter(self._skipped.values()), ""))
            return
        segment = self._segment
        self._useClickModel(clickModel)
        try:
            scan = segment.reviewing.open(loaded.prepared, self)
        except PumitError as error:
            if loaded.lock is not None:
                self._parts.background.submit(loaded.lock.release)
            self._refuse(error)
            return
        self._current = _Checked(campaign, loaded, scan, segment)
        self._beats.start(_BEAT_MS)
        if slicer.util.selectedModule() != _SEGMENT:
            slicer.util.selectModule(_SEGMENT)
        self._say(problem, _("{name} is open.").format(name=loaded.entry.name))
        self._changed()
        self._readAhead(campaign)

    def _readAhead(self, campaign: Campaign) -> None:
        skipped, prepare = dict(self._skipped), self._segment.reviewing.prepare

        def keep(loaded: LoadedScan | None) -> None:
            if campaign is self._work.campaign and self._current is not None:
                self._ahead = loaded
                if loaded is not None:
                    self._segment.reviewing.startOn(loaded.prepared)

        # Errors are ignored here, and shown when the scan is opened.
        self._parts.background.submit(
            lambda: nextScan(campaign, skipped, prepare), keep, lambda error: None
        )

    def _endOfLoop(self, problem: str) -> None:
        """Return to PUMIT Train, because no scan is left to open."""
        self._skipped.clear()  # the next press tries them again
        self._say(problem, _("No scan is left to open."))
        self.goBack()
        self._changed()

    def _useClickModel(self, model: Path | None) -> None:
        """Use the campaign's click model in PUMIT Segment, if there is one and mode is local."""
        compute = self._segment.compute
        if model is None or compute.settings.mode is not ComputeMode.LOCAL:
            self._returnModel()
            return
        self._borrower = compute
        compute.lendModel(str(model))

    def _returnModel(self) -> None:
        """Restore the user's own click model."""
        if self._borrower is not None:
            self._borrower.lendModel("")
            self._borrower = None

    # Decisions: `Reviewer` interface

    def accept(self) -> None:
        """Accept the segmentation as ground truth, and open the next scan."""
        current = self._current
        if current is None or not self._mayDecide():
            return
        try:
            masks = self._segment.reviewing.masks()
        except PumitError as error:
            self._problem(str(error))
            return
        campaign = current.campaign
        unknown = campaign.unknown(name for name, _mask in masks)
        if unknown:
            self._asked = current
            self._work.ask(unknown[0], 1, self._acceptAsked)
            words = _("{name!r} is no class of the campaign: choose the class it stands for.")
            self._problem(words.format(name=unknown[0]))
            self.goBack()
            return
        isEmpty = not any(class_named(name, campaign.classes) for name, _mask in masks)
        asked = (current, current.scan.state())
        if isEmpty and self._askedEmpty != asked:
            self._askedEmpty = asked
            words = _(
                "Nothing is drawn in {name}. If it holds none of the classes, press Accept again."
            )
            self._problem(words.format(name=current.name))
            return
        self._leave()
        clicks, seconds = current.scan.clicks, time.monotonic() - current.since
        entry, who = current.loaded.entry, self._work.reviewer

        def save() -> ScanEntry:
            with current.writing:
                made = campaign.accept(
                    *(entry, _segmentation(current, masks), who or None),
                    clicks=clicks,
                    seconds=seconds,
                    completes=False,
                    lock=current.loaded.lock,
                )
                current.isDone = True
            return made

        def done(made: ScanEntry) -> None:
            self._remember(made)
            self._end(current, lambda: campaign.complete(entry.id))
            if self._status.current.activity is not Activity.PROBLEM:
                self._status.done(_("{name} is accepted.").format(name=made.name))
            self._work.trainIfDue()

        self._write(current, masks, save, done)
        self.openNext()

    def later(self) -> None:
        """Move the scan to the end of the queue, and open the next one."""
        self._decide(lambda campaign, entry: campaign.later(entry))

    def leaveOut(self) -> None:
        """Exclude the scan, and open the next one."""
        self._decide(lambda campaign, entry: campaign.leave_out(entry))

    def undo(self) -> None:
        """Return to an unsaved scan, or undo the last decision and open that scan."""
        if self.isOpening or self._saving or self._forgetRemoved():
            return
        if self._current is not None and self._unsaved:
            self._putAway(None)
        if self._unsaved and self._current is None:
            self._reopen(self._unsaved[-1])
            return
        campaign = self._work.campaign
        if campaign is None or not self._decided or self._unsaved:
            return
        entry = self._decided.pop()
        isAccepted = entry.stored_state == "accepted"
        takeBack = campaign.undo_accept if isAccepted else campaign.take_in

        def done(made: ScanEntry) -> None:
            self._work.refresh()
            self.open(made.id)

        def fail(error: Exception) -> None:
            stillStands = not isinstance(error, CampaignConflict)
            if stillStands and campaign is self._work.campaign:  # not another, opened since
                self._decided.append(entry)
            self._refuse(error)

        # With the entry from its decision, so that a later one of another person is kept.
        self._keep(lambda: takeBack(entry), done, fail)

    def _reopen(self, unsaved: _Checked) -> None:
        """Return to a scan that could not be saved."""
        self._unsaved.remove(unsaved)
        self._current = unsaved
        self._segment.reviewing.reviewer = self
        self._segment.reviewing.show(unsaved.scan)
        self._beats.start(_BEAT_MS)
        self._changed()

    def _forgetRemoved(self) -> bool:
        """Forget unsaved scans that were removed from the scene; return whether any were."""
        removed = [each for each in self._unsaved if not each.scan.isThere]
        for each in removed:
            self._unsaved.remove(each)
            self._sayRemoved(each)
        return bool(removed)

    def _sayRemoved(self, removed: _Checked) -> None:
        self._parts.background.submit(removed.release)
        words = _("{name} was removed from the scene; accepted or saved labels are kept.")
        self._problem(words.format(name=removed.name))
        self._changed()

    def _remember(self, made: ScanEntry) -> None:
        """Let a decision be undone instead of earlier ones on the same scan."""
        self._decided = [each for each in self._decided if each.id != made.id] + [made]

    def goBack(self) -> None:
        """Open PUMIT Train; the scan stays open."""
        if slicer.util.selectedModule() == _SEGMENT:
            slicer.util.selectModule(_TRAIN)

    def onScanRemoved(self) -> None:
        """Release the lock of a scan that was removed from the scene."""
        current = self._current
        if current is None:
            return
        self._leave()
        self._beats.stop()
        self._sayRemoved(current)

    # The end

    def putAway(self) -> None:
        """Save the open scan as a draft, and remove it from the scene."""
        if self._current is not None:
            self._putAway(None)
        if self._current is None:
            self._returnModel()
        self._ahead = None
        self._decided.clear()
        self._skipped.clear()

    def keepAtOnce(self, end: float | None = None) -> None:
        """Save drafts before the scene or Slicer closes; waits for them, but not for ever.

        Args:
            end: Time of `time.monotonic` to wait until; None for `_PATIENCE_S` from now.
        """
        end = time.monotonic() + _PATIENCE_S if end is None else end
        open_ = [*self._unsaved, *([self._current] if self._current is not None else [])]
        self._leave()
        self._ahead, self._unsaved = None, []
        self._beats.stop()
        drafts = []
        for each in [*self._leaving, *open_]:
            try:
                if each in open_:
                    drafts.append((each, self._draft(each)))
                else:
                    each.drawnSince = self._drawnSince(each)
            except PumitError as error:
                self._problem(sentenceOf(error))
        for failure in _keptInTime(drafts, end):
            self._problem(sentenceOf(failure))
        for each in open_:
            each.segment.reviewing.leave()

    def close(self) -> None:
        """Save drafts, wait for pending writes, and restore the user's click model."""
        end = time.monotonic() + _PATIENCE_S
        self.keepAtOnce(end)
        while self._saving and time.monotonic() < end:
            self._parts.background.poll()
        self._returnModel()

    # Internal

    @property
    def _segment(self) -> Any:
        """PUMIT Segment's logic."""
        return slicer.util.getModuleWidget(_SEGMENT).logic

    def _leave(self) -> None:
        """Forget the open scan and its questions."""
        self._current = self._asked = self._askedEmpty = None
        self._work.takeBack(self._acceptAsked)

    def _acceptAsked(self) -> None:
        """Accept the scan whose segment name was asked for, if it is still open."""
        asked, self._asked = self._asked, None
        if asked is not None and asked is self._current:
            self.accept()

    def _mayDecide(self) -> bool:
        """Return whether the open scan is selected and shown; if not, show the reason or ask."""
        why = self.whyNot
        if not why and self._segment.isComputing:
            why = _("The last click is still being computed; wait until that is done.")
        if why:
            self._problem(why)
        # No callback: after the guard has shown the scan, the user presses the button again.
        return not why and self._segment.guard.allows()

    def _decide(self, change: Callable[[Campaign, ScanEntry], ScanEntry]) -> None:
        if self._current is not None and self._mayDecide():
            if self.whyNotPutOff:
                self._problem(self.whyNotPutOff)
                return
            self._putAway(change)
            if self._current is None:
                self.openNext()

    def _putAway(self, change: Callable[[Campaign, ScanEntry], ScanEntry] | None) -> None:
        """Save a draft and change the scan's state, on a worker thread."""
        current = self._current
        assert current is not None
        try:
            draft = self._draft(current)
        except PumitError as error:
            self._problem(str(error))
            return
        self._leave()
        campaign, entry = current.campaign, current.loaded.entry

        def keep() -> ScanEntry | None:
            with current.writing:
                _keepDraft(current, draft)
                made = None if change is None else change(campaign, entry)
                current.isDone = True
            return made

        def done(made: ScanEntry | None) -> None:
            if made is not None:
                self._remember(made)
            self._end(current)

        self._write(current, draft, keep, done)

    def _write(
        self,
        current: _Checked,
        masks: Masks | None,
        write: Callable[[], Any],
        done: Callable[[Any], None],
    ) -> None:
        """Write masks on a worker thread; on failure the scan stays in the scene."""
        current.written = current.scan.state()
        self._leaving.append(current)

        def fail(error: Exception) -> None:
            if isinstance(error, CampaignConflict):  # it was saved as a separate file
                self._end(current)
            elif current.scan.isThere:
                self._stay(current)
            else:
                current.drawnSince = masks if current.drawnSince is None else current.drawnSince
                self._end(current)
            self._fail(error)
            self._changed()

        def work() -> Any:
            current.campaign.refresh()  # gives the clearest error if the folder is gone
            return write()

        self._beats.stop()
        self._keep(work, done, fail)

    def _keep(
        self,
        write: Callable[[], Any],
        done: Callable[[Any], None],
        fail: Callable[[Exception], None] | None = None,
    ) -> None:
        """Write on a worker thread, and count pending writes."""

        def end(result: Any) -> None:
            self._saving -= 1
            done(result)

        def say(error: Exception) -> None:
            self._saving -= 1
            (fail or self._fail)(error)

        self._saving += 1
        self._parts.background.submit(write, end, say)

    def _end(self, current: _Checked, then: Callable[[], Any] = lambda: None) -> None:
        """Close a written scan, once later edits are saved as a draft."""
        try:
            drawn = self._drawnSince(current)
        except PumitError as error:
            self._stay(current)
            self._refuse(error)
            return
        if drawn is not None:
            self._keepLater(current, drawn, then)
            return
        self._leaving.remove(current)
        self._close(current)

        def finish() -> None:
            current.release()
            then()

        self._keep(finish, lambda _result: self._work.refresh())

    def _stay(self, current: _Checked) -> None:
        """Keep a scan in the scene, because it could not be written."""
        self._leaving.remove(current)
        current.isDone = False
        self._unsaved.append(current)

    def _drawnSince(self, current: _Checked) -> Masks | None:
        """Return the segments if they were edited since they were written, else None."""
        if not current.scan.isThere:
            return current.drawnSince
        if current.scan.state() == current.written:
            return None
        return current.segment.reviewing.masks(current.scan)

    def _keepLater(self, current: _Checked, drawn: Masks, then: Callable[[], Any]) -> None:
        """Save what was drawn in a scan while it was written, and end it."""
        current.written, current.drawnSince = current.scan.state(), None
        loaded = current.loaded
        words = _("What was drawn last in {name} is kept as a draft; open it to see that.")
        self._problem(words.format(name=current.name))

        def keep() -> None:
            segmentation = _segmentation(current, drawn)
            current.campaign.save_draft(loaded.entry, segmentation, lock=loaded.lock)

        def fail(error: Exception) -> None:
            if isinstance(error, CampaignConflict) or not current.scan.isThere:
                self._end(current, then)
            else:
                self._stay(current)
            self._fail(error)
            self._changed()

        self._keep(keep, lambda _result: self._end(current, then), fail)

    def _close(self, checked: _Checked) -> None:
        reviewing = self._segment.reviewing
        reviewing.close(checked.scan)
        if self._current is not None:
            reviewing.reviewer = self
        self._changed()

    def _draft(self, current: _Checked) -> Masks | None:
        """Return the segments if they have unsaved edits, else None."""
        if not current.scan.isThere or not current.scan.isEdited:
            return None
        return current.segment.reviewing.masks(current.scan)

    def _beat(self) -> None:
        """Renew the lock of the open scan, and save a draft."""
        current = self._current
        if current is None or current.loaded.lock is None:
            return
        if current.beating is not None and current.beating.isActive:
            return  # two at a time could write the older draft last
        lock, state, draft = current.loaded.lock, current.scan.state(), None
        if not self._segment.isComputing:
            try:
                draft = self._draft(current)
            except PumitError as error:
                self._problem(str(error))

        def beat() -> bool:
            isHeld = lock.beat()
            _keepDraft(current, draft)
            return isHeld

        def fail(error: Exception) -> None:
            if draft is not None and isinstance(error, CampaignConflict):
                current.scan.noteKept(state)
            self._fail(error)

        def say(isHeld: bool) -> None:
            if draft is not None:
                current.scan.noteKept(state)
            if not isHeld and current is self._current:
                words = _("Another person has taken {name}; Accept keeps yours beside theirs.")
                self._problem(words.format(name=current.name))

        current.beating = self._parts.background.submit(beat, say, fail)

    def _refuse(self, error: Exception) -> None:
        self._fail(error)
        self._changed()

    def _fail(self, error: Exception) -> None:
        self._problem(sentenceOf(error))
        self._work.refresh()

    def _say(self, problem: str, otherwise: str) -> None:
        """Show a problem, else keep a problem already shown, else show `otherwise`."""
        current = self._status.current
        if problem or current.activity is Activity.PROBLEM:
            self._problem(problem or current.text)
        else:
            self._status.waiting(otherwise)

    def _problem(self, sentence: str) -> None:
        """Show a problem in both panels."""
        self._status.problem(sentence)
        self._segment.status.problem(sentence)

    def _changed(self) -> None:
        self._segment.onSessionChanged()
        self._onChanged()


def _keepDraft(checked: _Checked, masks: Masks | None) -> None:
    """Write a draft, unless nothing is new or the scan is done; on a worker thread."""
    with checked.writing:
        if masks is not None and not checked.isDone:
            loaded, drawn = checked.loaded, _segmentation(checked, masks)
            checked.campaign.save_draft(loaded.entry, drawn, lock=loaded.lock)


def _keptInTime(drafts: Sequence[tuple[_Checked, Masks | None]], end: float) -> list[Exception]:
    """Write drafts and release their locks; return what went wrong until `time.monotonic` `end`."""
    errors: list[Exception] = []
    kept: list[_Checked] = []

    def keep() -> None:
        for each, masks in drafts:
            try:
                _keepDraft(each, masks)
                kept.append(each)
                each.release()
            except Exception as error:
                errors.append(error)

    thread = threading.Thread(target=keep, name="pumit-drafts", daemon=True)
    thread.start()
    thread.join(max(0.0, end - time.monotonic()))
    isLate, found = thread.is_alive(), list(errors)
    late = [each.name for each, masks in drafts if masks is not None and each not in kept]
    if isLate and late:
        words = _("The campaign's folder does not answer: the draft of {names} may be lost.")
        found.append(PumitError(words.format(names=", ".join(late))))
    return found


def _segmentation(checked: _Checked, masks: Masks) -> Segmentation | None:
    """Return masks by class, others by their own names; None if there are none."""
    volume, campaign = checked.loaded.review.volume, checked.campaign
    if any(part.shape != volume.shape for _name, part in masks):
        raise VolumeError(_("The scan has changed since it was opened; open it again."))
    whole = ((name, part.whole()) for name, part in masks)
    joined = join_by_class(
        whole, campaign.classes, ignored=campaign.ignored_names, keeps_others=True
    )
    segments = tuple(Segment(name, mask) for name, mask in joined.items())
    return Segmentation(volume, segments, DRAWN) if segments else None
