"""Which of several answers to a prompt is shown, and of how many, kept on the prompt's node.

A prompt that is deleted takes its choice with it, and a saved scene brings it back. As the order
is, it is kept for each control point of a list of points, and for the whole of any other node.
"""

from __future__ import annotations

import json

from pumit.segmentation import AnswerChoice

_CHOICES = "PUMITSegment.Answers"

Choices = dict[str, AnswerChoice]


def choicesOf(node) -> Choices:
    """Return the choice of each prompt of a node that has several answers, by the prompt's key."""
    try:
        pairs = json.loads(node.GetAttribute(_CHOICES) or "{}").items()
        choices = {str(key): AnswerChoice(int(n), int(count)) for key, (n, count) in pairs}
    except (ValueError, TypeError, AttributeError):
        return {}  # edited by hand: the most trusted answer counts
    return {key: choice for key, choice in choices.items() if 1 <= choice.number <= choice.count}


def setChoices(node, choices: Choices) -> None:
    """Keep the choices of a node's prompts; one answer is no choice."""
    kept = {key: (each.number, each.count) for key, each in choices.items() if each.count > 1}
    text = json.dumps(kept, separators=(",", ":")) if kept else ""
    if (node.GetAttribute(_CHOICES) or "") != text:
        node.SetAttribute(_CHOICES, text or None)
