"""Programs that are traced once: their text says what they compute, and they compile on first use.

The text is the lowered StableHLO, with the content of every constant and without file names or
addresses. It is the same in two processes, and differs if anything that was read while tracing
differs: a helper function, a global, a default, an environment variable.
"""

import contextlib
import hashlib
import itertools
import re
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any

import jax

_tracing = jax.make_user_context(0)
_number = itertools.count(1)
_CALL = re.compile(r'custom_call @"?([\w.$]+)')
_KNOWN = re.compile(
    "Sharding|SPMD|annotate_device_placement|ApproxTopK|tpu_custom_call|(xla|mhlo|stablehlo|chlo)\\."
    r"|lapack_|(cu|hip)(blas|solver|sparse|dnn|_threefry)|__(gpu|cublas|cudnn|op)\$"
)

__all__: list[str] = []
"""Names of calls that XLA itself knows, with everything that shapes them in the text."""


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """A context in which JAX traces everything anew, and writes constants into the program.

    JAX keeps the traces of inner `jit`, `scan` and similar functions by the identity of the Python
    function. If a global that such a function reads has changed, its old trace would be used.
    """
    hoisted = "jax_use_simplified_jaxpr_constants"
    before = getattr(jax.config, hoisted, False)
    if before:
        jax.config.update(hoisted, False)
    try:
        with _tracing(next(_number)):
            yield
    finally:
        if before:
            jax.config.update(hoisted, before)


def is_out_of_memory(error: Exception) -> bool:
    """Whether a device had no room: while a program was compiled, which tries its parts, or ran."""
    return "RESOURCE_EXHAUSTED" in str(error)


class Program:
    """A jitted function, lowered for some arguments (or their shapes)."""

    def __init__(self, jitted: Any, *arguments: Any):
        with tracing():
            self._lowered = jitted.lower(*arguments)
        text = self._lowered.as_text()
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        """Hash of what the program computes."""
        self.is_whole = all(map(_KNOWN.match, _CALL.findall(text)))
        """Whether the text says all: the program calls nothing outside, such as Python."""

    @property
    def shapes(self) -> Any:
        """Shapes and dtypes of the result."""
        return self._lowered.out_info

    @property
    def memory(self) -> int:
        """Bytes that a device needs to run it; 0 where the compiler does not say."""
        found = self._compiled.memory_analysis()
        if found is None:
            return 0
        kept = found.argument_size_in_bytes + found.output_size_in_bytes
        return kept + found.temp_size_in_bytes - found.alias_size_in_bytes

    @cached_property
    def _compiled(self) -> Any:
        return self._lowered.compile()

    def __call__(self, *arguments: Any) -> Any:
        return self._compiled(*arguments)


@cache
def compiler_options(once: bool) -> dict[str, Any]:
    """How programs for CPUs are compiled: quickly, without slower training; a program that runs
    once, as quickly as possible.

    Measured: with fewer LLVM passes compilation takes up to half less time and training the same;
    with level 0 training is slower. Without the fusion emitters compilation takes another third
    less, but training up to 40 % longer.
    """
    if not once:
        return {"xla_backend_optimization_level": 1, "xla_llvm_disable_expensive_passes": True}
    options: dict[str, Any] = {"xla_backend_optimization_level": 0}
    unfused = {"xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda: 0, compiler_options=unfused).lower().compile()
    except jax.errors.JaxRuntimeError:  # other versions of XLA may not know the option
        return options
    return options | unfused
