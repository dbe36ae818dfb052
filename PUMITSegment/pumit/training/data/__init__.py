"""A lab's labelled scans: found, matched, checked, split and cached."""
