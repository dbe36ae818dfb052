"""The order in which a segment's prompts were given, kept on their nodes.

Every prompt has a number. A list of points keeps one for each control point, by the control
point's ID, which markups files keep too; any other node keeps one for itself. Numbers rather
than a list in one place: a prompt that is deleted takes its number with it, a moved one keeps
it, and scenes can be merged.
"""

from __future__ import annotations

import json

import slicer

_ORDER = "PUMITSegment.Order"
_WHOLE = ""  # the key of a node that is one prompt


def keysOf(node) -> list[str]:
    """Names of the prompts in a node: IDs of defined control points, or one for all of it."""
    if not node.IsA("vtkMRMLMarkupsFiducialNode"):
        return [_WHOLE]
    defined = slicer.vtkMRMLMarkupsNode.PositionDefined
    return [
        node.GetNthControlPointID(i)
        for i in range(node.GetNumberOfControlPoints())
        if node.GetNthControlPointPositionStatus(i) == defined
    ]


def numbersOf(node) -> dict[str, int]:
    """Return the number of each prompt of a node that has one."""
    try:
        numbers = json.loads(node.GetAttribute(_ORDER) or "{}")
        return {str(key): int(number) for key, number in numbers.items()}
    except (ValueError, TypeError, AttributeError):
        return {}  # edited by hand: its prompts count as the latest


def setNumbers(node, numbers: dict[str, int]) -> None:
    """Keep the numbers of a node's prompts."""
    text = json.dumps(numbers, separators=(",", ":"))
    if node.GetAttribute(_ORDER) != text:
        node.SetAttribute(_ORDER, text)


def numberPrompts(nodes: list) -> None:
    """Give the next numbers to prompts that have none, or one that another has already.

    Args:
        nodes: All nodes of one segment that hold finished prompts.
    """
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
    """Give a node that is one prompt a number after all others of its segment."""
    latest = max((n for other in nodes for n in numbersOf(other).values()), default=0)
    setNumbers(node, {_WHOLE: latest + 1})
