"""How long does the default explainer take on small tables, and what does it lose?

    python benchmarks/small_tables.py

Prints, for scikit-learn's breast-cancer and wine tables and three splits each: training seconds,
fraction shown, and accuracy under EVAL-X of what is shown, of everything, of random masks.
"""

from __future__ import annotations

import time

from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.model_selection import train_test_split

from unmasked import EvalX, RealX

print(f"{'table':<14}{'seed':>5}{'seconds':>9}{'shown':>8}{'eACC':>8}{'all':>8}{'random':>8}")
for load in (load_breast_cancer, load_wine):
    for seed in range(3):
        X, y = load(return_X_y=True, as_frame=True)
        X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=seed, stratify=y)
        started = time.monotonic()
        explainer = RealX(random_state=seed, progress=False).fit(X_train, y_train)
        seconds = time.monotonic() - started
        evaluator = EvalX(random_state=seed, progress=False).fit(X_train, y_train)
        scores = evaluator.evaluate(explainer.explain(X_test), X_test, y_test)
        accuracy = {name: row["eacc"].value for name, row in scores.rows.items()}
        print(
            f"{load.__name__.removeprefix('load_'):<14}{seed:>5}{seconds:>9.1f}"
            f"{scores.fraction:>8.3f}{accuracy['explanation']:>8.3f}"
            f"{accuracy['everything']:>8.3f}{accuracy['random']:>8.3f}",
            flush=True,
        )
