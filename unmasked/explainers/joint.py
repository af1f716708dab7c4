"""`BaseX` and `Invase`: the predictor learns from the selector's own masks, and can be told."""

from __future__ import annotations

from unmasked import methods
from unmasked.engine import Method
from unmasked.explainers.priced import Priced
from unmasked.samplers import Sampler, ScoreBernoulli


class BaseX(Priced):
    """BASE-X, the paper's control: REAL-X, but its predictor learns from the selector's masks.

    Selector and predictor climb the same log q(y | x_s) − λ · (fraction shown) together, so the
    *choice* of features can come to carry the prediction. For comparison, not for use: judge it
    with `EvalX`.

    Parameters, attributes and promises are those of `RealX`, without ``mask_law`` and
    ``predictor_first``, which a joint method cannot have.

    Examples
    --------
    >>> from unmasked import Training
    >>> from unmasked.data import synthetic
    >>> rows = synthetic("S3", 400, seed=0)
    >>> explainer = BaseX(sparsity=0.1, training=Training(epochs=2), random_state=0)
    >>> explainer.fit(rows.x, rows.y).explain(rows.x).masks.shape
    (400, 11)
    """

    title = "BASE-X"

    def _method(self) -> Method:
        return methods.base_x(
            self.masker_, self._predictor_network, self._selector_network, self._sampler
        )


class Invase(Priced):
    """INVASE (Yoon et al., 2019): joint training with score-function gradients.

    The gradient's variance is lowered by subtracting the log-likelihood of a third network that
    sees everything and is trained alongside. Like `BaseX` it can encode its prediction in the
    choice of features: judge it with `EvalX`.

    Parameters, attributes and promises are those of `BaseX`. Probabilities are computed from
    logits throughout; the released code's log(p + 1e-8) fails with NaN on current software.

    Examples
    --------
    >>> from unmasked import Training
    >>> from unmasked.data import synthetic
    >>> rows = synthetic("S3", 400, seed=0)
    >>> explainer = Invase(sparsity=0.1, training=Training(epochs=2), random_state=0)
    >>> explainer.fit(rows.x, rows.y).explain(rows.x).masks.shape
    (400, 11)
    """

    title = "INVASE"

    @property
    def _sampler(self) -> Sampler:
        return ScoreBernoulli()

    def _method(self) -> Method:
        return methods.invase(self.masker_, self._predictor_network, self._selector_network)
