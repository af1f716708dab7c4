"""What the judges are asked about the rows of their fold, all in one piece of work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.auditing.cuts import Audited, first
from unmasked.auditing.greedy import greedy_orders, rows_within
from unmasked.auditing.judges import Judge
from unmasked.auditing.settings import AuditSettings
from unmasked.evaluation.evaluator import same_size_masks
from unmasked.metrics import log_likelihoods

_SEARCH = 2_000_000  # predictions that the search for the best masks may ask for
_SIZES = 11  # points of a curve


@dataclass(frozen=True)
class Questions:
    """What is asked about n rows of d features.

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
