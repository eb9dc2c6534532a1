"""Trainings: recipes, the lab, the engine and what they need."""
