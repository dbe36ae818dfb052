"""PUMIT Train: cases, planning, runs, results and panel."""
