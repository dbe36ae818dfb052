"""Export of segments to files, with checks beforehand."""
