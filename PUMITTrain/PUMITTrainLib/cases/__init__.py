"""Training cases: finding, checking and editing them."""
