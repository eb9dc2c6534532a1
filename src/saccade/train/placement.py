"""Members side by side on the devices.

The member axis is mapped (`vmap`) and split over the local devices (`shard_map`). Nothing crosses
it, so a member's numbers do not depend on its neighbours. (They may change in the last bit with the
number of members per device, because XLA then compiles another program.)
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from saccade.train.program import Program, compiler_options

__all__: list[str] = []

SPLIT, SAME = PartitionSpec("member"), PartitionSpec()
"""Arrays with a leading member axis, and arrays that all members share."""


@dataclasses.dataclass(frozen=True, eq=False)
class Placement:
    """How many members lie on which devices."""

    devices: Sequence[Any]
    count: int
    """Members."""
    places: int | None = None
    """Places for members, if there are more than members: the last one is repeated."""

    @cached_property
    def mesh(self) -> Mesh:
        return Mesh(np.asarray(self.devices), ("member",))

    @cached_property
    def spread(self) -> NamedSharding:
        return NamedSharding(self.mesh, SPLIT)

    def pad(self, tree: PyTree) -> PyTree:
        """Arrays of the members, with the last one repeated until they divide evenly over the
        devices.
        """
        missing = max(self.places or 0, self.count) - self.count
        missing += -(self.count + missing) % len(self.devices)

        def padded(leaf: Any) -> Any:
            leaf = leaf[: self.count]
            if isinstance(leaf, jax.Array):  # keys are no NumPy arrays
                return jnp.concatenate([leaf, jnp.repeat(leaf[-1:], missing, 0)])
            return np.concatenate([leaf, np.repeat(leaf[-1:], missing, 0)])

        return jax.tree.map(padded, tree)

    def put(self, tree: PyTree) -> PyTree:
        """Place arrays with a leading member axis on the devices."""
        return jax.tree.map(lambda leaf: jax.device_put(leaf, self.spread), tree)

    def put_shared(self, tree: PyTree) -> PyTree:
        """Place arrays that all members share on every device."""
        return jax.device_put(tree, NamedSharding(self.mesh, SAME))

    def fetch(self, tree: PyTree, axis: int = 0) -> PyTree:
        """Bring arrays to the host, without the padding members."""
        kept = (slice(None),) * axis + (slice(self.count),)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[kept], tree)

    def split(
        self,
        function: Callable[..., Any],
        specs: Sequence[Any],
        out: Any = SPLIT,
        *,
        donated: tuple[int, ...] = (),
        once: bool = False,
    ) -> Any:
        """A function of the members of one device for all devices. A function that runs `once`
        compiles quickly rather than to run quickly.
        """
        mapped = jax.shard_map(
            function, mesh=self.mesh, in_specs=tuple(specs), out_specs=out, check_vma=False
        )
        options = compiler_options(once) if self.devices[0].platform == "cpu" else None
        return jax.jit(mapped, donate_argnums=donated, compiler_options=options)  # pyright: ignore[reportArgumentType]

    def over_members(self, function: Callable[..., Any], shared: Sequence[bool]) -> Any:
        """A function of one member that runs once, for all members; which of its arguments all
        members share.
        """
        axes = tuple(None if same else 0 for same in shared)
        specs = [SAME if same else SPLIT for same in shared]
        return self.split(jax.vmap(function, in_axes=axes), specs, once=True)

    def shapes_of(self, program: Program) -> Any:
        """Shapes and types of a program's result, on the devices."""
        return jax.tree.map(
            lambda info: jax.ShapeDtypeStruct(info.shape, info.dtype, sharding=self.spread),
            program.shapes,
        )


def outline(tree: PyTree) -> Any:
    """Structure, shapes and types of a tree of arrays."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def shapes_without_devices(tree: PyTree) -> PyTree:
    """Shapes and types of a tree of arrays, wherever they lie."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
