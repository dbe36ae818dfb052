"""The modules under test speak through Slicer's translation."""

from bare_slicer import prepare

prepare()
