"""A scripted module as small as one can be: another one that a user opens."""

from slicer.ScriptedLoadableModule import ScriptedLoadableModule, ScriptedLoadableModuleWidget


class BrightVoxels(ScriptedLoadableModule):
    """Registers the module."""

    def __init__(self, parent):
        super().__init__(parent)
        parent.title = "Bright voxels"


class BrightVoxelsWidget(ScriptedLoadableModuleWidget):
    """An empty panel."""
