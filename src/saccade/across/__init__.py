"""What compares papers, and the runs on which the diagnosis is tested."""
