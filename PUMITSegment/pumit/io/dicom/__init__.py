"""DICOM series: search, selection, sorting and reading."""
