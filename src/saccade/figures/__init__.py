"""Figures as data, which the report draws."""
