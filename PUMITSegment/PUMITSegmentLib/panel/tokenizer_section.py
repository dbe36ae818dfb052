"""Section 5 of the panel: reconstruction of the scan by a tokenizer."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from PUMITSlicerLib.computing.compute import ComputeState
from PUMITSlicerLib.computing.connection import answers_prompts_only, is_nninteractive
from PUMITSlicerLib.mrml import volumeKey
from slicer.i18n import tr as _

from PUMITSegmentLib.reconstruction import ViewsBefore, compareInViews, showReconstruction
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.session_work import SessionWork


class TokenizerSection:
    """Widgets that show a tokenizer's reconstruction and how familiar the scan is to it."""

    def __init__(self, ui, selection: Selection, work: SessionWork) -> None:
        self._ui = ui
        self._selection = selection
        self._status = selection.status
        self._work, self._compute = work, work.compute
        self._sentence = ""
        self._familiarity: Any = None
        self._key: Hashable = None  # scan that both are of
        ui.tokenizerButton.connect("clicked()", self._onRun)
        self._before: ViewsBefore | None = None
        ui.viewsBackButton.connect("clicked()", self._onBack)
        ui.tokenizerSection.connect("contentsCollapsed(bool)", self._onCollapsed)
        work.open(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show whether there is a tokenizer, and its result."""
        if self._selection.parameters is None:  # the scene is changing
            self._before = None
        self._ui.viewsBackButton.enabled = self._before is not None
        reason = self._whyNot()
        self._ui.tokenizerButton.enabled = not reason
        self._ui.tokenizerButton.toolTip = reason or _(
            "Encode the scan as tokens, decode them again, and show what was lost"
        )
        self._ui.tokenizerLabel.text = (
            (self._sentence if self._isOfScan else "")
            or reason
            or _(
                "A tokenizer encodes the scan with a learned vocabulary and decodes it again. What "
                "is lost on the way is what the model does not know."
            )
        )
        self._showScore()

    def close(self) -> None:
        """Cancel the reconstruction."""
        self._work.close()

    @property
    def _isOfScan(self) -> bool:
        """Whether the result is of the chosen scan."""
        return self._key == volumeKey(self._selection.volumeNode)

    def _showScore(self) -> None:
        bar, judged = self._ui.familiarityBar, self._familiarity if self._isOfScan else None
        bar.visible = judged is not None
        if judged is None:
            return
        bar.value = round(judged.score)
        bar.format = _("Familiar: {score:.0f} %").format(score=judged.score)
        lines = [
            _("{sentence}: {value:.2f}; usual {low:.2f} to {high:.2f}").format(
                sentence=part.sentence, value=part.value, low=part.usual[0], high=part.usual[2]
            )
            for part in judged.parts
            if part.cost > 0
        ]
        bar.toolTip = "\n".join(
            [_("How well the model knows images like this one; what lowers it:")]
            + (lines or [_("nothing")])
        )

    def _tokenizer(self) -> str:
        models = (self._compute.capabilities or {}).get("models") or []
        names = [model["name"] for model in models if model.get("kind") == "tokenizer"]
        return names[0] if names else ""

    def _whyNot(self) -> str:
        if self._work.whyNot:
            return self._work.whyNot
        if self._compute.state is not ComputeState.READY:
            return self._compute.sentence
        if self._tokenizer():
            return ""
        if is_nninteractive(self._compute.capabilities):
            return answers_prompts_only(_("a tokenizer"))
        return _(
            "No tokenizer is installed. A tokenizer encodes the scan and decodes it again, and "
            "shows what is lost on the way. One comes with PUMIT: install PUMIT again on the "
            "computer that runs the models, and connect again."
        )

    def _onCollapsed(self, isCollapsed: bool) -> None:
        compute = self._compute
        if not isCollapsed and compute.state is ComputeState.STOPPED:
            compute.ensureReady(self.refresh, self._status.showError)
        self.refresh()

    def _onBack(self) -> None:
        before, self._before = self._before, None
        self._ui.viewsBackButton.enabled = False
        if before is not None:
            before.restore()

    def _onRun(self) -> None:
        name = self._tokenizer()

        def request(session, watch) -> Any:
            return session.reconstruct(name, watch=watch)

        def show(answer: Any) -> None:
            volumeNode = self._selection.volumeNode
            if self._before is None:  # not those of an earlier reconstruction
                self._before = ViewsBefore()
            compareInViews(showReconstruction(answer, volumeNode, name), volumeNode)
            self._sentence, self._familiarity = answer.sentence, answer.familiarity
            self._key = volumeKey(volumeNode)
            self._status.done(answer.sentence)
            self.refresh()

        self._sentence, self._familiarity = "", None
        self._work.start(_("{model} reconstructs the scan...").format(model=name), request, show)
