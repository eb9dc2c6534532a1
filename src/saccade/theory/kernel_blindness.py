"""Where a kernel gives queries no gradient: softmax with equal keys, the Gaussian far away (Song et
al. 2024, theorem 2).

Statement. With only W^Q trained and H D >= N n, the Gaussian kernel reaches the global optimum from
a suitable start, while softmax can end in a stationary point that is not global.

Symbols. S: attention of one head; q, k: queries and keys; eps: scale of W^K; f: loss; c: scale of
W^Q.

Derivation. Softmax does not change if one vector is added to all keys of a sequence. So if all keys
are equal (W^K = 0), S = 1/n whatever W^Q is, and df/dW^Q = 0 identically: stationary, and not
global. Near it, the scores' derivative with respect to W^Q is proportional to W^K, so the gradient
is of order eps, and the loss falls at a rate of order eps^2. The Gaussian kernel is not blind
there: S = exp(-||q||^2 / (2 sqrt d)) depends on q. It has a dead zone of its own: for large ||q -
k|| the kernel and all gradients are exponentially small. And since dS/dq = -(q - k) S / sqrt d, it
is blind at q = k, too: with queries and keys both of scale eps its gradient is of order eps. So it
asks for queries at a middle distance.

What the Gaussian can reach without keys [derived]. All vectors of a sequence then get one weight
from a query, exp(-||q||^2 / (2 sqrt d)), a number in (0, 1] that the query sets freely (for N n <=
D and inputs in general position). With one output, a target is reached if it lies between sum_h
min(c_h, 0) and sum_h max(c_h, 0), c_h = the sum of head h's values over the sequence. So the global
optimum over W^Q is half the sum of squared distances to these intervals (probe `ReachOfQueries`): 0
for most draws, and not for all. Theorem 2 assumes that it is 0.

Limits. Nothing here says which kernel is better from a generic start; both train there.
"""

from typing import Any, ClassVar

import xarray as xr

from saccade.core.interfaces import AbstractTheory
from saccade.core.trajectory import at_start


class KernelBlindness(AbstractTheory):
    """The gradient of W^Q at the start against the scale of the keys, from its value at the
    largest scale below 1.
    """

    statement: ClassVar[str] = (
        "softmax's gradient of the queries is proportional to the scale of the keys, and 0 without"
        " keys"
    )
    source: ClassVar[str] = "derived; Song 2024, theorem 2"
    predicts: ClassVar[tuple[str, ...]] = ("gradient_norm",)

    def predict(self, task: Any, model: Any, trajectory: xr.Dataset) -> xr.Dataset:
        del task, model
        start = at_start(trajectory["gradient_norm"])
        scales = start["key_scale"]
        anchor = float(scales[(scales > 0) & (scales < 1)].max())
        predicted = start.sel(key_scale=anchor, drop=True) * scales / anchor
        return xr.Dataset(
            {
                "gradient_norm": predicted.assign_attrs(
                    description="proportional to the scale of the keys"
                )
            }
        )
