"""Where softmax or the Gaussian kernel gives queries no gradient (Song et al. 2024, theorem 2).

Statement. With only W^Q trained and H D >= N n, the Gaussian kernel reaches the global optimum from
a suitable initialisation, while softmax can end at a stationary point that is not global.

Symbols. S: attention of one head; q, k: queries and keys; eps: scale of W^K; f: loss.

Derivation. Softmax is invariant under adding one vector to all keys of a sequence. If all keys are
equal (W^K = 0), then S = 1/n for every W^Q and df/dW^Q = 0 identically: this point is stationary
but not global. Near it the derivative of the scores is proportional to W^K, so the gradient is of
order eps, and the loss falls at a rate of order eps^2. The Gaussian kernel has a gradient there,
since S = exp(-||q||^2 / (2 sqrt d)) depends on q. But for large ||q - k|| the kernel and its
gradients are exponentially small; and dS/dq = -(q - k) S / sqrt d is zero at q = k, of order eps
with queries and keys both of scale eps. It thus needs queries at an intermediate distance.

Reach of the Gaussian kernel without keys [derived]. A query then gives all vectors of a sequence
the same weight exp(-||q||^2 / (2 sqrt d)) in (0, 1], which it sets freely (for N n <= D and inputs
in general position). With one output, a target is reached if it lies between sum_h min(c_h, 0) and
sum_h max(c_h, 0), c_h the sum of head h's values over the sequence. The global optimum over W^Q is
half the sum of squared distances to these (`ReachOfQueries`): for most draws 0, as theorem 2 needs.

Limits. This does not say which kernel is better from a generic initialisation; both train there.
"""

from typing import Any

import xarray as xr

from saccade.core.interfaces import AbstractTheory
from saccade.core.trajectory import at_start


class KernelBlindness(AbstractTheory):
    """The first gradient of W^Q, a line in the keys' scale through the largest scale below 1."""

    statement = "softmax's gradient of the queries is proportional to the scale of the keys"
    source = "derived; Song 2024, theorem 2"
    predicts = ("gradient_norm",)

    def predict(self, task: Any, model: Any, trajectory: xr.Dataset) -> xr.Dataset:
        start = at_start(trajectory["gradient_norm"])
        scales = start["key_scale"]
        anchor = float(scales[(scales > 0) & (scales < 1)].max())
        predicted = start.sel(key_scale=anchor, drop=True) * scales / anchor
        name = "gradient norm proportional to the scale of the keys"
        return xr.Dataset({"gradient_norm": predicted.assign_attrs(long_name=name, units="1")})
