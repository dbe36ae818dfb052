"""`slicer.parameterNodeWrapper`: the part of it that scripted modules use."""

from slicer.parameterNodeWrapper.annotations import (
    Decimals,
    Default,
    SingleStep,
    findFirstAnnotation,
    splitAnnotations,
    unannotatedType,
)
from slicer.parameterNodeWrapper.gui_connectors import GuiConnector, createGuiConnector
from slicer.parameterNodeWrapper.kinds import isParameterPack
from slicer.parameterNodeWrapper.parameters import parameterPack
from slicer.parameterNodeWrapper.validators import (
    Choice,
    Exclude,
    IsInstance,
    Maximum,
    Minimum,
    NotNone,
    RangeBounds,
    Validator,
    WithinRange,
)
from slicer.parameterNodeWrapper.wrapper import (
    SlicerParameterNamePropertyName,
    findChildWidgetForParameter,
    isParameterNodeWrapper,
    parameterNodeWrapper,
)

__all__ = [
    "Choice",
    "Decimals",
    "Default",
    "Exclude",
    "GuiConnector",
    "IsInstance",
    "Maximum",
    "Minimum",
    "NotNone",
    "RangeBounds",
    "SingleStep",
    "SlicerParameterNamePropertyName",
    "Validator",
    "WithinRange",
    "createGuiConnector",
    "findChildWidgetForParameter",
    "findFirstAnnotation",
    "isParameterNodeWrapper",
    "isParameterPack",
    "parameterNodeWrapper",
    "parameterPack",
    "splitAnnotations",
    "unannotatedType",
]
