"""Further parts of section 4 of the panel: search by name, batches and follow-up."""
