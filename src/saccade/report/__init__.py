"""What a record looks like: terminal tables, matplotlib figures, the ledger and the single-file
page.
"""
