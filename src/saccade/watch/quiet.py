"""A pass through a model that leaves no trace: modes, attributes of modules, random states, buffers
and settings are as before afterwards, also after an exception.
"""

import contextlib
import copy
import random
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from saccade.errors import ConfigError
from saccade.watch.capture import CaptureError

_SHARDED = ("FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine")


def unwrapped(model: nn.Module) -> nn.Module:
    """The model within wrappers for several devices and for compiled code."""
    while True:
        if any(kind.__name__ in _SHARDED for kind in type(model).__mro__):
            raise ConfigError(
                f"model: got {type(model).__name__}, allowed: models whose weights are whole in "
                "one process; measure checkpoints of a sharded run with `saccade measure`"
            )
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


@contextlib.contextmanager
def quiet(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, without compiled code, fast paths and checkpointed activations."""
    unmade = [name for name, one in model.named_parameters() if is_lazy(one)]
    if unmade:
        raise ConfigError(f"model: {unmade[0]} has no shape yet; run a batch through it first")
    attributes = {module: _Kept(vars(module)) for module in model.modules()}
    tensors = _Tensors(model)
    fast = torch.backends.mha.get_fastpath_enabled()
    with same_random_states():
        try:
            for module in attributes:
                module.training = False
            torch.backends.mha.set_fastpath_enabled(False)
            with (
                torch.compiler.set_stance("force_eager"),
                # Checkpointing by re-entry hides the graph from `autograd.grad`.
                mock.patch("torch.utils.checkpoint.CheckpointFunction.apply", _plainly),
            ):
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            for kept in attributes.values():
                kept.put_back()
            written = tensors.put_back()
    if written:
        raise CaptureError(
            f"the model writes into {', '.join(written)} even in evaluation mode; all was put "
            "back, and nothing is measured"
        )


class _Kept:
    """Attributes of a module: the mode, what its code keeps of a pass, lists and dicts with their
    contents (among them its buffers by name), and generators.
    """

    def __init__(self, now: dict[str, Any]):
        self._now, self._before = now, dict(now)
        containers = [one for one in now.values() if isinstance(one, list | dict | set)]
        self._contents: list[tuple[Any, Any]] = [(one, copy.copy(one)) for one in containers]
        generators = [one for one in now.values() if isinstance(one, torch.Generator)]
        self._states = [(one, one.get_state()) for one in generators]

    def put_back(self) -> None:
        _restore(self._now, self._before)
        for one, content in self._contents:
            if isinstance(one, dict):
                _restore(one, content)
            elif isinstance(one, list):
                one[:] = content
            else:
                one.clear()
                one |= content
        for generator, state in self._states:
            generator.set_state(state)


def _restore(now: dict[Any, Any], before: Mapping[Any, Any]) -> None:
    for name in now.keys() - before.keys():
        del now[name]
    for name, value in before.items():
        if now.get(name, now) is not value:
            now[name] = value


class _Tensors:
    """Parameters, buffers and plain tensors of a model, to see whether they are written into.
    Parameters are too large to be copied: they can be seen, not put back.
    """

    def __init__(self, model: nn.Module):
        plain = {
            f"{path}.{name}".lstrip("."): one
            for path, module in model.named_modules()
            for name, one in vars(module).items()
            if isinstance(one, torch.Tensor)
        }
        others = dict(model.named_buffers()) | plain
        self._copies = {name: (one, one.detach().clone()) for name, one in others.items()}
        self._all = {name: (one, _version(one)) for name, one in others.items()}
        self._all |= {name: (one, _version(one)) for name, one in model.named_parameters()}

    def put_back(self) -> list[str]:
        """Restore what was written; gives the names."""
        written = [name for name, (one, before) in self._all.items() if _version(one) != before]
        with torch.no_grad():
            for name in set(written) & set(self._copies):
                tensor, content = self._copies[name]
                tensor.copy_(content)
        return written


def _version(tensor: torch.Tensor) -> int:
    """How often it was written into; tensors of inference mode do not count."""
    return 0 if tensor.is_inference() else tensor._version


def _plainly(function: Any, preserve: bool, *args: Any) -> Any:
    return function(*args)


@contextlib.contextmanager
def same_random_states() -> Iterator[None]:
    """The states of all generators afterwards are those of before."""
    ours, python, array = torch.get_rng_state(), random.getstate(), np.random.get_state()
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        torch.set_rng_state(ours)
        random.setstate(python)
        np.random.set_state(array)
        if on_gpus is not None:
            torch.cuda.set_rng_state_all(on_gpus)
