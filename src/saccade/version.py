"""The version, apart from the package's public names so that core can read it."""

__version__ = "0.2.0"
