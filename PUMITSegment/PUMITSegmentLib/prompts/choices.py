"""Choice among several answers to a prompt, stored on the prompt's node.

Deleting a prompt deletes its choice, and a saved scene restores it. Like the order, the choice is
stored per control point of a point list, and once for any other node.
"""

from __future__ import annotations

import json

from pumit.segmentation import AnswerChoice

_CHOICES = "PUMITSegment.Answers"

Choices = dict[str, AnswerChoice]


def choicesOf(node) -> Choices:
    """Return the choice of each prompt of a node that has several answers, by prompt key."""
    try:
        pairs = json.loads(node.GetAttribute(_CHOICES) or "{}").items()
        choices = {str(key): AnswerChoice(int(n), int(count)) for key, (n, count) in pairs}
    except (ValueError, TypeError, AttributeError):
        return {}  # edited by hand: use the first, most trusted answer
    return {key: choice for key, choice in choices.items() if 1 <= choice.number <= choice.count}


def setChoices(node, choices: Choices) -> None:
    """Store the choices of a node's prompts, except where there is only one answer."""
    kept = {key: (each.number, each.count) for key, each in choices.items() if each.count > 1}
    text = json.dumps(kept, separators=(",", ":")) if kept else ""
    if (node.GetAttribute(_CHOICES) or "") != text:
        node.SetAttribute(_CHOICES, text or None)
