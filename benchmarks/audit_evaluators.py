"""Which evaluator should an audit use on tables: plain networks, boosted trees or `EvalX()`?

    python benchmarks/audit_evaluators.py

Prints seconds of training and mean log-likelihood (nats) on fresh rows under four kinds of masks:
everything, the informative features, random masks of every size, nothing. Nearer to 0 is nearer to
the true p(y | what is shown), whatever is shown.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier

from unmasked import MLP, EvalX, synthetic
from unmasked.metrics import log_likelihoods

random = np.random.default_rng(0)


def tables():
    """(name, rows to learn from, rows to judge, informative features of the latter)."""
    for name in ("S1", "S3"):
        for count in (1_000, 8_000):
            learn, judge = synthetic(name, count, seed=0), synthetic(name, 5_000, seed=1)
            yield f"{name}, {count:,}", (learn.x, learn.y), (judge.x, judge.y), judge.truth
    x, y = make_classification(
        13_000, 30, n_informative=10, n_redundant=8, n_clusters_per_class=3, flip_y=0.05,
        shuffle=False, random_state=0,
    )  # fmt: skip
    order = random.permutation(len(y))
    x, y = x[order], y[order]
    informative = np.zeros((5_000, 30), dtype=bool)
    informative[:, :6] = True
    yield "30 columns, 8,000", (x[:8_000], y[:8_000]), (x[8_000:], y[8_000:]), informative
    data = load_breast_cancer()
    order = random.permutation(len(data.target))
    x, y = data.data[order], data.target[order]
    five = np.zeros((114, 30), dtype=bool)
    five[:, [7, 20, 22, 23, 27]] = True
    yield "breast cancer, 455", (x[:455], y[:455]), (x[455:], y[455:]), five


print(f"{'table, rows':<20}{'evaluator':<12}{'seconds':>8}{'all':>9}{'informative':>13}"
      f"{'random':>9}{'nothing':>9}")  # fmt: skip
for name, learn, (x, y), informative in tables():
    spread = random.random(informative.shape) < random.random((len(informative), 1))
    target = np.eye(2)[np.asarray(y, dtype=int)]
    trees = HistGradientBoostingClassifier(max_iter=300, max_bins=64)
    for kind, evaluator in {
        "as it comes": EvalX(progress=False, random_state=0),
        "network": EvalX(MLP(), progress=False, random_state=0),
        "boosting": EvalX(estimator=trees, mask_copies=20, random_state=0),
    }.items():
        started = time.monotonic()
        evaluator.fit(*learn)
        seconds = time.monotonic() - started
        shown = (np.ones_like(informative), informative, spread, np.zeros_like(informative))
        all_, some, any_, none = (
            float(log_likelihoods(evaluator.predict_proba(x, masks), target).mean())
            for masks in shown
        )
        print(
            f"{name:<20}{kind:<12}{seconds:>8.1f}{all_:>9.3f}{some:>13.3f}{any_:>9.3f}{none:>9.3f}",
            flush=True,
        )
