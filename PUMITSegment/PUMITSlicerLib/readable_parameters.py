"""Parameter nodes with unreadable values, edited by hand or saved by a later version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import slicer
from slicer.i18n import tr as _

from PUMITSlicerLib.status import StatusBoard

Parameters = TypeVar("Parameters")


def readableParameters(
    make: Callable[..., Parameters], node: Any, status: StatusBoard
) -> Parameters:
    """Return the parameter node wrapper; unreadable values are replaced by their defaults.

    Args:
        make: Class of the parameter node wrapper.
        status: Status board that reports unreadable values.
    """
    if _isReadable(make, node):
        return make(node)
    with slicer.util.NodeModify(node):  # hides the trials from observers
        texts = {name: node.GetParameter(name) for name in node.GetParameterNames()}
        for name in texts:
            node.UnsetParameter(name)
        make(node)  # writes the defaults
        for name, text in texts.items():
            usual = node.GetParameter(name)
            node.SetParameter(name, text)
            if not _isReadable(make, node):
                node.SetParameter(name, usual)
    status.problem(_("Some settings of this scene could not be read; their defaults are used."))
    return make(node)


def _isReadable(make: Callable[[Any], Any], node: Any) -> bool:
    try:
        parameters = make(node)
        for name in make.__annotations__:
            getattr(parameters, name)
    except (ValueError, KeyError, TypeError, IndexError):
        return False
    return True
