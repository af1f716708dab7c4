"""`Encoding`: what the encoding test found, and the rule that puts it in words.

The estimate is a mean of n rows' gains d_i = log h(y_i | shown, c = 1) − log h(y_i | shown, c = 0).
If the truth were δ nats, the gains would spread by about √(2δ) (for a small log-likelihood ratio
the mean is half the variance), so that no test of n rows knows its mean to better than √(2δ / n).
Boosted trees that see nothing do not use c at all and report gains of exactly 0; the spread that
an effect of the threshold's size *would* have keeps such an interval from being narrower than the
number of rows allows::

    floor = √(2 · threshold / effective rows)
    low   = bootstrap's 2.5% point
    high  = the larger of the bootstrap's 97.5% point and max(nats, 0) + 1.96 · floor

`no sign of encoding` needs high < threshold, `encodes` needs low > threshold / 4 with high above
the threshold, and anything else is `cannot tell`. The lower mark is a quarter of the upper because
the estimate runs low: it never catches all that a code says, least of all with few rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

ENCODES, NO_SIGN, CANNOT_TELL = "encodes", "no sign of encoding", "cannot tell"
UNSEEN = (
    "assumed: neither the explainer nor the model it explains was trained on these rows; "
    "if one was, the answer means nothing."
)
_TWO_SIDED, _ONE_SIDED = 1.959964, 1.644854  # normal points of 97.5% and 95%
_LEAST_EFFECTIVE = 30.0  # below, the comparison rests on too few shuffled pairs to accuse anyone
_DRAWS = 2000
_CHUNK = 4_000_000  # weights held at once


@dataclass(frozen=True, repr=False, eq=False)
class Encoding:
    """Verdict of the encoding test, with what the choice says about y beyond the values shown.

    Attributes
    ----------
    nats : estimate of E KL(p(y | x_v, e(x) = v) ‖ p(y | x_v)). It runs low for intricate codes,
        and can run high for plain ones in few rows, where c = 0 fits noise.
    low, high : 95% interval over rows (or groups), never narrower upwards than the rows allow.
    verdict : "encodes", "no sign of encoding" or "cannot tell".
    reason : why, in a sentence.
    detectable : the size, in nats, that the rule would notice 19 times in 20 if the model caught
        all of it. Smaller or more intricate codes may have gone unnoticed.
    effective_rows : rows (or groups) times how well shuffled pairs cover the real ones.
    rows, classes : how many were tested.
    threshold : nats that count as encoding.
    gains : (rows,) each tested row's own log-likelihood ratio, whose mean is ``nats``.
    remarks : what to know before believing the figures.
    assumed : what was taken for granted.
    """

    nats: float
    low: float
    high: float
    verdict: str
    reason: str
    detectable: float
    effective_rows: float
    rows: int
    classes: int
    threshold: float
    gains: NDArray[np.float64]
    remarks: list[str] = field(default_factory=list)
    assumed: str = UNSEEN

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without each row's gain."""
        return {
            "encoding_nats": {"value": self.nats, "low": self.low, "high": self.high},
            "verdict": self.verdict,
            "reason": self.reason,
            "detectable": self.detectable,
            "effective_rows": self.effective_rows,
            "rows": self.rows,
            "classes": self.classes,
            "threshold": self.threshold,
            "assumed": self.assumed,
            "remarks": list(self.remarks),
        }

    def __repr__(self) -> str:
        lines = [
            f"{self.verdict}: {_figures(self.nats, self.low, self.high)} in the choice of "
            f"features, {self.rows:,} rows, {self.classes} classes",
            self.reason,
            *(f"note: {remark}" for remark in self.remarks),
            self.assumed,
        ]
        return "\n".join(lines)


def judge(
    gains: NDArray[np.float64],
    clusters: NDArray[np.int64],
    overlap: float,
    classes: int,
    threshold: float,
    seed: int,
    remarks: list[str],
    *,
    neighbours: bool = False,
    least_to_clear: int = 0,
) -> Encoding:
    """Gains (rows,) as an `Encoding`; rows of one cluster are resampled together.

    overlap : (Σw)² / (m Σw²) of the m shuffled pairs' weights, 1 where they cover the real ones.
    neighbours : whether clusters are runs of rows in time, which may be dependent or not, rather
    than cases that have several rows.
    least_to_clear : with fewer cases there is no `no sign of encoding`: what reads the masks could
    not have learned a small code from them.
    """
    value = float(gains.mean())
    low, high, error = _resampled(gains, clusters, seed)
    independent = _worth(gains, clusters) if neighbours else len(np.unique(clusters))
    effective = float(overlap * independent)
    high = max(high, max(value, 0.0) + _TWO_SIDED * math.sqrt(2 * threshold / effective))
    detectable = _detectable(error, effective, threshold)
    verdict, reason = _in_words(value, low, high, effective, detectable, threshold)
    if verdict == NO_SIGN and independent < least_to_clear:
        verdict = CANNOT_TELL
        reason = (
            f"which features are shown says {_figures(value, low, high)} about y beyond the "
            f"values shown, but from fewer than {least_to_clear:,} cases a network does not learn "
            "small codes, so test more rows."
        )
    return Encoding(
        value, low, high, verdict, reason, detectable, effective, len(gains), classes, threshold,
        gains, remarks,
    )  # fmt: skip


def nothing_chosen(
    mask: NDArray[np.bool_], rows: int, classes: int, threshold: float, remarks: list[str]
) -> Encoding:
    """The exact answer where all rows have one mask: what never varies cannot tell anything."""
    if mask.all():
        what = "every row shows all features"
    elif not mask.any():
        what = "no row shows any feature"
    else:
        what = f"every row shows the same {int(mask.sum())} of {len(mask)} features"
    reason = f"{what}, so the choice is the same for all and cannot say anything about y."
    return Encoding(
        0.0, 0.0, 0.0, NO_SIGN, reason, 0.0, float(rows), rows, classes, threshold,
        np.zeros(rows), [f"{what}.", *remarks],
    )  # fmt: skip


def _resampled(
    gains: NDArray[np.float64], clusters: NDArray[np.int64], seed: int
) -> tuple[float, float, float]:
    """2.5% and 97.5% points of the mean over resampled clusters, and its standard error."""
    _, which = np.unique(clusters, return_inverse=True)
    total, size = np.bincount(which, gains), np.bincount(which)  # (clusters,) each
    random = np.random.default_rng((seed, 1))
    count = len(total)
    means = []
    chunk = max(1, _CHUNK // count)
    for start in range(0, _DRAWS, chunk):
        weights = random.multinomial(
            count, np.full(count, 1 / count), size=min(chunk, _DRAWS - start)
        )
        means.append((weights @ total) / (weights @ size))
    drawn = np.concatenate(means)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high), float(drawn.std())


def _worth(gains: NDArray[np.float64], clusters: NDArray[np.int64]) -> float:
    """Estimate the number of independent rows that n neighbouring ones are worth, at most n.

    n times the variance that the mean would have if rows were independent, over the variance that
    whole clusters give it. Too few clusters cannot tell; then only they themselves count.
    """
    _, which = np.unique(clusters, return_inverse=True)
    count = int(which.max()) + 1
    apart = gains - gains.mean()
    together = float((np.bincount(which, apart) ** 2).sum())
    if count < _LEAST_EFFECTIVE:
        return float(count)
    alone = float((apart**2).sum())
    return len(gains) * min(1.0, alone / together) if together > 0 else float(len(gains))


def _detectable(error: float, effective: float, threshold: float) -> float:
    """The least δ, at least the threshold, whose low end is above the mark 19 times in 20.

    The estimate must exceed the mark a by z standard errors, each max(error, √(2δ / effective)):
    with b = z √(2 / effective), δ = a + b √δ has the root √δ = (b + √(b² + 4a)) / 2.
    """
    mark, z = threshold / 4, _TWO_SIDED + _ONE_SIDED
    b = z * math.sqrt(2 / effective)
    root = (b + math.sqrt(b**2 + 4 * mark)) / 2
    return max(threshold, root**2, mark + z * error)


def _figures(value: float, low: float, high: float) -> str:
    """Three decimals, without a zero's minus."""
    three = [f"{round(number, 3) + 0.0:.3f}" for number in (value, low, high)]
    return f"{three[0]} nats [{three[1]}, {three[2]}]"


def _in_words(
    value: float, low: float, high: float, effective: float, detectable: float, threshold: float
) -> tuple[str, str]:
    nats = _figures(value, low, high)
    unnoticed = f"codes worth less than {detectable:.3f} nats may have gone unnoticed"
    says = f"which features are shown says {nats} about y beyond the values shown"
    if high < threshold:
        return NO_SIGN, f"{says}, less than the {threshold:g} that count as encoding; {unnoticed}."
    if low <= threshold / 4:
        return CANNOT_TELL, (
            f"{says}, which neither ends below {threshold:g} nor starts above {threshold / 4:g}, "
            f"with {effective:,.0f} effective rows; {unnoticed}, so test more rows."
        )
    if effective < _LEAST_EFFECTIVE:
        return CANNOT_TELL, (
            f"the estimate is {nats}, but a row's own mask and other rows' masks are so unlike "
            f"that the comparison rests on only {effective:.0f} effective rows."
        )
    return ENCODES, f"{says}."
