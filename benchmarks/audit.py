"""How long does an audit take, and how much memory?

    python benchmarks/audit.py                          # 4 explanations, 10,000 rows × 30 features
    python benchmarks/audit.py --rows 1000000           # rows beyond 50,000 are sampled
    python benchmarks/audit.py --learner boosting

Prints each explanation's verdict, the seconds, the processor's seconds (what counts where other
programs run beside) and the largest memory of the process. The table
has 10 columns that tell the class, 8 that repeat them and 12 of noise. The explanations: the
informative columns of each row (random halves of them), one noise column by class (a planted
code), a linear model's attributions cut at 6, and random masks.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from unmasked import AuditSettings, audit

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=10_000)
parser.add_argument("--learner", default="network")
options = parser.parse_args()

FEATURES, LEARN = 30, 2_000  # the linear model learns from rows that are not audited
x, y = make_classification(
    options.rows + LEARN,
    FEATURES,
    n_informative=10,
    n_redundant=8,
    n_clusters_per_class=3,
    flip_y=0.05,
    shuffle=False,
    random_state=0,
)
order = np.random.default_rng(0).permutation(len(y))
x, y = x[order].astype(np.float32), y[order]
model = LogisticRegression(max_iter=1000).fit(x[:LEARN], y[:LEARN])
x, y = x[LEARN:], y[LEARN:]
random = np.random.default_rng(1)
informative = np.zeros(x.shape, dtype=bool)
informative[:, :10] = random.random((len(y), 10)) < 0.5
explanations = {
    "informative": informative,
    "code": np.eye(FEATURES, dtype=bool)[20 + y],
    "linear": x * model.coef_[0].astype(np.float32),
    "random": random.random(x.shape) < 0.2,
}
started, worked = time.monotonic(), time.process_time()
found = audit(explanations, x, y, top=6, settings=AuditSettings(learner=options.learner))
seconds, busy = time.monotonic() - started, time.process_time() - worked
for line in found.summary:
    print(line)
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(
    f"{options.rows:,} rows × {FEATURES}, {options.learner}: {seconds:.0f} s ({busy:.0f} s of "
    f"processor time), {memory:.2f} GB"
)
