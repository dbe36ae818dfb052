"""Results as files: DICOM-SEG, segmentation NRRD, label maps and pictures."""
