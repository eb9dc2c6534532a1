"""One measurement: two passes of a model on a probe batch, with and without being seen, and the
statistics of everything that attended.
"""

import contextlib
import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from saccade.errors import ConfigError, described
from saccade.watch.capture import (
    BY_HAND,
    Call,
    Capture,
    CaptureError,
    Change,
    ScoreCall,
    looks_like_attention,
)
from saccade.watch.quantities import ERROR, PER_HEAD
from saccade.watch.quiet import quiet, same_random_states
from saccade.watch.statistics import (
    Found,
    Words,
    call_statistics,
    require_faithful,
    token_cosine,
)
from saccade.watch.weights import Sample

SAME = 1e-6
"""Largest difference of the outputs of both passes, relative to the largest output, at least 1."""
_PAIR = ("encoder", "decoder")
_CROSS = re.compile("cross|encoder_attn|encdec|enc_dec|encoder_decoder", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Probe:
    """A fixed batch on which a model is measured, and how the model is called on it."""

    batch: Any
    """A dict of arguments, a tensor or tuple of arguments, or a function of the model."""
    loss: Callable[[Any], Tensor] | None = None
    """The loss of what the model gives; by default its own (`.loss`)."""
    ids: Tensor | None = None
    """Word ids of the sequence, [example, position]; by default `input_ids` of the batch."""
    words: Tensor | None = None
    """True where there is a word; by default `attention_mask` of the batch."""

    def __post_init__(self):
        if isinstance(self.batch, list) and self.batch and isinstance(self.batch[0], Mapping):
            raise ConfigError(
                "probe: got a list of examples, allowed: one batch, as a collator makes"
            )
        allowed = "a dict of the model's arguments, a tensor, a tuple, or a function of the model"
        if not (isinstance(self.batch, Mapping | Tensor | tuple | list) or callable(self.batch)):
            raise ConfigError(f"probe: got {type(self.batch).__name__}, allowed: {allowed}")

    def run(self, model: nn.Module) -> tuple[Tensor | None, Tensor]:
        """The loss, if there is one, and the outputs."""
        device = device_of(model)
        move = lambda one: one.to(device) if isinstance(one, Tensor) else one  # noqa: E731
        batch: Any = self.batch
        if isinstance(batch, Mapping):
            outputs = model(**{name: move(one) for name, one in batch.items()})
        elif isinstance(batch, Tensor):
            outputs = model(move(batch))
        elif isinstance(batch, tuple | list):
            outputs = model(*map(move, batch))
        else:
            outputs = batch(model)
            if isinstance(outputs, tuple) and self.loss is None:
                return _pair(outputs)
        own = (
            outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
        )
        return _scalar(own if self.loss is None else self.loss(outputs)), _tensor_of(outputs)

    @property
    def _batch(self) -> Mapping[str, Any]:
        return self.batch if isinstance(self.batch, Mapping) else {}

    @property
    def real(self) -> Tensor | None:
        """True where what comes out is that of a word, as far as the batch says so."""
        paired = "decoder_input_ids" in self._batch
        name = "decoder_attention_mask" if paired else "attention_mask"
        mask = self._batch.get(name, None if paired else self.words)
        return mask != 0 if isinstance(mask, Tensor) else None

    def words_of(self, call: Call, paired: bool) -> Words:
        """What the batch says of the queries and keys of a call, where lengths agree. `paired`: the
        model has an encoder and a decoder.
        """
        queries, keys = call.shape[2:]
        keys -= isinstance(call, ScoreCall) and call.has_sink
        batch = self._batch
        source = batch.get("input_ids", self.ids), batch.get("attention_mask", self.words)
        target = batch.get("decoder_input_ids"), batch.get("decoder_attention_mask")
        crossed = _CROSS.search(call.name) is not None if call.crossed is None else call.crossed
        of_decoder = paired and is_within(call.name, "decoder")
        asked = target if of_decoder else source
        attended = source if crossed or not of_decoder else target
        if crossed and not of_decoder:  # of what the queries are is not known
            asked = (None, None)

        def known(tensor: Any, length: int) -> Tensor | None:
            fits = isinstance(tensor, Tensor) and tensor.shape == (call.shape[0], length)
            return tensor.to(call.device) if fits else None

        masks = [
            None if one is None else known(one != 0, length)
            for one, length in ((asked[1], queries), (attended[1], keys))
        ]
        ids = known(asked[0], queries), known(attended[0], keys)
        return Words(*ids, *masks, related=queries == keys and not crossed)

    def with_padding_of(self, model: nn.Module) -> "Probe":
        """With the mask that a forgotten `attention_mask` would be, by the model's own id of
        padding.
        """
        config, ids = getattr(model, "config", None), self._batch.get("input_ids")
        names = ("pad_token_id", "eos_token_id", "bos_token_id")
        padding, *others = (getattr(config, name, None) for name in names)
        known = "attention_mask" in self._batch or self.words is not None
        if known or padding is None or padding in others or not isinstance(ids, Tensor):
            return self
        return dataclasses.replace(self, words=ids != padding)

    def require_fitting(self, calls: Iterable[Call]) -> None:
        """Refuse ids and words that are given for sequences of another shape."""
        shapes = {(call.shape[0], length) for call in calls for length in call.shape[2:]}
        for name in ("ids", "words"):
            given = getattr(self, name)
            if given is not None and tuple(given.shape) not in shapes:
                seen = ", ".join(f"{one} x {two}" for one, two in sorted(shapes))
                raise ConfigError(
                    f"{name}: got the shape {tuple(given.shape)}, allowed: that of the sequences "
                    f"attended to, {seen}"
                )


def is_within(path: str, part: str) -> bool:
    """Whether a module path has a part of this name."""
    return part in path.split(".")


def _pair(outputs: tuple[Any, ...]) -> tuple[Tensor | None, Tensor]:
    if len(outputs) != 2:
        raise ConfigError(f"probe: its function gave {len(outputs)} values, allowed: loss, outputs")
    return _scalar(outputs[0]), _tensor_of(outputs[1])


def _scalar(loss: Any) -> Tensor | None:
    if loss is not None and not (isinstance(loss, Tensor) and loss.numel() == 1):
        raise ConfigError(f"loss: got {type(loss).__name__}, allowed: a tensor with one number")
    return loss


def _tensor_of(outputs: Any) -> Tensor:
    """What is compared between the passes: the logits, or the first tensor that is not a number."""
    for name in ("logits", "last_hidden_state"):
        if isinstance(getattr(outputs, name, None), Tensor):
            return getattr(outputs, name)
    found = _first_tensor(outputs)
    if found is None:
        raise ConfigError(
            f"probe: the model gave {type(outputs).__name__} without a tensor, allowed: tensors, "
            "also in tuples and dicts; or give a function of the model"
        )
    return found


def _first_tensor(outputs: Any) -> Tensor | None:
    if isinstance(outputs, Tensor):
        return outputs if outputs.ndim else None
    inner = outputs.values() if isinstance(outputs, Mapping) else outputs
    if not isinstance(inner, Iterable) or isinstance(outputs, str):
        return None
    return next((one for one in map(_first_tensor, inner) if one is not None), None)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a model is measured."""

    rows: int = 128
    """The most queries per sequence, evenly spaced; each is exact."""
    gradients: bool = True
    """Whether the factors of the query's gradient are measured: one backward pass."""
    ablations: bool = False
    """Whether the loss is measured with each layer's attention made uniform, and without each
    head: a pass per layer and per head."""
    autocast: torch.dtype | None = None
    """Lower precision of the pass, as in training; None: that of the weights."""
    is_attention: Callable[[str, nn.Module], bool] = looks_like_attention
    """Of path and module: whether a softmax within it is one of attention."""

    @contextlib.contextmanager
    def precision(self, model: nn.Module) -> Iterator[None]:
        lower = self.autocast
        with torch.autocast(device_of(model).type, lower, enabled=lower is not None):
            yield


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What was found at one step."""

    loss: float
    calls: dict[str, Found]
    rungs: dict[str, str]
    """How each call was seen."""
    cosines: dict[str, float]
    """Mean cosine of the tokens that enter a layer."""
    unseen: dict[str, str]
    """Modules that look like attention and were not seen, with the reason."""
    samples: dict[str, Sample]
    """What a layer was given and made of it."""
    uniform_loss: dict[str, float]
    removed_loss: dict[str, list[float]]
    notes: tuple[str, ...]

    def table(self) -> dict[str, np.ndarray]:
        """Every variable as an array: per layer, and per head where it has one; NaN where a layer
        has fewer heads than another.
        """
        heads = max(one.heads for one in self.calls.values())

        def per_head(tables: Iterable[Any]) -> np.ndarray:
            found = np.full((len(self.calls), heads), np.nan, np.float32)
            for row, values in zip(found, tables, strict=True):
                if values is not None:
                    row[: len(values)] = values
            return found

        calls = self.calls.values()
        found = {name: per_head(one.values.get(name) for one in calls) for name in PER_HEAD}
        for name in PER_HEAD:
            found[name + ERROR] = per_head(one.errors.get(name) for one in calls)
        uniform = [self.uniform_loss.get(layer, np.nan) for layer in self.calls]
        return found | {
            "loss": np.float32(self.loss),
            "removed_loss": per_head(map(self.removed_loss.get, self.calls)),
            "token_cosine": np.asarray(list(self.cosines.values()), np.float32),
            "uniform_loss": np.asarray(uniform, np.float32),
        }


def measure(model: nn.Module, probe: Probe, settings: Settings = Settings()) -> Measurement:  # noqa: B008
    """Measure a model without changing it; refuses what would not be faithful."""
    gradients = settings.gradients
    given, probe = probe, probe.with_padding_of(model)
    with quiet(model):
        with torch.set_grad_enabled(gradients), settings.precision(model), same_random_states():
            _, expected = _run(model, probe)
        capture = Capture(model, settings.is_attention, gradients)
        with (
            torch.set_grad_enabled(gradients),
            settings.precision(model),
            same_random_states(),
            capture,
        ):
            loss, outputs = _run(model, probe)
        _require_same(outputs.detach(), expected.detach(), probe)
        if not capture.calls:
            raise CaptureError(
                "no attention was seen: name its scores with saccade.watch.attention(name, scores) "
                "in the model, or say which modules are attention (is_attention)"
            )
        calls = _merged(capture.calls)
        pulls = _pulls(loss, calls) if gradients else {}
        given.require_fitting(calls)
        paired = all(any(is_within(one.name, part) for one in calls) for part in _PAIR)
        with torch.no_grad(), torch.autocast(device_of(model).type, enabled=False):
            words = {call.name: probe.words_of(call, paired) for call in calls}
            found = {
                call.name: call_statistics(
                    call, words[call.name], pulls.get(call.name), settings.rows
                )
                for call in calls
            }
            cosines = {
                call.name: math.nan
                if call.tokens is None
                else token_cosine(call.tokens, words[call.name].query_words)
                for call in calls
            }
        require_faithful(calls, found)
        uniform, removed = {}, {}
        if settings.ablations and loss is not None:
            # Attention that is named by hand is computed where nothing can change it.
            names = [call.name for call in calls if call.rung != BY_HAND]
            uniform, removed = _ablations(model, probe, settings, found, names)
    notes = {note for call in calls for note in (f"{call.name}: {one}" for one in call.notes)}
    if loss is None and gradients:
        notes.add("the probe has no loss, so no gradient was measured; give labels, or `loss`")
    return Measurement(
        math.nan if loss is None else float(loss.detach()),
        found,
        {call.name: call.rung for call in calls},
        cosines,
        capture.unseen(),
        {call.name: sample for call in calls if (sample := Sample.of(call)) is not None},
        uniform,
        removed,
        tuple(sorted(notes)),
    )


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's parameters."""
    return next((one.device for one in model.parameters()), torch.device("cpu"))


def _run(model: nn.Module, probe: Probe) -> tuple[Tensor | None, Tensor]:
    try:
        return probe.run(model)
    except TypeError as error:
        if isinstance(probe.batch, Mapping) and "unexpected keyword" in str(error):
            takes = ", ".join(inspect.signature(model.forward).parameters)
            raise ConfigError(f"probe: {described(error)}; the model takes {takes}") from error
        raise


def _require_same(outputs: Tensor, expected: Tensor, probe: Probe) -> None:
    """The first gate: being seen changes nothing."""
    real = probe.real
    if real is not None and real.shape == outputs.shape[:2]:  # what padding gives is nobody's
        outputs, expected = (one[real.to(one.device)] for one in (outputs, expected))
    outputs, expected = outputs.float(), expected.float()
    if torch.isnan(expected).any() or (expected == math.inf).any():
        raise NotFiniteError("the model's outputs are not finite")
    # Words without a chance may have a logit of minus infinity.
    error = float(torch.where(outputs == expected, 0.0, outputs - expected).abs().max())
    size = float(torch.where(expected == -math.inf, 0.0, expected).abs().max())
    if not error <= SAME * max(1.0, size):
        raise CaptureError(
            f"outputs differ by {error:.1e} with and without being measured, so nothing is recorded"
        )


class NotFiniteError(CaptureError):
    """A model that has diverged."""


def _merged(calls: list[Call]) -> list[Call]:
    """Calls of single queries by one module, as a recurrent decoder makes them, as one of many."""
    grouped: dict[str, list[Call]] = {}
    for call in calls:
        grouped.setdefault(call.name.partition("#")[0], []).append(call)
    found: list[Call] = []
    for name, some in grouped.items():
        steps = [one for one in some if isinstance(one, ScoreCall) and one.shape[2] == 1]
        if len(steps) == 1 or len(steps) < len(some):
            found += some
        elif len({one.shape for one in steps}) > 1:
            shapes = sorted({one.shape for one in steps})
            raise CaptureError(f"{name}: calls of the shapes {shapes}, allowed: one shape")
        else:
            found.append(Steps.of(name, steps))
    return found


@dataclasses.dataclass(kw_only=True)
class Steps(ScoreCall):
    """Attention of one query at a time, by several calls."""

    each: list[ScoreCall]

    @staticmethod
    def of(name: str, calls: list[ScoreCall]) -> "Steps":
        first = calls[0]
        return Steps(
            name=name,
            rung=first.rung,
            scores=torch.cat([one.scores for one in calls], dim=2),
            weights=torch.cat([one.weights for one in calls], dim=2),
            went_on=first.went_on,
            arrange=first.arrange,
            by_scores=first.by_scores,
            has_sink=first.has_sink,
            each=calls,
        )


def _pulls(loss: Tensor | None, calls: list[Call]) -> dict[str, Tensor]:
    """Derivatives of the loss, by one pass that writes no `.grad` and runs no hook of a
    parameter.
    """
    if loss is None or not loss.requires_grad:
        return {}
    each = [(call.name, one) for call in calls for one in getattr(call, "each", [call])]
    each = [(name, one) for name, one in each if one.went_on.requires_grad]
    if not each:
        return {}
    tensors = [one.went_on for _, one in each]
    gradients = torch.autograd.grad(loss, tensors, allow_unused=True)
    found: dict[str, list[Tensor]] = {}
    for (name, one), gradient in zip(each, gradients, strict=True):
        gradient = torch.zeros_like(one.went_on) if gradient is None else gradient
        found.setdefault(name, []).append(one.arranged(gradient))
    return {name: torch.cat(some, dim=2) for name, some in found.items()}


def _ablations(
    model: nn.Module,
    probe: Probe,
    settings: Settings,
    found: Mapping[str, Found],
    names: Iterable[str],
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Losses with the attention of some layers made uniform, and without each of their heads."""

    def loss_with(change: Change) -> float:
        with (
            torch.no_grad(),
            settings.precision(model),
            same_random_states(),
            Capture(model, settings.is_attention, gradients=False, change=change),
        ):
            loss, _ = _run(model, probe)
        return math.nan if loss is None else float(loss)

    uniform = {name: loss_with(Change(name)) for name in names}
    removed = {
        name: [loss_with(Change(name, head)) for head in range(found[name].heads)] for name in names
    }
    return uniform, removed
