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

from saccade.core.errors import ConfigError, described
from saccade.watch.capture import (
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

SAME = 1e-6
"""Largest difference of the outputs of both passes, relative to the largest output, at least 1."""
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
        allowed = "a dict of the model's arguments, a tensor, a tuple, or a function of the model"
        if not (isinstance(self.batch, Mapping | Tensor | tuple | list) or callable(self.batch)):
            raise ConfigError(f"probe: got {type(self.batch).__name__}, allowed: {allowed}")

    def run(self, model: nn.Module) -> tuple[Tensor | None, Tensor]:
        """The loss, if there is one, and the outputs."""
        device = next((one.device for one in model.parameters()), torch.device("cpu"))
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
        loss = getattr(outputs, "loss", None) if self.loss is None else self.loss(outputs)
        return _scalar(loss), _tensor_of(outputs)

    def words_of(self, call: Call) -> Words:
        """What the batch says of the queries and keys of a call, where lengths agree."""
        queries, keys = call.shape[2:]
        keys -= isinstance(call, ScoreCall) and call.has_sink
        batch = self.batch if isinstance(self.batch, Mapping) else {}
        source = batch.get("input_ids", self.ids), batch.get("attention_mask", self.words)
        target = batch.get("decoder_input_ids"), batch.get("decoder_attention_mask")
        crossed = _CROSS.search(call.name) is not None
        of_decoder = target[0] is not None and not re.match(r"(\w+\.)?encoder\.", call.name)
        asked = target if of_decoder else source
        attended = source if crossed or not of_decoder else target

        def known(tensor: Any, length: int) -> Tensor | None:
            fits = isinstance(tensor, Tensor) and tensor.shape == (call.shape[0], length)
            return tensor.to(call.device) if fits else None

        masks = [
            None if one is None else known(one != 0, length)
            for one, length in ((asked[1], queries), (attended[1], keys))
        ]
        ids = known(asked[0], queries), known(attended[0], keys)
        return Words(*ids, *masks, related=queries == keys and not crossed)


def _pair(outputs: tuple[Any, ...]) -> tuple[Tensor | None, Tensor]:
    if len(outputs) != 2:
        raise ConfigError(f"probe: its function gave {len(outputs)} values, allowed: loss, outputs")
    return _scalar(outputs[0]), _tensor_of(outputs[1])


def _scalar(loss: Any) -> Tensor | None:
    if loss is not None and not (isinstance(loss, Tensor) and loss.numel() == 1):
        raise ConfigError(f"loss: got {type(loss).__name__}, allowed: a tensor with one number")
    return loss


def _tensor_of(outputs: Any) -> Tensor:
    """What is compared between the passes."""
    if isinstance(outputs, Tensor):
        return outputs
    for name in ("logits", "last_hidden_state"):
        if isinstance(getattr(outputs, name, None), Tensor):
            return getattr(outputs, name)
    inner = list(outputs.values()) if isinstance(outputs, Mapping) else outputs
    if isinstance(inner, tuple | list) and inner:
        return next((one for one in inner if isinstance(one, Tensor) and one.ndim), inner[0])
    raise ConfigError(
        f"probe: the model gave {type(outputs).__name__}, allowed: a tensor, a tuple "
        "or an output of transformers; give a function of the model"
    )


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
    """Lower precision of the pass, as in training."""
    is_attention: Callable[[str, nn.Module], bool] = looks_like_attention
    """Of path and module: whether a softmax within it is one of attention."""

    @contextlib.contextmanager
    def precision(self, model: nn.Module) -> Iterator[None]:
        kind = next((one.device.type for one in model.parameters()), "cpu")
        if self.autocast is None:
            yield
            return
        with torch.autocast(kind, self.autocast):
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
    off = lambda: torch.autocast(_device(model).type, enabled=False)  # noqa: E731
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
        with torch.no_grad(), off():
            words = {call.name: probe.words_of(call) for call in calls}
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
            uniform, removed = _ablations(model, probe, settings, found)
    notes = {note for call in calls for note in (f"{call.name}: {one}" for one in call.notes)}
    if loss is None:
        notes.add("the probe has no loss, so no gradient was measured; give labels, or `loss`")
    return Measurement(
        math.nan if loss is None else float(loss.detach()),
        found,
        {call.name: call.rung for call in calls},
        cosines,
        capture.unseen(model),
        uniform,
        removed,
        tuple(sorted(notes)),
    )


def _device(model: nn.Module) -> torch.device:
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
    apart = (outputs.float() - expected.float()).abs()
    size = expected.float().abs()
    batch = probe.batch if isinstance(probe.batch, Mapping) else {}
    name = "decoder_attention_mask" if "decoder_input_ids" in batch else "attention_mask"
    real = batch.get(name)
    if isinstance(real, Tensor) and real.shape == apart.shape[:2]:  # what padding gives is nobody's
        chosen = real.to(apart.device).bool()
        apart, size = apart[chosen], size[chosen]
    if not torch.isfinite(size).all():
        raise NotFiniteError("the model's outputs are not finite")
    error = float(apart.max())
    if not error <= SAME * max(1.0, float(size.max())):
        raise CaptureError(
            f"outputs differ by {error:.1e} with and without being measured, so nothing is recorded"
        )


class NotFiniteError(CaptureError):
    """A model that has diverged."""


def _merged(calls: list[Call]) -> list[Call]:
    """Calls of single queries by one module, as a recurrent decoder makes them, as one of many."""
    steps: dict[str, list[ScoreCall]] = {}
    for call in calls:
        if isinstance(call, ScoreCall) and call.shape[2] == 1:
            steps.setdefault(call.name.partition("#")[0], []).append(call)
    several = {name: some for name, some in steps.items() if len(some) > 1}
    found = [one for one in calls if one.name.partition("#")[0] not in several]
    for name, some in several.items():
        shapes = {one.shape for one in some}
        if len(shapes) > 1:
            raise CaptureError(f"{name}: calls of the shapes {sorted(shapes)}, allowed: one shape")
        found.append(Steps.of(name, some))
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
    model: nn.Module, probe: Probe, settings: Settings, found: Mapping[str, Found]
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Losses with a layer's attention made uniform, and without each head."""

    def loss_with(change: Change) -> float:
        with (
            torch.no_grad(),
            settings.precision(model),
            same_random_states(),
            Capture(model, settings.is_attention, gradients=False, change=change),
        ):
            loss, _ = _run(model, probe)
        return math.nan if loss is None else float(loss)

    uniform = {name: loss_with(Change(name)) for name in found}
    removed = {
        name: [loss_with(Change(name, head)) for head in range(one.heads)]
        for name, one in found.items()
    }
    return uniform, removed
