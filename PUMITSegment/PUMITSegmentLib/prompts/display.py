"""Display of prompts: green if positive, red if negative, with a black outline."""

from __future__ import annotations

from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.tag import BOXES, CURVES, PromptKind, PromptTag

_POSITIVE_RGB = (0.1, 0.8, 0.2)
_NEGATIVE_RGB = (0.95, 0.15, 0.1)
_GLYPH_PERCENT = 2.0
_STROKE_GLYPH_PERCENT = 0.4  # many close points: the line should be seen
_FILL_OPACITY = 0.08
# Pixels: the nine handles would hide the content of a smaller box; zooming in shows them.
_LEAST_BOX = 90.0
# Outline under glyphs and lines, so that they are visible on any fill.
OUTLINE_RGB = (0.0, 0.0, 0.0)
_OUTLINE_GLYPH, _OUTLINE_LINE = 1.5, 1.8


def nameOf(tag: PromptTag, segmentName: str) -> str:
    """Return the name of a prompt node, such as "Liver +"."""
    sign = "+" if tag.isPositive else "-"
    kinds = {
        PromptKind.POINT: "{segment} {sign}",
        PromptKind.BOX_3D: _("{segment} box") if tag.isPositive else _("{segment} box {sign}"),
        PromptKind.BOX_2D: (
            _("{segment} slice box") if tag.isPositive else _("{segment} slice box {sign}")
        ),
        PromptKind.SCRIBBLE: _("{segment} scribble {sign}"),
        PromptKind.LASSO: _("{segment} lasso {sign}"),
        None: _("{segment} edited"),
    }
    return kinds[tag.kind].format(segment=segmentName, sign=sign)


def rename(node, tag: PromptTag, oldName: str, newName: str) -> None:
    """Rename a node with its segment, unless the user renamed it."""
    old, name = nameOf(tag, oldName), node.GetName()
    if name == old or name.startswith(f"{old}_"):
        node.SetName(nameOf(tag, newName) + name[len(old) :])


def applyStyle(node, tag: PromptTag) -> None:
    """Set the colours and handles of a new markups node."""
    # Labels "+1", "-2"... record the polarity in a saved list, also for `pumit segment`.
    node.SetControlPointLabelFormat("+%d" if tag.isPositive else "-%d")
    display = _displayWithOutline(node)
    color = _POSITIVE_RGB if tag.isPositive else _NEGATIVE_RGB
    modified = display.StartModify()
    display.SetSelectedColor(*color)
    display.SetColor(*color)
    display.SetActiveColor(*(0.5 + 0.5 * part for part in color))
    display.SetPointLabelsVisibility(False)
    display.SetPropertiesLabelVisibility(False)
    display.SetUseGlyphScale(True)
    display.SetGlyphScale(_STROKE_GLYPH_PERCENT if tag.kind in CURVES else _GLYPH_PERCENT)
    if tag.kind in BOXES:
        # Records the polarity in a saved file.
        node.SetInsideOut(not tag.isPositive)
        display.SetFillOpacity(_FILL_OPACITY)
        display.SetHandlesInteractive(True)
        # Hidden, as it is usually in the way; Slicer's context menu can show it.
        display.SetRotationHandleVisibility(False)
        display.SetTranslationHandleVisibility(True)
        display.SetScaleHandleVisibility(True)
    display.EndModify(modified)
    _styleOutline(node, display)


def displayOf(node):
    """Return a prompt node's main display node, not its outline; or None."""
    count = node.GetNumberOfDisplayNodes()
    return node.GetNthDisplayNode(count - 1) if count else None


def showHandles(boxNode, isShown: bool) -> None:
    """Show or hide a box's handles; without corners they would be at the origin."""
    displayOf(boxNode).SetHandlesInteractive(isShown)


def fitHandles(boxNode, smallest: float) -> None:
    """Show the handles of a box only if they do not hide its content.

    Args:
        smallest: Its shorter side in the view where it is largest, pixels; infinite if not
            visible.
    """
    display, isShown = displayOf(boxNode), smallest >= _LEAST_BOX
    if display is not None and bool(display.GetScaleHandleVisibility()) is not isShown:
        modified = display.StartModify()
        display.SetScaleHandleVisibility(isShown)
        display.SetTranslationHandleVisibility(isShown)
        display.EndModify(modified)


def show(node, isShown: bool) -> None:
    """Show a prompt node, or hide and lock it so that it cannot be moved by mistake."""
    if not node.IsA("vtkMRMLMarkupsNode"):
        return
    for index in range(node.GetNumberOfDisplayNodes()):
        node.GetNthDisplayNode(index).SetVisibility(isShown)
    node.SetLocked(not isShown)


def _displayWithOutline(node):
    """Return a prompt node's main display node, which is drawn over its outline's.

    The first display node of a node is drawn below the others. Boxes have no outline display:
    Slicer draws their edges equally thin in both; see `scene.box_edges`.
    """
    node.CreateDefaultDisplayNodes()
    if node.GetNumberOfDisplayNodes() == 1 and not node.IsA("vtkMRMLMarkupsROINode"):
        display = node.GetScene().AddNewNodeByClass(node.GetDisplayNode().GetClassName())
        display.CopyContent(node.GetDisplayNode())
        node.AddAndObserveDisplayNodeID(display.GetID())
    return displayOf(node)


def _styleOutline(node, display) -> None:
    outline = node.GetDisplayNode()
    if outline is display:
        return
    modified = outline.StartModify()
    outline.CopyContent(display)
    for setColor in (outline.SetColor, outline.SetSelectedColor, outline.SetActiveColor):
        setColor(*OUTLINE_RGB)
    outline.SetGlyphScale(_OUTLINE_GLYPH * display.GetGlyphScale())
    outline.SetLineThickness(_OUTLINE_LINE * display.GetLineThickness())
    outline.EndModify(modified)
