"""Claims: bounds, statistics over seeds, verdicts, and what a registration is compared by."""
