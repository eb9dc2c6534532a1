"""Recorded quantities, in words."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Variable:
    """A recorded quantity: its dims after seed and step, its name in words, and its units."""

    dims: tuple[str, ...]
    long_name: str
    units: str = "1"

    @property
    def attributes(self) -> dict[str, str]:
        """As xarray's plots read them."""
        return {"long_name": self.long_name, "units": self.units}
