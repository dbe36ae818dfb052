"""Files, the subject hierarchy and the DICOM database."""
