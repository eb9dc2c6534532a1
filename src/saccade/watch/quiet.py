"""A pass through a model that leaves no trace: modes, attributes of modules, random states, buffers
and settings are as before afterwards, also after an exception.
"""

import contextlib
import random
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from saccade.core.errors import ConfigError
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
    attributes = {module: dict(vars(module)) for module in model.modules()}
    tensors = _versions(model)
    buffers = {name: (one, one.detach().clone()) for name, one in model.named_buffers()}
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
            written = _put_back(model, buffers, tensors)
            for module, before in attributes.items():
                _restore(vars(module), before)
    if written:
        raise CaptureError(
            f"the model writes into {', '.join(written)} even in evaluation mode; buffers were put "
            "back, and nothing is measured"
        )


def _restore(now: dict[str, Any], before: dict[str, Any]) -> None:
    """Attributes as they were: the mode, and what the model's own code keeps of a pass."""
    for name in now.keys() - before.keys():
        del now[name]
    for name, value in before.items():
        if now.get(name, now) is not value:
            now[name] = value


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


def _versions(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Which tensor stands under each name, and how often it was written into."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    return {name: (id(one), one._version) for name, one in tensors}


def _put_back(model: nn.Module, buffers: Any, before: dict[str, tuple[int, int]]) -> list[str]:
    """Restore buffers that were written; gives the names of all tensors that were."""
    now = _versions(model)
    written = [name for name in before if before[name] != now.get(name)]
    with torch.no_grad():
        for name in set(written) & set(buffers):
            buffer, content = buffers[name]
            owner, _, leaf = name.rpartition(".")
            model.get_submodule(owner)._buffers[leaf] = buffer
            buffer.copy_(content)
    return written
