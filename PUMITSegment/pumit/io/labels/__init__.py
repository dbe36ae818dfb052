"""Readers of label maps, DICOM-SEG and RTSTRUCT onto the grid of a scan."""
