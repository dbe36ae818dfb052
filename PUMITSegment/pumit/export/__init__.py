"""Results as files: DICOM-SEG, RTSTRUCT, segmentation NRRD, label maps and tables."""
