"""Small widgets of the panel."""
