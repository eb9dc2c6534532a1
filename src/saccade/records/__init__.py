"""Records: the arms of an experiment, their file, and what is read from trajectories."""
