r"""Where softmax or the Gaussian kernel gives queries no gradient (Song et al. 2024, theorem 2).

Statement. With only $W^Q$ trained and $H D \ge N n$, the Gaussian kernel reaches the global optimum
from a suitable initialisation, while softmax can end at a stationary point that is not global.

Symbols. $S$: attention of one head; $q$, $k$: queries and keys; $\varepsilon$: scale of $W^K$; $f$:
loss.

Derivation. Softmax is invariant under adding one vector to all keys of a sequence. If all keys are
equal ($W^K = 0$), then $S = 1/n$ for every $W^Q$ and $\partial f / \partial W^Q = 0$ identically:
this point is stationary but not global. Near it
$\partial S_{ab} / \partial q_a = (k_b - \bar{k}) / (n \sqrt{d})$ to first order in $\varepsilon$.
The gradient of $W_h^Q$ is thus to first order

$$
\sum_a x_a \, r_a \cdot \frac{1}{n \sqrt{d}} \sum_b (k_b - \bar{k}) \, v_b, \qquad
v_b = x_b W_h^V W_h^O,
$$

with $r$ the residual and sums within each sequence: of order $\varepsilon$, with no free constant.
The loss falls at a rate of order $\varepsilon^2$ as long as the queries have moved little. The
Gaussian kernel has a gradient there, since $S = \exp(-\|q\|^2 / (2 \sqrt{d}))$ depends on $q$. But
for large $\|q - k\|$ the kernel and its gradients are exponentially small; and
$\partial S / \partial q = -(q - k) S / \sqrt{d}$ is zero at $q = k$, of order $\varepsilon$ with
queries and keys both of scale $\varepsilon$. It thus needs queries at an intermediate distance.

Reach of the Gaussian kernel without keys [derived]. A query then gives all vectors of a sequence
the same weight $\exp(-\|q\|^2 / (2 \sqrt{d}))$ in $(0, 1]$, which it sets freely (for $N n \le D$
and inputs in general position). With one output, a target is reached if it lies between
$\sum_h \min(c_h, 0)$ and $\sum_h \max(c_h, 0)$, $c_h$ the sum of head $h$'s values over the
sequence. The global optimum over $W^Q$ is half the sum of squared distances to these
(`ReachOfQueries`): 0, as theorem 2 needs, only for draws whose targets all lie within.

Limits. The expansion has a relative error of the order of the scores. None of this says which
kernel is better from a generic initialisation; both train there.
"""

from typing import Any

import xarray as xr

from saccade.contracts.theory import AbstractTheory
from saccade.records.trajectory import at_start


class KernelBlindness(AbstractTheory):
    """The first gradient of W^Q to first order in the keys (probe `FirstOrderQueries`)."""

    statement = "softmax's gradient of the queries is proportional to the scale of the keys"
    source = "derived; Song 2024, theorem 2"
    predicts = ("gradient_norm",)

    def predict(self, task: Any, model: Any, trajectory: xr.Dataset) -> xr.Dataset:
        norm = at_start(trajectory)["first_order_gradient"].expand_dims(part=["queries"], axis=-1)
        name = "gradient norm to first order in the keys"
        return xr.Dataset({"gradient_norm": norm.assign_attrs(long_name=name, units="1")})
