"""Readers of image files: NIfTI, NRRD, MetaImage, PNG and JPEG."""
