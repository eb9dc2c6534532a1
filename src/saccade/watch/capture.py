"""What a PyTorch model attends with, seen from outside while it runs.

In this order, each where the one before sees nothing:

1. `scaled_dot_product_attention`, by a mode that sees every call of a PyTorch function, also within
   `nn.MultiheadAttention`: queries, keys, values and mask as the kernel gets them;
2. the interface through which Hugging Face's models call their eager attention, with soft caps and
   position biases;
3. `softmax` within a module that looks like attention: scores and weights alone;
4. `Capture.by_hand`: what the model's own code names.

Nothing of the model is changed: module hooks are global and removed again, functions are patched
for the pass alone.
"""

import contextlib
import dataclasses
import functools
import inspect
import re
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from saccade.errors import SaccadeError

HIDDEN = -9e3
"""An additive mask at or below this hides a key: minus infinity, the smallest number of a type, or
-10,000 in older code."""
_PRODUCTS = {
    functional.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention.default,
}
_SOFTMAX = {functional.softmax, torch.softmax, Tensor.softmax, torch.special.softmax}
_HEADS = ("num_heads", "n_heads", "num_attention_heads", "n_head")
_WRAPPERS = re.compile(r"\.?(_orig_mod|_checkpoint_wrapped_module)\b")
"""Parts of module paths that wrappers add."""


BY_HAND = "by hand"
ROOT = "model"
"""The name of a call by no module within the model."""


class CaptureError(SaccadeError):
    """A model whose attention cannot be measured faithfully; the message says why."""


def looks_like_attention(path: str, module: nn.Module) -> bool:
    """Whether a module is one of attention, by the name of its class."""
    return re.search("atten|attn", type(module).__name__, re.IGNORECASE) is not None


@dataclasses.dataclass
class Rows:
    """Scores of some queries: [example, head, row, key]."""

    scores: Tensor
    visible: Tensor
    slopes: Tensor | None = None
    """Derivatives of scores by products of query and key, where those are not constant."""


@dataclasses.dataclass(kw_only=True)
class Call(ABC):
    """One operation of attention as the model performed it."""

    name: str
    """Path of the module; a second call of it ends in #2."""
    rung: str
    """How it was seen."""
    tokens: Tensor | None = None
    """What enters the module: [example, query, feature]."""
    crossed: bool | None = None
    """Whether keys are of another sequence than queries, where the call says so."""
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int, int]:
        """Examples, heads, queries, keys."""

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @abstractmethod
    def rows(self, chosen: Tensor, dtype: torch.dtype) -> Rows: ...

    went_on: Tensor
    """The tensor with which the model goes on, by which the loss is differentiated."""

    @abstractmethod
    def arranged(self, tensor: Tensor) -> Tensor:
        """One of its shape as [example, head, query, ...]."""

    @abstractmethod
    def error(self, chosen: Tensor, shares: Tensor) -> Tensor:
        """How far the recomputed attention is from what the model got, per row."""


@dataclasses.dataclass(kw_only=True)
class ProductCall(Call):
    """Attention by products of queries and keys."""

    queries: Tensor
    """[example, head, query, part], after rotation, before scaling."""
    keys: Tensor
    """[example, head, key, part]; heads may be fewer, each shared by several of the queries'."""
    values: Tensor
    mask: Tensor | None = None
    """True where visible, or added to the scores; broadcastable to [example, head, query, key]."""
    causal: bool = False
    """Whether key j is visible to query i only if j <= i, from the upper left corner."""
    scale: float = 1.0
    soft_cap: float | None = None
    rounds_scores: bool = False
    """Whether the model keeps its scores in the type of the queries, as eager attention does; a
    kernel adds up in single precision."""
    heads_last: bool = False
    """Whether the model's tensor is [example, query, head, part]."""
    output: Tensor | None = None
    """What the heads gave, [example, head, query, part], if `went_on` is something else."""
    projection: Tensor | None = None
    """The matrix between the two, if there is one: `went_on` is [query, example, feature]."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        examples, heads, queries = self.queries.shape[:3]
        return examples, heads, queries, self.keys.shape[2]

    @property
    def device(self) -> torch.device:
        return self.queries.device

    def arranged(self, tensor: Tensor) -> Tensor:
        if self.projection is not None:  # of a derivative: back through the projection
            tensor = (tensor @ self.projection.detach()).unflatten(-1, (self.shape[1], -1))
            return tensor.movedim(0, -2) if tensor.ndim == 4 else tensor.movedim(0, -2)[None]
        return tensor.transpose(1, 2) if self.heads_last else tensor.reshape(*self.shape[:3], -1)

    @property
    def of_heads(self) -> Tensor:
        """What the heads gave: [example, head, query, part]."""
        return (self.arranged(self.went_on) if self.output is None else self.output).detach()

    def of_head(self, vectors: Tensor, dtype: torch.dtype) -> Tensor:
        """Keys or values for every head of the queries."""
        vectors = vectors.detach().to(dtype)
        return vectors.repeat_interleave(self.shape[1] // vectors.shape[1], dim=1)

    def rows(self, chosen: Tensor, dtype: torch.dtype) -> Rows:
        queries = self.queries.detach()[:, :, chosen].to(dtype)
        scores = self.scale * (queries @ self.of_head(self.keys, dtype).mT)
        slopes = None
        if self.soft_cap is not None:
            capped = torch.tanh(scores / self.soft_cap)
            scores, slopes = capped * self.soft_cap, 1 - capped**2
        visible = torch.ones(1, 1, 1, scores.shape[-1], dtype=torch.bool, device=scores.device)
        if self.mask is not None:
            mask = self._mask_of(chosen)
            visible = mask if mask.dtype == torch.bool else mask > HIDDEN
            if mask.dtype != torch.bool:
                scores = scores + torch.where(visible, mask.to(dtype), 0.0)
        if self.causal:
            positions = torch.arange(scores.shape[-1], device=self.device)
            visible = visible & (positions <= chosen[:, None])
        return Rows(scores, visible, slopes)

    def _mask_of(self, chosen: Tensor) -> Tensor:
        assert self.mask is not None
        mask = self.mask.detach()
        mask = mask[(None,) * (4 - mask.ndim)]
        return mask if mask.shape[-2] == 1 else mask[..., chosen, :]

    def error(self, chosen: Tensor, shares: Tensor) -> Tensor:
        got = self.of_heads[:, :, chosen].to(shares.dtype)
        return (shares @ self.of_head(self.values, shares.dtype) - got).abs().amax(-1)


@dataclasses.dataclass(kw_only=True)
class ScoreCall(Call):
    """Attention of which only scores and weights are known."""

    scores: Tensor
    """[example, head, query, key]."""
    weights: Tensor
    arrange: Callable[[Tensor], Tensor]
    """Brings weights as the model has them, or (by hand) its scores, to these axes."""
    by_scores: bool = False
    """Whether the loss is differentiated by the scores, not by the weights."""
    has_sink: bool = False
    """Whether the last key is a sink: a score of the model's own, without a position."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return tuple(self.scores.shape)  # pyright: ignore[reportReturnType]

    @property
    def device(self) -> torch.device:
        return self.scores.device

    def arranged(self, tensor: Tensor) -> Tensor:
        return self.arrange(tensor)

    def rows(self, chosen: Tensor, dtype: torch.dtype) -> Rows:
        scores = self.scores.detach()[:, :, chosen]
        return Rows(scores.to(dtype), self.is_visible(scores))

    def is_visible(self, scores: Tensor) -> Tensor:
        """Which of some scores are not those of a mask."""
        lowest = torch.finfo(scores.dtype).min / 2
        return scores > (HIDDEN if self._is_masked_by_addition else lowest)

    @functools.cached_property
    def _is_masked_by_addition(self) -> bool:
        """Whether scores far below 0 are those of a mask, as no others come near them."""
        scores = self.scores.detach()
        between = (scores > HIDDEN) & (scores < HIDDEN / 9)
        return not bool(between.any())

    def error(self, chosen: Tensor, shares: Tensor) -> Tensor:
        got = self.weights.detach()[:, :, chosen].to(shares.dtype)
        return (shares - got).abs().amax(-1)


@dataclasses.dataclass(frozen=True)
class Change:
    """What is done to the attention of a module in a pass that asks what depends on it."""

    name: str
    """Of the call."""
    head: int | None = None
    """The head that is removed; None: attention becomes uniform over the visible keys."""


class Capture(TorchFunctionMode):
    """While it is entered, every operation of attention in this thread is noted in `calls`."""

    def __init__(
        self,
        model: nn.Module,
        is_attention: Callable[[str, nn.Module], bool] = looks_like_attention,
        gradients: bool = True,
        change: Change | None = None,
    ):
        super().__init__()
        self.calls: list[Call] = []
        self.ran: set[nn.Module] = set()
        self._names = {module: clean(path) for path, module in model.named_modules()}
        self._attention = {one for one, path in self._names.items() if is_attention(path, one)}
        self._running: list[nn.Module] = []
        self._tokens: dict[nn.Module, Tensor] = {}
        self._gradients, self._change = gradients, change
        self._blind = 0
        """How many functions are running whose inner calls are of no interest."""
        self._entered = contextlib.ExitStack()

    def __enter__(self) -> "Capture":
        stack = self._entered
        for hook in (
            register_module_forward_pre_hook(self._begins),
            register_module_forward_hook(self._ends, always_call=True),
        ):
            stack.callback(hook.remove)
        stack.enter_context(_hugging_face(self._through_interface))
        stack.enter_context(warnings.catch_warnings())
        # Of hooks that a compiled part sees twice, which changes nothing here.
        warnings.filterwarnings("ignore", "Using `torch.compile", UserWarning)
        _active.append(self)
        stack.callback(_active.remove, self)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._entered.close()
        self._running.clear()

    # -- which module is running -------------------------------------------------------------------

    def _begins(self, module: nn.Module, given: tuple[Any, ...]) -> None:
        vectors = given[0] if given and isinstance(given[0], Tensor) else None
        self._tokens.pop(module, None)
        # The tokens of a module come as its own argument, or as that of its first part.
        for one in (self._home(), module if module in self._attention else None):
            if one is not None and vectors is not None and vectors.ndim == 3:
                first = getattr(one, "batch_first", True)
                vectors = vectors if first is not False else vectors.transpose(0, 1)
                self._tokens.setdefault(one, vectors.detach())
        self._running.append(module)
        self.ran.add(module)

    def _ends(self, module: nn.Module, *_: Any) -> None:
        while self._running and self._running.pop() is not module:
            pass  # an exception may have left parts of it behind

    def _home(self) -> nn.Module | None:
        """The innermost running module of attention."""
        return next((one for one in reversed(self._running) if one in self._attention), None)

    def _name(self, module: nn.Module | None = None) -> str:
        """The path of a module, or of the innermost running one, with the number of the call."""
        known = (one for one in reversed(self._running) if one in self._names)
        module = module or next(known, None)
        path = self._names[module] if module is not None else ""
        return self._numbered(path or ROOT)

    def _numbered(self, path: str) -> str:
        before = sum(one.name.partition("#")[0] == path for one in self.calls)
        return path if not before else f"{path}#{before + 1}"

    def unseen(self) -> dict[str, str]:
        """Modules that look like attention and within which nothing was seen, with the reason."""
        seen = {one.name.partition("#")[0] for one in self.calls}
        found = {}
        for module in self._attention:
            path = self._names[module]
            near = any(_within(one, path) or _within(path, one) for one in seen)
            inner = any(one in self._attention for one in module.modules() if one is not module)
            if not near and not inner:
                found[path] = "no attention seen" if module in self.ran else "did not run"
        return found

    # -- the functions that are seen ---------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self._blind:  # (within this method the mode is off)
            if func in _PRODUCTS:
                return self._by_product(func, "products", *args, **kwargs)
            if func is functional.multi_head_attention_forward:
                return self._multi_head(func, *args, **kwargs)
            if func in _SOFTMAX:
                return self._by_softmax(func, *args, **kwargs)
        return func(*args, **kwargs)

    def _tap(self, queries: Tensor, *others: Tensor) -> Tensor:
        """The same queries; where no parameter below learns, a graph starts here."""
        if not self._gradients or any(one.requires_grad for one in (queries, *others)):
            return queries
        return queries.detach().requires_grad_(True)

    def _by_product(
        self,
        func: Any,
        rung: str,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        **more: Any,
    ) -> Tensor:
        name = self._name()
        if query.is_nested:
            raise CaptureError(f"{name}: nested tensors cannot be measured; give padded ones")
        query = self._tap(query, key, value)
        output = func(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **more)
        kind = query.device.type
        queries, keys, values = query, key, value
        if torch.is_autocast_enabled(kind):  # the kernel gets rounded ones, below the mode
            low = torch.get_autocast_dtype(kind)
            queries, keys, values = (one.detach().to(low) for one in (query, key, value))
        heads = self._heads_of(output.shape[0]) if output.ndim == 3 else None
        examples = output.shape[:-3] if output.ndim > 3 else ()
        parts = [
            _four(one.expand(*examples, *one.shape[-3:]) if examples else one, heads)
            for one in (queries, keys, values)
        ]
        mask = attn_mask
        if mask is not None and mask.ndim > 3 and len(examples) > 1:
            mask = mask.expand(*examples, *mask.shape[-3:]).flatten(0, len(examples) - 1)
        elif mask is not None and mask.ndim == 3 and query.ndim == 3:
            mask = _four(mask.expand(output.shape[0], -1, -1), heads)
        call = ProductCall(
            name=name,
            rung=rung,
            tokens=self._tokens_of(output),
            queries=parts[0],
            keys=parts[1],
            values=parts[2],
            went_on=output,
            mask=mask,
            causal=bool(is_causal),
            scale=query.shape[-1] ** -0.5 if scale is None else float(scale),
        )
        if dropout_p:
            call.notes.append(f"dropout of {dropout_p} although the model is in eval mode")
        self.calls.append(call)
        return self._changed(call, output)

    def _multi_head(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """The function behind `nn.MultiheadAttention`, in which no mode sees anything. With
        `need_weights` it does not use the product kernel, which is then called besides.
        """
        given = inspect.signature(func).bind(*args, **kwargs)
        given.apply_defaults()
        wanted = given.arguments["need_weights"]
        given.arguments["need_weights"] = False
        inner = functional.scaled_dot_product_attention

        def seen(*args: Any, **kwargs: Any) -> Tensor:
            return self._by_product(inner, "multi-head", *args, **kwargs)

        with mock.patch.object(functional, "scaled_dot_product_attention", seen):
            output = func(*given.args, **given.kwargs)[0]
        call = self.calls[-1]
        assert isinstance(call, ProductCall)
        call.crossed = given.arguments["query"] is not given.arguments["key"]
        if not wanted:
            return output, None
        if self._change is not None:
            return output, func(*args, **kwargs)[1]
        output, weights = func(*args, **kwargs)  # with these the model goes on
        call.output, call.went_on = call.of_heads, output
        call.projection = given.arguments["out_proj_weight"]
        return output, weights

    def _through_interface(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Eager attention of Hugging Face's models; other kinds call a kernel that is seen."""
        eager = getattr(function, "__name__", "") == "eager_attention_forward"
        if not eager or kwargs.get("s_aux") is not None or self._blind:
            return function(*args, **kwargs)
        module, query, key, value = args[:4]
        mask = args[4] if len(args) > 4 else kwargs.get("attention_mask")
        query = self._tap(query, key, value)
        with self._unseeing():
            output, weights = function(module, query, *args[2:], **kwargs)
        bias, scale = kwargs.get("position_bias"), kwargs.get("scaling")
        if bias is not None:
            mask = bias if mask is None else bias + mask
        call = ProductCall(
            name=self._name(),
            rung="interface",
            rounds_scores=True,
            tokens=self._tokens_of(output),
            queries=query,
            keys=key,
            values=value,
            went_on=output,
            mask=mask,
            scale=query.shape[-1] ** -0.5 if scale is None else float(scale),
            soft_cap=kwargs.get("softcap"),
            heads_last=True,
        )
        self.calls.append(call)
        return self._changed(call, output), weights

    def _by_softmax(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        weights = func(*args, **kwargs)
        scores = args[0] if args else kwargs["input"]
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        home = self._home()
        if home is None or dim is None or weights.ndim < 2:
            return weights
        axis = dim % weights.ndim
        heads = self._heads_of(weights.shape[0]) if weights.ndim == 3 else None

        def arranged(tensor: Tensor) -> Tensor:
            tensor = tensor.movedim(axis, -1)
            return tensor[:, None, None] if tensor.ndim == 2 else _four(tensor, heads)

        self.calls.append(
            ScoreCall(
                name=self._name(home),
                rung="softmax",
                tokens=self._tokens.get(home),
                scores=arranged(scores),
                weights=arranged(weights),
                went_on=weights,
                arrange=arranged,
                has_sink=hasattr(home, "sinks"),
            )
        )
        return self._changed_weights(self.calls[-1], weights, axis, scores)

    def by_hand(self, name: str, scores: Tensor) -> None:
        """Note scores that the model's own code names: [..., query, key], or [example, key]."""
        arranged = (lambda one: one[:, None, None]) if scores.ndim == 2 else _four
        with self._unseeing():
            weights = scores.detach().softmax(-1)
        self.calls.append(
            ScoreCall(
                name=self._numbered(name),
                rung=BY_HAND,
                scores=arranged(scores),
                weights=arranged(weights),
                went_on=scores,
                arrange=arranged,
                by_scores=True,
            )
        )

    @contextlib.contextmanager
    def _unseeing(self) -> Iterator[None]:
        self._blind += 1
        try:
            yield
        finally:
            self._blind -= 1

    def _tokens_of(self, output: Tensor) -> Tensor | None:
        """What enters the module of attention, if it has as many examples as what comes out."""
        home = self._home()
        tokens = None if home is None else self._tokens.get(home)
        fits = tokens is not None and (output.ndim < 4 or tokens.shape[0] == output.shape[0])
        return tokens if fits else None

    def _heads_of(self, size: int) -> int | None:
        """Heads of the running module, if so many matrices are its examples times its heads."""
        home = self._home()
        heads = next((getattr(home, one) for one in _HEADS if hasattr(home, one)), None)
        tokens = None if home is None else self._tokens.get(home)
        if not isinstance(heads, int) or tokens is None:
            return None
        return heads if size == heads * tokens.shape[0] else None

    # -- what depends on it ------------------------------------------------------------------------

    def _changed(self, call: ProductCall, output: Tensor) -> Tensor:
        change = self._change
        if change is None or change.name != call.name:
            return output
        if change.head is None:
            every = torch.arange(call.shape[2], device=call.device)
            visible = call.rows(every, output.dtype).visible.expand(call.shape).to(output.dtype)
            shares = visible / visible.sum(-1, keepdim=True).clamp_min(1)
            found = shares @ call.of_head(call.values, output.dtype)
            found = found.transpose(1, 2) if call.heads_last else found
            return found.reshape(output.shape)
        if call.heads_last:
            return _without(output, 2, change.head)
        if output.ndim < 4:  # one head, or examples x heads
            found = _without(call.arranged(output), 1, change.head)
            return found.reshape(output.shape)
        return _without(output, output.ndim - 3, change.head)

    def _changed_weights(self, call: Any, weights: Tensor, axis: int, scores: Tensor) -> Tensor:
        change = self._change
        if change is None:
            return weights
        # Calls of single queries, as of a recurrent decoder, are taken together.
        same = change.name in (call.name, call.name.partition("#")[0])
        if change.name != call.name and not (same and call.shape[2] == 1):
            return weights
        if change.head is None:
            visible = call.is_visible(scores).to(weights.dtype)
            return visible / visible.sum(axis, keepdim=True).clamp_min(1)
        if weights.ndim == 4:
            return _without(weights, 1, change.head)
        if weights.ndim == 3 and call.shape[1] > 1:  # [example x head, query, key]
            return _without(weights.unflatten(0, (-1, call.shape[1])), 1, change.head).flatten(0, 1)
        return torch.zeros_like(weights)


_active: list[Capture] = []
"""Captures that are entered, the innermost last."""


def attention(name: str, scores: Tensor) -> None:
    """For the model's own code, before its softmax: name the scores of an attention that nothing
    else sees. Outside of a measurement it does nothing.
    """
    if _active:
        _active[-1].by_hand(name, scores)


@contextlib.contextmanager
def _hugging_face(seen: Callable[..., Any]) -> Iterator[None]:
    """Let attention functions of transformers, if it is in use, be called through `seen`."""
    library = sys.modules.get("transformers.modeling_utils")
    interface = getattr(library, "AttentionInterface", None)
    found = getattr(interface, "get_interface", None)
    if found is None:  # or before transformers 5.1; the other ways see what they can
        yield
        return

    def get_interface(self: Any, implementation: str, default: Callable[..., Any]) -> Any:
        function = found(self, implementation, default)
        return lambda *args, **kwargs: seen(function, args, kwargs)

    with mock.patch.object(interface, "get_interface", get_interface):
        yield


def clean(path: str) -> str:
    """A path without the names that wrappers add."""
    return _WRAPPERS.sub("", path).strip(".")


def _within(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}.")


def _four(tensor: Tensor, heads: int | None = None) -> Tensor:
    """[query, part] and [example, query, part] with the missing axes; of three axes the first may
    be examples x heads.
    """
    if tensor.ndim == 2:
        return tensor[None, None]
    if tensor.ndim == 3:
        heads = 1 if heads is None or tensor.shape[0] % heads else heads
        return tensor.unflatten(0, (-1, heads))
    return tensor if tensor.ndim == 4 else tensor.flatten(0, tensor.ndim - 4)


def _without(tensor: Tensor, axis: int, head: int) -> Tensor:
    kept = torch.arange(tensor.shape[axis], device=tensor.device) != head
    return tensor * kept.view([-1 if at == axis else 1 for at in range(tensor.ndim)])
