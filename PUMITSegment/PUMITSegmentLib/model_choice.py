"""Which of a server's models can do what, as the panel offers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slicer.i18n import tr as _

# More class names than this are counted, not listed.
_NAMED_CLASSES = 12


@dataclass(frozen=True)
class ModelChoice:
    """One model of a server.

    Attributes:
        name: What the server is asked for.
        kind: "promptable", "automatic", "tokenizer" or another that the panel does not use.
        label: Shown in a list.
        tooltip: What it does, which classes it finds, its version.
    """

    name: str
    kind: str
    label: str
    tooltip: str


def automaticModels(capabilities: Mapping[str, Any]) -> list[ModelChoice]:
    """Models that segment by themselves: trained ones first, then the one that takes prompts."""
    kinds = ("promptable", "automatic")
    choices = [choice for choice in _choices(capabilities) if choice.kind in kinds]
    return sorted(choices, key=lambda choice: choice.kind != "automatic")


def noTokenizerText() -> str:
    """What the tokenizer view shows where there is no tokenizer."""
    return _(
        "No tokenizer is installed, and none comes with PUMIT. It shows the scan as it writes it "
        "down and reads it back: what is lost is what it does not know. Make one with "
        "`pumit pretrain tokenizer` on the computer that computes, and connect again."
    )


def _choices(capabilities: Mapping[str, Any]) -> list[ModelChoice]:
    choices = []
    for model in capabilities.get("models", ()):
        name, kind = str(model["name"]), str(model["kind"])
        label = name
        if kind == "promptable":
            label = _("{model}: whatever stands out, unnamed").format(model=name)
        lines = [str(model.get("description", "")), _classesLine(list(model.get("classes", ())))]
        lines.append(_("Version {version}").format(version=model.get("version", "?")))
        if kind == "promptable":
            lines.append(
                _(
                    "Asks at a grid of points and keeps the answers it trusts most: many of them "
                    "are no anatomical structure, and it takes a minute or more without a GPU."
                )
            )
        choices.append(ModelChoice(name, kind, label, "\n".join(filter(None, lines))))
    return choices


def _classesLine(classes: list[str]) -> str:
    if not classes:
        return ""
    named = ", ".join(classes[:_NAMED_CLASSES])
    if len(classes) <= _NAMED_CLASSES:
        return _("Finds: {classes}").format(classes=named)
    return _("Finds {count} structures: {classes}, ...").format(count=len(classes), classes=named)
