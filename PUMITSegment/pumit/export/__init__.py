"""Writers of results: DICOM-SEG, RTSTRUCT, `.seg.nrrd`, label maps and statistics."""
