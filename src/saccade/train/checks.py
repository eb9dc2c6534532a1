"""What is checked before the first step: a mistake costs a sentence, not a training.

Types and names are checked at once. Shapes are checked while the programs are traced, which is
before anything is compiled.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from saccade.contracts.model import AbstractModelConfig
from saccade.contracts.probe import AbstractProbe, Moment
from saccade.contracts.task import SPLITS, AbstractBatch, AbstractCorpus, AbstractTask
from saccade.errors import ConfigError, SaccadeError, described, located
from saccade.records.variable import Variable
from saccade.settings import Swept
from saccade.train.batches import AbstractBatches, Fresh, FullBatch, Minibatch
from saccade.train.optimiser import AbstractStepper, GradientFlow
from saccade.train.stopping import EarlyStopping

__all__: list[str] = []

ALWAYS = {
    "loss": Variable((), "training loss (including the model's penalty)"),
    "diverged_at": Variable((), "step at which the loss stopped being finite, or -1", "step"),
}
"""Variables that every training records, probes or not."""
STOPPING = {
    "best_step": Variable((), "step with the best weights", "step"),
    "stopped_at": Variable((), "step at which training stopped early, or -1", "step"),
}
"""Variables that a training with early stopping records."""
SCALED = {"step_unit": Variable((), "what steps are multiplied by: 1 / curvature at the start")}
"""Variable that a training with steps in units of its curvature records."""
MISSING = Variable((), "whether a member could not be trained")
"""Variable `not_trained` of a training some of whose chunks failed."""
RESERVED = (*ALWAYS, *STOPPING, *SCALED, "not_trained")
OUTER_DIMS = ("seed", "step", "time")
"""Names of the record's own axes: no variable or dim of a probe, and no sweep, may have them."""

_KINDS: Mapping[str, tuple[Any, str]] = {
    "task": (AbstractTask, "a task such as TopicSentences()"),
    "model": (
        AbstractModelConfig,
        "a model config such as AttentionClassifierConfig(), or a function of task and key that "
        "builds an Equinox module",
    ),
    "optimiser": (
        (AbstractStepper, GradientFlow),
        "an optimiser such as GradientDescent(0.1) or Adam(1e-3), or an Optax transformation",
    ),
    "batches": ((FullBatch, Minibatch, Fresh), "FullBatch(), Minibatch(64) or Fresh(64)"),
    "stopping": ((EarlyStopping, type(None)), "EarlyStopping('validation_loss', patience=100)"),
}


def require_kinds(**given: Any) -> None:
    """Refuse fields of a recipe that are not of their kind."""
    for name, value in given.items():
        kind, allowed = _KINDS[name]
        if isinstance(value, type) and issubclass(value, kind):
            raise ConfigError(
                f"{name}: got the class {value.__name__}, allowed: an instance; write "
                f"{value.__name__}(...)"
            )
        if not isinstance(value, kind):
            raise ConfigError(f"{name}: got {shown(value)}, allowed: {allowed}")


LOOP = "loop over its values in `experiment`, with a recipe for each"


def require_unswept(**counts: Any) -> None:
    """Refuse sweeps of numbers on which the shapes of all members depend."""
    for name, value in counts.items():
        if isinstance(value, Swept):
            raise ConfigError(f"sweep {value.name}: {name} is the same for all members; {LOOP}")


def require_batches(batches: AbstractBatches, task: AbstractTask) -> None:
    sizes = [f"{split}_size" for split in SPLITS]
    if not isinstance(task, AbstractCorpus):
        require_unswept(**{name: getattr(task, name, 0) for name in sizes})
    if isinstance(batches, Fresh) and isinstance(task, AbstractCorpus):
        task.sample(jax.random.key(0), 1)
    if not isinstance(batches, Minibatch):
        return
    with naming(f"task {type(task).__name__}", "be drawn in minibatches", task):
        examples = task.train_size
    if batches.size > examples:
        raise ConfigError(
            f"batches: got Minibatch({batches.size}), allowed: at most the {examples} training "
            "examples"
        )


def require_examples(task: AbstractTask, batch: Any, size: int) -> None:
    """Refuse drawn examples that are no batch, or not as many as were asked for."""
    title = f"task {type(task).__name__}"
    if not isinstance(batch, AbstractBatch):
        raise ConfigError(f"{title}: drew a {type(batch).__name__}, allowed: an AbstractBatch")
    sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(batch)}
    if sizes != {(size,)}:
        dims = [str(one[0]) if one else "none (a scalar)" for one in sorted(sizes)]
        found = " and ".join(dims) or "missing"
        raise ConfigError(f"{title}: drew arrays whose first dims are {found}, allowed: {size}")


def require_splits(task: AbstractCorpus) -> Mapping[str, AbstractBatch]:
    """The examples of a corpus; refused if they are no batches of the same kind."""
    title = f"task {type(task).__name__}"
    with naming(title, "give its splits", task):
        splits = task.splits
    if "train" not in splits or set(splits) - set(SPLITS):
        allowed = "train, and validation and test if there are any"
        raise ConfigError(f"{title}: got the splits {', '.join(splits)}, allowed: {allowed}")
    for name, batch in splits.items():
        if not isinstance(batch, AbstractBatch):
            got = type(batch).__name__
            raise ConfigError(f"{title}: split {name!r} is a {got}, allowed: an AbstractBatch")
        require_examples(task, batch, batch.size)
    return splits


def require_number(name: str, value: Any) -> None:
    """Refuse what is not one real number, while tracing."""
    if jnp.shape(value) != ():
        raise ConfigError(
            f"{name}: got an array of shape {jnp.shape(value)}, allowed: one number per batch; "
            "take its mean or sum"
        )
    if not jnp.issubdtype(jnp.result_type(value), jnp.floating):
        kind = jnp.result_type(value)
        raise ConfigError(f"{name}: got a number of type {kind}, allowed: a real number (float)")


def require_probe_instances(name: str, given: Any) -> tuple[AbstractProbe, ...]:
    """Probes as a tuple; refuse what is none."""
    listed: Any = (given,) if isinstance(given, AbstractProbe | type) else given
    if not isinstance(listed, Iterable):
        raise ConfigError(f"{name}: got {given!r}, allowed: a list of probes")
    probes = tuple(listed)
    for probe in probes:
        if isinstance(probe, type):
            raise ConfigError(
                f"{name}: got the class {probe.__name__}, allowed: an instance; write "
                f"{probe.__name__}()"
            )
        if not isinstance(probe, AbstractProbe):
            raise ConfigError(
                f"{name}: got {probe!r}, allowed: probes (instances of AbstractProbe)"
            )
    return probes


def require_probes(
    groups: Iterable[Sequence[AbstractProbe]], task: Any, sweeps: Mapping[str, Swept]
) -> None:
    """Refuse variables and dims of groups of probes whose names are taken, and coordinates that
    contradict.
    """
    for name in sweeps:
        if name in (*OUTER_DIMS, *RESERVED):
            raise ConfigError(f"sweep {name}: the record needs this name; sweep it under another")
    for probes in groups:
        variables = _require_names(probes, sweeps)
        known: dict[str, Any] = {}
        for probe in probes:
            for name, (dim, values) in _coordinates(probe, task).items():
                title = f"probe {_name(probe)}: coordinate {name!r}"
                if name in (*OUTER_DIMS, *RESERVED, *sweeps, *variables):
                    raise ConfigError(f"{title} has the name of an axis or variable; rename it")
                if known.setdefault(name, (dim, values)) != (dim, values):
                    raise ConfigError(
                        f"{title} differs from that of another probe, allowed: the same values for "
                        "both; rename one of the two"
                    )


def _require_names(
    probes: Sequence[AbstractProbe], sweeps: Mapping[str, Swept]
) -> dict[str, AbstractProbe]:
    """Whose variable is which, if no name is taken twice."""
    owners: dict[str, AbstractProbe] = {}
    dims = {dim for probe in probes for one in _variables(probe).values() for dim in one.dims}
    for probe in probes:
        for name, variable in probe.variables.items():
            title = f"probe {_name(probe)}: variable {name!r}"
            if name in RESERVED:
                raise ConfigError(f"{title} is reserved (every training records it); rename it")
            if name in OUTER_DIMS or name in sweeps or name in dims:
                raise ConfigError(f"{title} has the name of an axis of the record; rename it")
            if name in owners:
                other = _name(owners[name])
                raise ConfigError(f"{title} is also measured by {other}; give one of the two")
            owners[name] = probe
            for dim in variable.dims:
                if dim in OUTER_DIMS or dim in RESERVED:
                    raise ConfigError(
                        f"{title} has the dim {dim!r}, which the record adds itself; remove or "
                        "rename it"
                    )
                if dim in sweeps:
                    raise ConfigError(
                        f"{title} has the dim {dim!r}, which is swept; rename the dim, or sweep "
                        "under another name (Swept.over)"
                    )
            if len(set(variable.dims)) < len(variable.dims):
                raise ConfigError(f"{title} has a dim twice, {variable.dims}; rename one of them")
    return owners


def _variables(probe: AbstractProbe) -> Mapping[str, Variable]:
    declared = getattr(probe, "variables", None)
    if isinstance(declared, Mapping) and all(
        isinstance(name, str) and isinstance(one, Variable) and not isinstance(one.dims, str)
        for name, one in declared.items()
    ):
        return declared
    raise ConfigError(
        f"probe {_name(probe)}: got variables {shown(declared)}, allowed: a dict such as "
        '{"norm": Variable(("word",), "norm of the embedding")}'
    )


def _coordinates(probe: AbstractProbe, task: Any) -> dict[str, tuple[str, list[Any]]]:
    with naming(f"probe {_name(probe)}", f"be used with {type(task).__name__}", task):
        found = probe.coordinates(task).items()
        plain = {name: (dim, np.asarray(values).tolist()) for name, (dim, values) in found}
    for name, (dim, _) in plain.items():
        if not isinstance(dim, str):
            raise ConfigError(
                f"probe {_name(probe)}: coordinate {name!r} has dims {dim!r}, allowed: one dim"
            )
    return plain


def checked(probe: AbstractProbe, moment: Moment, task: Any) -> dict[str, Any]:
    """What a probe measures; refused while tracing if it is not what the probe declares."""
    title = f"probe {_name(probe)}"
    parts = (moment.task, moment.model, moment.train)
    kinds = " and ".join(type(part).__name__ for part in parts[:2])
    with naming(title, f"be used with {kinds}", *parts):
        measured = probe(moment)
    declared = probe.variables
    if not isinstance(measured, dict):
        raise ConfigError(f"{title}: gave {shown(measured)}, allowed: a dict of arrays")
    missing, extra = set(declared) - set(measured), set(measured) - set(declared)
    if missing or extra:
        what = f"does not measure {sorted(missing)}" if missing else f"measures {sorted(extra)}"
        raise ConfigError(
            f"{title}: {what}, allowed: what it declares, {sorted(declared)}; change `variables` "
            "or the dict"
        )
    sizes = [
        (f"coordinate {name!r}", dim, len(values))
        for name, (dim, values) in _coordinates(probe, task).items()
    ]
    for name, variable in declared.items():
        if not isinstance(measured[name], jax.Array | np.ndarray | np.generic | float | int):
            got = shown(measured[name])
            raise ConfigError(f"{title}: variable {name!r} is {got}, allowed: an array")
        shape = jnp.shape(measured[name])
        if len(shape) != len(variable.dims):
            raise ConfigError(
                f"{title}: variable {name!r} has shape {shape}, allowed: its dims, "
                f"{variable.dims}; change the dims or the array"
            )
        along = zip(variable.dims, shape, strict=True)
        sizes += [(f"variable {name!r}", dim, size) for dim, size in along]
    lengths = moment.once(_lengths)
    for what, dim, size in sizes:
        if lengths.setdefault(dim, size) != size:
            raise ConfigError(
                f"{title}: {what} has {size} along {dim!r}, allowed: {lengths[dim]}, as the "
                "coordinate or another variable has; rename the dim or change the array"
            )
    return measured


def _lengths(moment: Moment) -> dict[str, int]:
    """Of all dims of a moment that are known so far, whatever probe has them."""
    del moment
    return {}


@contextlib.contextmanager
def naming(title: str, what: str, *parts: Any) -> Iterator[None]:
    """Turn an exception of user code while tracing into one sentence that names its place; the
    cause stays attached.
    """
    try:
        yield
    except SaccadeError:
        raise
    except Exception as error:
        why = described(error)
        if isinstance(error, jax.errors.JAXTypeError | TypeError) and (
            counts := [name for part in parts for name in _traced_counts(part)]
        ):
            which = " or ".join(counts)
            raise ConfigError(
                f"{title}: cannot {what} if {which} is swept: a shape, or a plain number, depends "
                f"on it; {LOOP}"
            ) from error
        if isinstance(error, AttributeError) and any(error.obj is part for part in parts):
            why = f"it needs {error.name!r}, which {type(error.obj).__name__} does not have"
        raise ConfigError(f"{title}: cannot {what}: {why}{located(error)}") from error


def _traced_counts(config: Any) -> list[str]:
    """Fields of a config that hold a whole number of a sweep, while tracing."""
    if not dataclasses.is_dataclass(config) or isinstance(config, eqx.Module):
        return []
    found = []
    for field in dataclasses.fields(config):
        value: Any = getattr(config, field.name, None)
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.integer):
            found.append(field.name)
        else:
            found += _traced_counts(value)
    return found


def _name(probe: AbstractProbe) -> str:
    return type(probe).__name__


def shown(value: Any) -> str:
    """A value as an error shows it."""
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"
