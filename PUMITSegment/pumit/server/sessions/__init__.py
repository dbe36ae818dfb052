"""Sessions: leases, their turn to compute, the memory they hold."""
