"""Ask the evaluators of a fold everything at once, the greedy search for good masks included.

For each row the greedy search starts with nothing shown and adds the feature that most raises

    Σ_c p(c | x) log p(c | x_shown),

the log-likelihood that the evaluator expects given the *whole* row. The label takes no part, so
the masks found cannot give it away beyond what the row itself says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.auditing.evaluators import Judge
from unmasked.auditing.matching import Audited, first
from unmasked.auditing.settings import AuditSettings
from unmasked.evaluation.evaluator import same_size_masks
from unmasked.metrics import log_likelihoods

Predict = Callable[[NDArray[np.bool_], NDArray[np.int64]], NDArray[np.float64]]
"""(masks (asked, features), row of each (asked,)) -> probabilities (asked, classes)."""

_LEAST = 1e-12
_AT_ONCE = 65_536  # masks asked for at once


def greedy_orders(
    predict: Predict, rows: NDArray[np.int64], features: int, most: int
) -> NDArray[np.int64]:
    """Each row's features in the order in which the search shows them, (rows, most).

    The first k of a row are its mask of size k. Ties go to the earlier feature.
    """
    count = len(rows)
    whole = predict(np.ones((count, features), dtype=bool), rows)  # (rows, classes)
    masks = np.zeros((count, features), dtype=bool)
    order = np.zeros((count, most), dtype=np.int64)
    for step in range(most):
        left = features - step
        hidden = np.nonzero(~masks)[1].reshape(count, left)  # (rows, left)
        chunk = max(1, _AT_ONCE // left)
        for start in range(0, count, chunk):
            part = np.arange(start, min(start + chunk, count))
            tried = np.repeat(masks[part], left, axis=0)  # (part · left, features)
            tried[np.arange(len(tried)), hidden[part].ravel()] = True
            found = predict(tried, np.repeat(rows[part], left))
            logs = np.log(np.maximum(found, _LEAST)).reshape(len(part), left, -1)
            expected = (whole[part][:, None, :] * logs).sum(-1)  # (part, left)
            order[part, step] = hidden[part, expected.argmax(1)]
        masks[np.arange(count), order[:, step]] = True
    return order


def predictions(rows: int, features: int, most: int) -> int:
    """Count the predictions that the search asks for: Σ (features − step) for each row."""
    return rows * (most * features - most * (most - 1) // 2)


def rows_within(budget: int, asked: int, features: int, most: int) -> int:
    """As many rows as asked, or as ``budget`` predictions allow (at least 20)."""
    each = max(1, predictions(1, features, most))
    return min(asked, max(20, budget // each))


_SEARCH = 2_000_000  # predictions that the search for the best masks may ask for
_SIZES = 11  # points of a curve


@dataclass(frozen=True)
class Questions:
    """Masks, orders and samples that evaluators are asked about, for n rows of d features.

    Attributes
    ----------
    masks : name -> (n, d): "shown/i" of explanation i, "random/i/j" its random masks of the same
        sizes, "everything", "nothing", and "spread", one random mask of any size for each row.
    orders : name of a source with an order -> (n, d). sizes : where its curves are drawn.
    curve, sample : (n,) bool, rows that curves are drawn from and rows to search best masks for.
    most : the largest size to search for.
    """

    masks: dict[str, NDArray[np.bool_]]
    orders: dict[str, NDArray[np.int64]]
    sizes: tuple[int, ...]
    by_size: NDArray[np.int64]
    curve: NDArray[np.bool_]
    sample: NDArray[np.bool_]
    most: int
    explanations: int

    @classmethod
    def of(cls, audited: Sequence[Audited], settings: AuditSettings, seed: int) -> Questions:
        """Everything that is drawn at random is drawn here, before any fold."""
        rows, features = audited[0].masks.shape
        random = np.random.default_rng((seed, 11))
        masks = {
            "everything": np.ones((rows, features), dtype=bool),
            "nothing": np.zeros((rows, features), dtype=bool),
            "spread": random.random((rows, features)) < random.random((rows, 1)),
        }
        most = 1
        for i, one in enumerate(audited):
            masks[f"shown/{i}"] = one.masks
            most = max(most, int(one.masks.sum(1).max()))
            for j in range(settings.random_draws):
                masks[f"random/{i}/{j}"] = same_size_masks(one.masks, random)
        orders = {one.source: one.order for one in audited if one.order is not None}
        points = np.linspace(0, features, min(features + 1, _SIZES))
        return cls(
            masks,
            orders,
            tuple(int(size) for size in np.unique(points.round())),
            random.random((rows, features)).argsort(1),
            _some(rows, settings.curve_rows, random),
            _some(rows, rows_within(_SEARCH, settings.sample, features, most), random),
            most,
            len(audited),
        )


def ask(
    judge: Judge, questions: Questions, rows: NDArray[np.int64], target: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """All answers about the rows (positions among all) of one fold; target : (rows, classes).

    "p/NAME" : (seeds, rows, classes) for each of the masks; "order" : (sampled, most) the search's
    features, "best/i" : (sampled, classes) what its masks of explanation i's sizes predict;
    "insertion/SOURCE", "deletion/SOURCE", "by size" : (sizes, curve rows) log-likelihoods.
    """
    answers: dict[str, NDArray[Any]] = {}
    for name, masks in questions.masks.items():
        answers[f"p/{name}"] = judge.predict(masks[rows]).astype(np.float32)
    features = questions.masks["everything"].shape[1]
    sampled = np.flatnonzero(questions.sample[rows])
    order = greedy_orders(judge.mean, sampled, features, questions.most)
    answers["order"] = order
    for i in range(questions.explanations):
        sizes = questions.masks[f"shown/{i}"][rows[sampled]].sum(1)
        answers[f"best/{i}"] = judge.mean(first(order, sizes, features), sampled)
    drawn = np.flatnonzero(questions.curve[rows])
    where, truth = rows[drawn], target[drawn]

    def curve(order: NDArray[np.int64], *, hide: bool) -> NDArray[np.float64]:
        found = []
        for size in questions.sizes:
            shown = first(order[where], size, features)
            found.append(log_likelihoods(judge.mean(~shown if hide else shown, drawn), truth))
        return np.array(found).reshape(len(questions.sizes), len(drawn))

    for source, own in questions.orders.items():
        answers[f"insertion/{source}"] = curve(own, hide=False)
        answers[f"deletion/{source}"] = curve(own, hide=True)
    answers["by size"] = curve(questions.by_size, hide=False)
    return answers


@dataclass(frozen=True)
class Answers:
    """The answers of all folds, rows in the table's order.

    p : name -> (seeds, n, classes). prior : (n, classes) class shares of the rows learned from.
    best : for each explanation (sampled, classes), sampled : (sampled,) rows, in order.
    curves : name -> (sizes, drawn), drawn : (drawn,) rows, in order.
    """

    p: dict[str, NDArray[Any]]
    prior: NDArray[np.float64]
    best: list[NDArray[Any]]
    order: NDArray[np.int64]
    sampled: NDArray[np.int64]
    curves: dict[str, NDArray[Any]]
    drawn: NDArray[np.int64]
    sizes: tuple[int, int]


def gather(
    parts: Sequence[tuple[NDArray[np.int64], dict[str, NDArray[Any]]]],
    questions: Questions,
    prior: NDArray[np.float64],
    sizes: tuple[int, int],
) -> Answers:
    """Put the folds' answers together; each part is (its rows, its answers)."""
    rows = np.concatenate([own for own, _ in parts])

    def joined(name: str, axis: int, keep: NDArray[np.bool_] | None) -> NDArray[Any]:
        where = rows if keep is None else rows[keep[rows]]
        found = np.concatenate([answers[name] for _, answers in parts], axis=axis)
        return np.take(found, np.argsort(where, kind="stable"), axis=axis)

    curves = [n for n in parts[0][1] if n.startswith(("insertion/", "deletion/", "by size"))]
    return Answers(
        {name: joined(f"p/{name}", 1, None) for name in questions.masks},
        prior,
        [joined(f"best/{i}", 0, questions.sample) for i in range(questions.explanations)],
        joined("order", 0, questions.sample),
        np.flatnonzero(questions.sample),
        {name: joined(name, 1, questions.curve) for name in curves},
        np.flatnonzero(questions.curve),
        sizes,
    )


def _some(rows: int, most: int, random: np.random.Generator) -> NDArray[np.bool_]:
    chosen = np.zeros(rows, dtype=bool)
    chosen[random.permutation(rows)[:most]] = True
    return chosen
