"""Parameters of a scene that someone edited, or that a later version saved."""

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
    """Return the typed view of a parameter node; values that cannot be read become the usual ones.

    Args:
        make: Class of the typed view.
        node: The parameter node.
        status: Status board, which says where a value could not be read.
    """
    if _isReadable(make, node):
        return make(node)
    with slicer.util.NodeModify(node):  # no one sees what is tried
        texts = {name: node.GetParameter(name) for name in node.GetParameterNames()}
        for name in texts:
            node.UnsetParameter(name)
        make(node)  # which writes the usual values
        for name, text in texts.items():
            usual = node.GetParameter(name)
            node.SetParameter(name, text)
            if not _isReadable(make, node):
                node.SetParameter(name, usual)
    status.problem(_("Settings of this scene could not be read: the usual ones hold."))
    return make(node)


def _isReadable(make: Callable[[Any], Any], node: Any) -> bool:
    try:
        parameters = make(node)
        for name in make.__annotations__:
            getattr(parameters, name)
    except (ValueError, KeyError, TypeError, IndexError):
        return False
    return True
