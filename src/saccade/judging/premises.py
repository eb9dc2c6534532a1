"""Premises of a measure: what must be true of a record before its number means anything.

A premise that is met is noted as well, so that a claim without it is another claim.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Premise = tuple[str, bool]
"""A premise in words, and whether it is met."""
_noted: ContextVar[list[Premise] | None] = ContextVar("premises", default=None)


class PremiseNotMetError(Exception):
    """Raised by a check's measure when the record cannot answer it; the message says why."""


def require_premise(met: bool, premise: str, otherwise: str = "") -> None:
    """Note a premise, and leave the claim undetermined if it is not met.

    `premise` says in words what must be true, without numbers of the record; `otherwise` says what
    is true instead, and may have some.
    """
    if (noted := _noted.get()) is not None:
        noted.append((premise, bool(met)))
    if not met:
        raise PremiseNotMetError(otherwise or f"not so: {premise}")


@contextmanager
def noted_premises() -> Iterator[list[Premise]]:
    """The premises that measures ask for within the context, in order."""
    premises: list[Premise] = []
    token = _noted.set(premises)
    try:
        yield premises
    finally:
        _noted.reset(token)
