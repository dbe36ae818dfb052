"""Follow-up of lesions: registration of two scans, propagation and measurement of lesions."""
