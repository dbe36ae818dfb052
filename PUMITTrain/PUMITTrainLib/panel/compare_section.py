"""Comparison section of the panel: two segmentations and their differences."""

from __future__ import annotations

from slicer.i18n import tr as _

from PUMITTrainLib.pair_comparison import ClassAgreement, DifferentPlace
from PUMITTrainLib.panel.widgets import Cell, SectionTitle, TableCells

_MOST_ROWS = 6
_PLACE, _DEPTH = range(2)


class CompareSection:
    """Widgets that choose a segmentation and its reference, and show each class's agreement."""

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._comparison = logic.comparison
        self._title = SectionTitle(ui.compareSection)
        headers = [_("Class"), _("Dice"), _("NSD"), _("HD95 mm"), _("Volume")]
        self._classes = TableCells(ui.agreementTable, headers)
        self._classes.setWidths({1: 46, 2: 46, 3: 66, 4: 76}, (0,))
        self._places = TableCells(ui.differenceTable, [_("Largest differences"), _("Depth")])
        self._places.setWidths({_DEPTH: 70}, (_PLACE,))
        for table in (ui.agreementTable, ui.differenceTable):
            table.verticalHeader().setDefaultSectionSize(24)
        for selector in (ui.referenceSelector, ui.comparedSelector):
            selector.connect("currentNodeChanged(vtkMRMLNode*)", self._onChosen)
        ui.compareButton.connect("clicked()", self._onCompare)
        ui.differenceTable.connect("cellClicked(int,int)", self._onPlace)

    def refresh(self) -> None:
        """Show the results."""
        ui, comparison = self._ui, self._comparison
        self._title.showState(comparison.title if comparison.classes else "")
        self._classes.show([agreementCells(each) for each in comparison.classes])
        self._places.show([placeCells(each) for each in comparison.places])
        ui.agreementTable.visible = bool(comparison.classes)
        ui.differenceTable.visible = bool(comparison.places)
        self._classes.fitHeight(_MOST_ROWS)
        self._places.fitHeight(_MOST_ROWS)
        ui.compareButton.text = _("Cancel") if comparison.isRunning else _("Compare")
        chosen = (ui.referenceSelector.currentNode(), ui.comparedSelector.currentNode())
        ui.compareButton.enabled = comparison.isRunning or None not in chosen
        ui.compareButton.toolTip = (
            _("Measure how well the two agree, class by class")
            if ui.compareButton.enabled
            else _("Choose two segmentations first")
        )

    def _onChosen(self, _node) -> None:
        self.refresh()

    def _onCompare(self) -> None:
        ui, comparison = self._ui, self._comparison
        if comparison.isRunning:
            comparison.cancel()
            return
        comparison.start(
            ui.referenceSelector.currentNode(),
            ui.comparedSelector.currentNode(),
            ui.toleranceSpinBox.value,
        )

    def _onPlace(self, row: int, _column: int) -> None:
        self._comparison.show(row)


def agreementCells(row: ClassAgreement) -> tuple[Cell, ...]:
    """Return the cells of a class, in the order of the columns."""
    volumes = ""
    if row.comparedMl is not None and row.referenceMl is not None:
        volumes = _("{compared:.4g} mL, reference {reference:.4g} mL").format(
            compared=row.comparedMl, reference=row.referenceMl
        )
        if row.referenceMl:
            volumes += f" ({row.differenceMl / row.referenceMl:+.0%})"
    return (
        Cell(row.name),
        Cell(_figure(row.dice, "{:.3f}"), _("Overlap: 1 is identical, 0 is no overlap")),
        Cell(_figure(row.nsd, "{:.3f}"), _("Fraction of both surfaces within the tolerance")),
        Cell(
            _figure(row.hd95Mm, "{:.1f}"),
            _("95th percentile of the distances between the surfaces"),
        ),
        Cell(_figure(row.differenceMl, _("{:+.3g} mL")), volumes),
    )


def placeCells(place: DifferentPlace) -> tuple[Cell, ...]:
    """Return the cells of a place."""
    what = _("{name}: too little") if place.isMissing else _("{name}: too much")
    hint = _("Press to see the place in the slice views")
    return (
        Cell(what.format(name=place.name), hint),
        Cell(_("{depth:.1f} mm").format(depth=place.depthMm), hint),
    )


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
