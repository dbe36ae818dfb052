"""Slicer's module SampleData, as far as other modules register their data with it."""

from __future__ import annotations

import slicer


class SampleDataSource:
    """One entry: what Slicer would download, or who makes it instead."""

    def __init__(
        self,
        sampleName=None,
        sampleDescription=None,
        uris=None,
        fileNames=None,
        nodeNames=None,
        checksums=None,
        loadFiles=None,
        customDownloader=None,
        thumbnailFileName=None,
        loadFileTypes=None,
        loadFileProperties=None,
        loadFileType=None,
    ):
        self.sampleName = sampleName
        self.sampleDescription = sampleDescription or sampleName
        self.uris = _list(uris)
        self.fileNames = _list(fileNames)
        self.nodeNames = _list(nodeNames)
        self.checksums = _list(checksums)
        self.loadFiles = _list(loadFiles)
        self.customDownloader = customDownloader
        self.thumbnailFileName = thumbnailFileName
        self.loadFileTypes = _list(loadFileTypes or loadFileType)
        self.loadFileProperties = loadFileProperties or {}
        counts = {len(self.uris), len(self.fileNames), len(self.nodeNames)}
        if customDownloader is None and len(counts) > 1:
            raise ValueError(f"{sampleName} has different numbers of addresses, files and nodes")


class SampleDataLogic:
    """Keeps `slicer.modules.sampleDataSources`, entries by category."""

    @staticmethod
    def registerCustomSampleDataSource(
        category="Custom",
        sampleName=None,
        uris=None,
        fileNames=None,
        nodeNames=None,
        customDownloader=None,
        thumbnailFileName=None,
        loadFileTypes=None,
        loadFiles=None,
        loadFileProperties=None,
        checksums=None,
        loadFileType=None,
    ):
        """Add an entry."""
        source = SampleDataSource(
            sampleName=sampleName,
            uris=uris,
            fileNames=fileNames,
            nodeNames=nodeNames,
            thumbnailFileName=thumbnailFileName,
            loadFileTypes=loadFileTypes,
            loadFiles=loadFiles,
            loadFileProperties=loadFileProperties,
            checksums=checksums,
            customDownloader=customDownloader,
            loadFileType=loadFileType,
        )
        _sources().setdefault(category, []).append(source)


def _sources():
    if not hasattr(slicer.modules, "sampleDataSources"):
        slicer.modules.sampleDataSources = {}
    return slicer.modules.sampleDataSources


def _list(value):
    if value is None:
        return []
    return [value] if isinstance(value, (str, bool)) else list(value)
