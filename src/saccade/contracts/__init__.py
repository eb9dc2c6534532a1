"""What a user writes against: task, model, probe and theory."""
