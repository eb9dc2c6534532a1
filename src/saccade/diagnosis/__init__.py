"""Why attention does not learn: faults of a run, one per file, judged from its record."""
