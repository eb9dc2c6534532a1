r"""The whole loss curve if only the values are trained, from the initialisation alone.

Statement. One layer of attention (Song et al. 2024) with only $W^V$ trained by gradient descent has

$$ f_t = \frac{1}{2} \sum_i (1 - \eta \lambda_i)^{2t} c_i^2, $$

with $\lambda_i$ the eigenvalues of $K = \sum_h (W_h^{OT} W_h^O) \otimes (B_h B_h^T)$, and $c_i$ the
components of the initial residual along its eigenvectors. Directions with $\lambda_i = 0$ make up
the floor.

Symbols. $f$: half the sum of squared errors; $\eta$: step size; $B_h$: the $N n \times D$ matrix of
the inputs that head $h$ attends to; $W_h^O$: fixed output layer of head $h$; $R$: residual, outputs
minus targets.

Derivation. $F = \sum_h B_h W_h^V W_h^O$, so the gradient of $W_h^V$ is $B_h^T R W_h^{OT}$.
Attention does not move, $B_h$ is constant, and a step gives
$R \leftarrow R - \eta \sum_h B_h B_h^T R W_h^{OT} W_h^O$, which is linear in $R$:
$\operatorname{vec} R \leftarrow (I - \eta K) \operatorname{vec} R$. With one output
$K = \sum_h \|W_h^O\|^2 B_h B_h^T$. Theorem 1 keeps a lower bound on the smallest $\lambda_i$; this
keeps them all.

Limits. Plain gradient descent on the full batch, attention and output layer frozen. With queries or
keys trained it is what the values alone would do (frozen features), not a prediction of the loss.
"""

from typing import Any

import xarray as xr

from saccade.contracts.theory import AbstractTheory
from saccade.records.trajectory import at_start
from saccade.theory.linear_rate import step_size


class ValueSpectrum(AbstractTheory):
    """The loss at every recorded step, from the modes at the start (probe `ValueModes`)."""

    statement = "with values alone every mode of the residual decays by its own factor"
    source = "derived; Song 2024, theorem 1 keeps the slowest mode"
    predicts = ("loss",)

    def predict(self, task: Any, model: Any, trajectory: xr.Dataset) -> xr.Dataset:
        start = at_start(trajectory)
        factor = abs(1 - step_size(trajectory) * start["mode_curvature"])
        decayed = factor ** (2 * trajectory["step"]) * start["mode_residual"]
        loss = (decayed.sum("mode") / 2).transpose(*trajectory["loss"].dims)
        name = "loss if only values are trained, from the modes at the start"
        return xr.Dataset({"loss": loss.assign_attrs(long_name=name, units="1")})
