"""Many scans: found, predicted by processes or a Dask cluster, and reported."""
