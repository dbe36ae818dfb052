"""Order in which a segment's prompts were given, stored on their nodes.

Every prompt has a number. A point list stores one per control point, by the control point's ID,
which markups files save too; any other node stores one. With numbers instead of a central list, a
deleted prompt removes its number, a moved one keeps it, and scenes can be merged.
"""

from __future__ import annotations

import json

import slicer

_ORDER = "PUMITSegment.Order"
_WHOLE = ""  # key of a node that is a single prompt


def keysOf(node) -> list[str]:
    """Return the keys of a node's prompts: IDs of defined control points, or a single key."""
    if not node.IsA("vtkMRMLMarkupsFiducialNode"):
        return [_WHOLE]
    return [node.GetNthControlPointID(i) for i in definedIndices(node)]


def definedIndices(node) -> list[int]:
    """Return the indices of a node's placed control points, without the preview."""
    defined = slicer.vtkMRMLMarkupsNode.PositionDefined
    count = node.GetNumberOfControlPoints()
    return [i for i in range(count) if node.GetNthControlPointPositionStatus(i) == defined]


def numbersOf(node) -> dict[str, int]:
    """Return the number of each numbered prompt of a node, by key."""
    try:
        numbers = json.loads(node.GetAttribute(_ORDER) or "{}")
        return {str(key): int(number) for key, number in numbers.items()}
    except (ValueError, TypeError, AttributeError):
        return {}  # edited by hand: its prompts count as the latest


def setNumbers(node, numbers: dict[str, int]) -> None:
    """Store the numbers of a node's prompts."""
    text = json.dumps(numbers, separators=(",", ":"))
    if node.GetAttribute(_ORDER) != text:
        node.SetAttribute(_ORDER, text)


def numberPrompts(nodes: list) -> None:
    """Assign the next numbers to prompts without a number or with a duplicate one."""
    taken: set[int] = set()
    unknown: list[tuple[object, str]] = []
    kept: dict[object, dict[str, int]] = {}
    for node in nodes:
        known = numbersOf(node)
        kept[node] = {}
        for key in keysOf(node):
            number = known.get(key)
            if number is None or number in taken:
                unknown.append((node, key))
            else:
                taken.add(number)
                kept[node][key] = number
    following = max(taken, default=0) + 1
    for number, (node, key) in enumerate(unknown, start=following):
        kept[node][key] = number
    for node, numbers in kept.items():
        setNumbers(node, numbers)


def makeLatest(node, nodes: list) -> None:
    """Give a single-prompt node a number after all others of its segment."""
    latest = max((n for other in nodes for n in numbersOf(other).values()), default=0)
    setNumbers(node, {_WHOLE: latest + 1})
