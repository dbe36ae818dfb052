"""Batch prediction of many scans, in processes or on a Dask cluster, with a report."""
