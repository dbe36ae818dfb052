"""Generated scans: label maps of random shapes and anatomy, with domain-randomised intensities."""
