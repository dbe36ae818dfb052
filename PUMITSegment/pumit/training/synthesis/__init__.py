"""Generated scans: label maps from families of shapes, intensities by domain randomisation."""
