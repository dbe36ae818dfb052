"""DICOM series: found, sorted, chosen and read."""
