"""Curves of a run in the panel."""

from __future__ import annotations

from collections.abc import Mapping

from slicer.i18n import tr as _

from PUMITTrainLib.panel.curves.picture import PALETTE, Color, Curve, drawCurves, smoothed
from PUMITTrainLib.runs.curves import MEAN

_LOSS: Color = (0.45, 0.45, 0.45)
_LOSS_FAINT: Color = (0.78, 0.78, 0.78)
_MEAN: Color = (0.9, 0.2, 0.2)
_HEIGHT = 110
_MARGINS = 24


def lossCurves(curves) -> list[Curve]:
    """Return the loss of each step, and its running mean."""
    if len(curves.loss) < 2:
        return []
    return [
        Curve("", curves.loss, _LOSS_FAINT),
        Curve(_("running mean"), smoothed(curves.loss), _LOSS, isStrong=True),
    ]


def scoreCurves(curves, colors: Mapping[str, Color]) -> list[Curve]:
    """Return the Dice of each class in its own colour, and their mean on top.

    Args:
        curves: Curves of the run.
        colors: Colours of classes by name; others get default ones.
    """
    drawn = [
        Curve(name, points, colors.get(name, PALETTE[index % len(PALETTE)]))
        for index, (name, points) in enumerate(
            (name, points) for name, points in curves.scores.items() if name != MEAN
        )
    ]
    if MEAN in curves.scores and len(drawn) != 1:
        drawn.append(Curve(_("mean"), curves.scores[MEAN], _MEAN, isStrong=True))
    return drawn


def scoreTitle(curves) -> str:
    """Return the name of the score: only that of segmentations is known by class."""
    return _("Dice") if set(curves.scores) - {MEAN} else _("Score")


class CurveLabels:
    """Labels in the panel that show both charts."""

    def __init__(self, ui) -> None:
        self._ui = ui
        self._drawn: tuple[object, ...] = ()
        for label in (ui.lossCurveLabel, ui.diceCurveLabel):
            label.hide()

    def show(self, curves, colors: Mapping[str, Color]) -> None:
        """Show the curves of a run; hide empty charts."""
        width = max(self._ui.lossCurveLabel.parentWidget().width - _MARGINS, 80)
        key = (id(curves), curves.version, width, tuple(colors.items()))
        if key == self._drawn:
            return
        self._drawn = key
        for label, title, drawn, isShare in (
            (self._ui.lossCurveLabel, _("Loss"), lossCurves(curves), False),
            (self._ui.diceCurveLabel, scoreTitle(curves), scoreCurves(curves, colors), True),
        ):
            label.visible = bool(drawn)
            if drawn:
                size = (width, _HEIGHT)
                label.setPixmap(drawCurves(title, drawn, size, isShare=isShare, widget=label))
                label.setMinimumHeight(_HEIGHT)
