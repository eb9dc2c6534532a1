"""The loss of a training: the model's own, or a function of model and batch."""

import inspect
from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float

from saccade.errors import ConfigError

Loss = Callable[..., Float[Array, ""]]


def own_loss(model: Any, batch: Any, key: Any = None) -> Float[Array, ""]:
    """The model's own training loss."""
    if not hasattr(model, "loss"):
        raise ConfigError(
            f"model: got a {type(model).__name__} without a loss, allowed: a module with a method "
            "`loss(batch)`, or the argument `loss=` with a function of model and batch"
        )
    return with_key(model.loss, batch, key=key)


def takes_key(loss: Loss, model: Any) -> bool:
    """Whether the loss of a model has a parameter `key`, for dropout."""
    function = getattr(model, "loss", loss) if loss is own_loss else loss
    return "key" in inspect.signature(function).parameters


def with_key(function: Callable[..., Any], *arguments: Any, key: Any) -> Any:
    """Call a loss with the key of a training step, if it has a parameter of that name."""
    takes = key is not None and "key" in inspect.signature(function).parameters
    return function(*arguments, key=key) if takes else function(*arguments)
