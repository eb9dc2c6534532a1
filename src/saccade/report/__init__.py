"""Records as terminal tables, matplotlib figures, the ledger and the single-file page."""
