"""Sessions: leases, scheduling and memory."""
