"""Prompts that are not finished stay out of files: who opens those gets no empty nodes."""

from __future__ import annotations


def saveOnlyFinished(node, isFinished: bool) -> None:
    """Let a prompt node be saved with the scene, or not yet.

    Args:
        node: A prompt node; what displays it is saved, or not, along with it.
        isFinished: Whether it holds a prompt.
    """
    nodes = [node]
    if node.IsA("vtkMRMLDisplayableNode"):
        nodes += [node.GetNthDisplayNode(i) for i in range(node.GetNumberOfDisplayNodes())]
    for each in nodes:
        if each is not None and bool(each.GetSaveWithScene()) != isFinished:
            each.SetSaveWithScene(isFinished)
