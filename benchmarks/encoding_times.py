"""Rows that depend on their neighbours in time: what does ``encoding_test(times=…)`` change?

    python benchmarks/encoding_times.py [--rows N] [--trials N]

Six columns wander slowly (each row keeps 95% of the one before), and so does a cause of y that
nobody sees. Masks are honest in three ways and a code in one:

- runs: twenty neighbouring rows share one random mask;
- drift: the label's share rises, and later rows show another meaningless column;
- paths: x1, then x2 or x3 by the sign of x1, a function of what is shown;
- code: one of two meaningless columns by y, wrong in a quarter of the rows (0.13 nats at most).

Prints a row of a table for each, with verdicts without and with the times.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked import encoding_test

KEPT = 0.95
RUN = 20
KINDS = ("runs", "drift", "paths", "code")
VERDICTS = ("encodes", "cannot tell", "no sign of encoding")


def wander(rows: int, columns: int, random: np.random.Generator) -> NDArray[np.float64]:
    """(rows, columns), each a stationary series of variance 1."""
    steps = random.standard_normal((rows, columns))
    values = np.empty_like(steps)
    values[0] = steps[0]
    for t in range(1, rows):
        values[t] = KEPT * values[t - 1] + np.sqrt(1 - KEPT**2) * steps[t]
    return values


def trial(kind: str, rows: int, seed: int) -> tuple[Any, Any, Any, NDArray[np.int64]]:
    """x (rows, 6), y (rows,), masks (rows, 6) and times (rows,)."""
    random = np.random.default_rng(seed)
    times = np.arange(rows)
    x, hidden = wander(rows, 6, random), wander(rows, 1, random)[:, 0]
    trend = 3 * (times / rows - 0.5) if kind == "drift" else 1.5 * hidden
    y = (random.random(rows) < 1 / (1 + np.exp(-x[:, 0] - x[:, 1] - trend))).astype(int)
    masks = np.zeros((rows, 6), dtype=bool)
    if kind == "runs":
        masks = np.repeat(random.random((rows // RUN + 1, 6)) < 0.5, RUN, axis=0)[:rows]
    elif kind == "drift":
        masks[:, :2] = True
        late = times / rows + 0.1 * random.standard_normal(rows) > 0.5
        masks[times, 2 + late] = True
    elif kind == "paths":
        masks[:, 0] = True
        masks[times, np.where(x[:, 0] > 0, 1, 2)] = True
    else:
        masks[times, 4 + (y ^ (random.random(rows) < 0.25))] = True
    return x, y, masks, times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--trials", type=int, default=10)
    options = parser.parse_args()
    print(f"| {options.rows:,} rows | | {' | '.join(VERDICTS)} | mean nats |")
    print("|---" * 6 + "|")
    for kind in KINDS:
        for timed in (False, True):
            found = []
            for seed in range(options.trials):
                x, y, masks, times = trial(kind, options.rows, seed)
                given = times if timed else None
                found.append(encoding_test(x, y, masks, times=given, random_state=seed))
            counts = [sum(one.verdict == word for one in found) for word in VERDICTS]
            nats = np.mean([one.nats for one in found])
            how = "with times" if timed else "without"
            print(f"| {kind} | {how} | {' | '.join(map(str, counts))} | {nats:.3f} |", flush=True)


if __name__ == "__main__":
    main()
