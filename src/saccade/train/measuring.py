"""Probes on models that exist already: checkpoints of a run, from here or from elsewhere."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np

from saccade.contracts.content import content
from saccade.contracts.model import BuiltModel
from saccade.contracts.task import AbstractTask
from saccade.errors import ConfigError
from saccade.train.batches import Minibatch
from saccade.train.dataset import Frame
from saccade.train.engine import Engine
from saccade.train.examples import Examples
from saccade.train.loss import Loss
from saccade.train.members import Members
from saccade.train.optimiser import AbstractOptimiser
from saccade.train.parts import Part, Parts
from saccade.train.placement import Placement
from saccade.train.recipe_functions import RecipeFunctions
from saccade.train.recording import Recording
from saccade.train.start import chosen_seeds

if TYPE_CHECKING:
    import xarray as xr

__all__: list[str] = []


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """The models of one run, or of several with the same steps."""

    runs: dict[int, tuple[Any, ...]]
    """By seed."""
    steps: np.ndarray

    @staticmethod
    def of(models: Any, steps: Sequence[int] | None, precision: str) -> "Checkpoints":
        given = models if isinstance(models, Mapping) else {0: models}
        runs = {}
        for seed, listed in zip(chosen_seeds(list(given)), given.values(), strict=True):
            several = isinstance(listed, Sequence) and not isinstance(listed, eqx.Module)
            wrong = [one for one in listed if not isinstance(one, eqx.Module)] if several else []
            if not several or not listed or wrong:
                got = type(listed).__name__ if not several else "none"
                got = f"a list with the type {type(wrong[0]).__name__}" if wrong else got
                raise ConfigError(
                    f"models: got {got}, allowed: a list of Equinox modules, or a dict of such "
                    "lists by seed"
                )
            runs[seed] = tuple(_in_precision(model, precision) for model in listed)
        counts = {len(run) for run in runs.values()}
        if len(counts) > 1:
            raise ConfigError(f"models: got runs of {sorted(counts)} models, allowed: equally many")
        (count,) = counts
        at = np.arange(count) if steps is None else np.asarray(steps)
        if at.shape != (count,) or at.dtype.kind not in "iu":
            raise ConfigError(
                f"steps: got {steps!r}, allowed: a whole number for each of the {count} models"
            )
        for before, after in pairwise(at.tolist()):
            if after <= before:
                raise ConfigError(
                    f"steps: got {after} after {before}, allowed: ascending steps; sort the models"
                )
        found = Checkpoints(runs, at.astype(np.int64))
        found._require_alike()
        return found

    def _require_alike(self) -> None:
        """Refuse models of different structure, and equal ones."""
        structures = {}
        for seed, run in self.runs.items():
            known: dict[str, int] = {}
            for step, model in zip(self.steps.tolist(), run, strict=True):
                arrays, rest = eqx.partition(model, eqx.is_array)
                shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(arrays)]
                structures[str((jax.tree.structure(arrays), shapes, rest))] = (seed, step)
                equal = known.setdefault(content(arrays), step)
                if equal != step:
                    raise ConfigError(
                        f"models: those of steps {equal} and {step} (seed {seed}) have equal "
                        "weights, allowed: different checkpoints; was one saved twice?"
                    )
        if len(structures) > 1:
            one, other = list(structures.values())[:2]
            raise ConfigError(
                f"models: those of seed {one[0]}, step {one[1]} and of seed {other[0]}, step "
                f"{other[1]} differ in structure or shapes, allowed: checkpoints of one model"
            )

    def measured(self, task: AbstractTask, record: Recording, loss: Loss) -> "xr.Dataset":
        """The dataset with every probe at every step."""
        rows = [self._rows(task, record, loss, seed, run) for seed, run in self.runs.items()]
        arrays = {f"probes:{name}": np.stack([row[name] for row in rows], 1) for name in rows[0]}
        frame = Frame({}, tuple(self.runs), _NoOptimiser(), task, trained=False)
        parts = Parts([Part(len(self.runs), held=arrays)])
        return frame.dataset(parts, "probes", self.steps, record.probes)

    def _rows(
        self, task: AbstractTask, record: Recording, loss: Loss, seed: int, run: tuple[Any, ...]
    ) -> dict[str, np.ndarray]:
        """Every variable at every step of one run."""
        first = run[0]
        members = Members(np.asarray([seed], np.uint32), {})  # pyright: ignore[reportArgumentType]
        placement = Placement(jax.local_devices()[:1], 1)
        functions = RecipeFunctions(
            task,
            BuiltModel(lambda task, key: first),
            _NoOptimiser(),
            jax.tree.map(lambda leaf: leaf[0], members),
            recording=record,
            batches=Minibatch(1),  # nothing is trained, and examples are evaluated in chunks
            loss=loss,
            origin=first,
        )
        data = Examples(functions, members, placement)
        engine = Engine(functions.dynamics, members, data, placement)
        observe, begun = engine.observing(), engine.start()
        rows = []
        for model in run:
            learned, still = functions.parted(model)
            stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], (learned, still))
            learned, still = placement.put(stacked)
            models = lambda moving: (moving.state.learned, moving.state.still)  # noqa: E731
            moving = eqx.tree_at(models, begun, (learned, still), is_leaf=lambda leaf: leaf is None)
            rows.append(placement.fetch(observe(moving, engine.placed, data.arrays)))
        return {name: np.stack([row[name][0] for row in rows]) for name in rows[0]}


class _NoOptimiser(AbstractOptimiser):
    """Nothing moves."""


def _in_precision(model: Any, precision: str) -> Any:
    """A model with its real numbers in the precision of the lab."""
    cast = partial(np.asarray, dtype=precision)
    return jax.tree.map(lambda leaf: cast(leaf) if eqx.is_inexact_array(leaf) else leaf, model)
