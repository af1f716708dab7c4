"""Say in words what was found, and whether the evaluator is good enough to judge.

Calibration and the figures by size are measured with *random* masks. On the masks of an
explanation that encodes, even the true p(y | x_v) looks miscalibrated, as the choice adds what the
values do not say: that would be the explanation's doing, not the evaluator's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.auditing.figures import Resampler
from unmasked.auditing.queries import Answers
from unmasked.metrics import Interval, hits, log_likelihoods, mean_statistic

GOOD, CARE, BAD = "good", "use with care", "not good enough to judge"
_SIMULATED = 400  # tables of a calibrated evaluator that give the band
_MOST_BINS, _LEAST_IN_BIN = 15, 40
_CARE_ECE, _BAD_ECE = 0.03, 0.1  # nobody minds less; nobody should believe more
_TOLERABLE = 0.005  # nats that seeds may differ by, whatever is judged
_OUTSIDE = 0.5  # share of masks outside the trained sizes from which nothing is judged


@dataclass(frozen=True)
class Health:
    """Verdict on the evaluator, and the measurements that it rests on.

    Attributes
    ----------
    verdict : "good", "use with care" or "not good enough to judge"; reasons : why.
    gain : log-likelihood with everything shown minus that of the class shares, nats.
    ece : expected calibration error of the likeliest class under random masks of all sizes;
    band : where 95% of a calibrated evaluator's would lie on as many rows.
    reliability : (mean confidence, share correct, rows) of each bin.
    by_size : {"size", "eloglik", "over_prior"} for random masks of each size.
    trained_sizes : smallest and largest mask that training shows often enough.
    outside : for each explanation the share of its masks outside these.
    spread : for each explanation, how far the seeds' own answers to "how much more than random
    masks, in nats?" lie apart. distance : mean total variation between seeds' predictions.
    """

    verdict: str
    reasons: list[str]
    gain: Interval
    ece: float
    band: tuple[float, float]
    reliability: list[tuple[float, float, int]]
    by_size: list[dict[str, Any]]
    trained_sizes: tuple[int, int]
    outside: list[float]
    spread: list[float]
    distance: float

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "verdict": self.verdict,
            "reasons": self.reasons,
            "everything_over_prior": self.gain.to_json(),
            "ece": self.ece,
            "ece_band": list(self.band),
            "reliability": [
                {"confidence": c, "correct": s, "rows": n} for c, s, n in self.reliability
            ],
            "by_size": [
                {k: v.to_json() if isinstance(v, Interval) else v for k, v in point.items()}
                for point in self.by_size
            ],
            "trained_sizes": list(self.trained_sizes),
            "outside": self.outside,
            "seed_spread": self.spread,
            "seed_distance": self.distance,
        }


def examine(
    answers: Answers,
    label: NDArray[np.int64],
    masks: Sequence[NDArray[np.bool_]],
    sizes: Sequence[int],
    resample: Resampler,
    random_draws: int,
    seed: int,
) -> Health:
    """Look at the evaluator before believing it."""
    classes = answers.prior.shape[1]
    target = np.eye(classes)[label]
    rows = np.arange(len(label))
    trivial = log_likelihoods(answers.prior, target)
    whole = log_likelihoods(answers.p["everything"].mean(0), target)
    gain = resample({"gain": mean_statistic(whole - trivial)}, rows)["gain"]
    spread_p = answers.p["spread"].mean(0)
    ece, reliability = calibration(spread_p.max(1), hits(spread_p, label))
    band = calibration_band(spread_p.max(1), seed)
    by_size = _by_size(answers, trivial, sizes, resample)
    low, high = answers.sizes
    outside = [float(((m.sum(1) < low) | (m.sum(1) > high)).mean()) for m in masks]
    spread = [_spread(answers, target, i, random_draws) for i in range(len(masks))]
    shown = answers.p["spread"]
    pairs = [(a, b) for a in range(len(shown)) for b in range(a)]
    distance = float(np.mean([np.abs(shown[a] - shown[b]).sum(1).mean() / 2 for a, b in pairs]))
    verdict, reasons = _words(gain, ece, band, by_size, outside)
    return Health(
        verdict, reasons, gain, ece, band, reliability, by_size, answers.sizes, outside, spread,
        distance,
    )  # fmt: skip


def calibration(
    confidence: NDArray[Any], correct: NDArray[Any]
) -> tuple[float, list[tuple[float, float, int]]]:
    """Expected calibration error, and (mean confidence, share correct, rows) of bins.

    The bins hold equally many rows, sorted by confidence. ECE = Σ (n_b / n) |share − confidence|.

    >>> error, bins = calibration(np.full(100, 0.9), np.repeat([1.0, 0.0], [80, 20]))
    >>> round(error, 3), len(bins)
    (0.1, 2)
    """
    order, starts, sizes = _bins(confidence)
    sure = np.add.reduceat(confidence[order], starts) / sizes
    share = np.add.reduceat(correct[order], starts) / sizes
    error = float((sizes * np.abs(share - sure)).sum() / len(order))
    bins = [(float(a), float(b), int(n)) for a, b, n in zip(sure, share, sizes, strict=True)]
    return error, bins


def calibration_band(confidence: NDArray[Any], seed: int) -> tuple[float, float]:
    """Simulate the error of a calibrated evaluator with this confidence; return its 95% band."""
    random = np.random.default_rng((seed, 13))
    order, starts, _ = _bins(confidence)
    sorted_ = confidence[order]
    sure = np.add.reduceat(sorted_, starts)
    drawn = [
        np.abs(
            np.add.reduceat(random.random(len(order)) < sorted_, starts, dtype=np.int64) - sure
        ).sum()
        for _ in range(_SIMULATED)
    ]
    low, high = np.percentile(drawn, [2.5, 97.5]) / len(order)
    return float(low), float(high)


def _bins(
    confidence: NDArray[Any],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rows sorted by confidence, where each bin starts among them, and how many it holds.

    Rows of equal confidence are put in bins by a fixed shuffle, not by how they came.
    """
    shuffle = np.random.default_rng(0).permutation(len(confidence))
    order = shuffle[np.argsort(confidence[shuffle], kind="stable")]
    count = max(1, min(_MOST_BINS, len(confidence) // _LEAST_IN_BIN))
    edges = np.linspace(0, len(order), count + 1).astype(np.int64)
    return order, edges[:-1], np.diff(edges)


def _by_size(
    answers: Answers, trivial: NDArray[np.float64], sizes: Sequence[int], resample: Resampler
) -> list[dict[str, Any]]:
    found = []
    for size, values in zip(sizes, answers.curves["by size"], strict=True):
        figures = resample(
            {
                "eloglik": mean_statistic(values),
                "over_prior": mean_statistic(values - trivial[answers.drawn]),
            },
            answers.drawn,
        )
        found.append({"size": int(size), **figures})
    return found


def _spread(answers: Answers, target: NDArray[Any], i: int, random_draws: int) -> float:
    """Largest difference between seeds in "how much more than random masks, in nats?"."""
    gains = []
    for seed in range(len(answers.p["nothing"])):
        own = log_likelihoods(answers.p[f"shown/{i}"][seed], target).mean()
        random = np.mean(
            [
                log_likelihoods(answers.p[f"random/{i}/{j}"][seed], target).mean()
                for j in range(random_draws)
            ]
        )
        gains.append(own - random)
    return float(np.max(gains) - np.min(gains))


def worthless(gain: Interval) -> list[str]:
    """Why an evaluator can judge nothing: a clause, or none where it is not so.

    gain : log-likelihood with everything shown minus that of the class shares.
    """
    if gain.low > 0:
        return []
    return [
        f"with everything shown it is not surely better than the class shares ({gain} nats a "
        "row), so it has nothing to tell good masks from bad ones with"
    ]


def _words(
    gain: Interval,
    ece: float,
    band: tuple[float, float],
    by_size: list[dict[str, Any]],
    outside: list[float],
) -> tuple[str, list[str]]:
    bad, care = worthless(gain), []
    if ece > max(band[1], _BAD_ECE):
        bad.append(
            f"it is badly calibrated (error {ece:.3f}; a calibrated one would have at most "
            f"{band[1]:.3f})"
        )
    elif ece > max(band[1], _CARE_ECE):
        care.append(
            f"its calibration error is {ece:.3f} where a calibrated one would have at most "
            f"{band[1]:.3f}"
        )
    worse = [p["size"] for p in by_size if p["over_prior"].high < -_TOLERABLE]
    if worse:
        told = ", ".join(map(str, worse))
        care.append(f"with {told} random features shown it does worse than the class shares")
    if any(0 < share <= _OUTSIDE for share in outside):
        care.append("some audited masks have sizes that its training rarely showed")
    if bad:
        return BAD, bad + care
    if care:
        return CARE, care
    return GOOD, [
        f"everything shown beats the class shares by {gain} nats a row, and its calibration error "
        f"of {ece:.3f} is "
        + (
            f"what a calibrated evaluator would have (up to {band[1]:.3f})"
            if ece <= band[1]
            else "small"
        )
    ]


def may_judge(health: Health, i: int, gain: float) -> str | None:
    """None where explanation i may be judged; else why not. gain : nats over random masks."""
    if health.verdict == BAD:
        return f"the evaluator is not good enough: {'; '.join(health.reasons)}."
    if health.outside[i] > _OUTSIDE:
        low, high = health.trained_sizes
        return (
            f"{health.outside[i]:.0%} of its masks have sizes outside the {low} to {high} features "
            "that the evaluator was trained on; use the evaluator of every size."
        )
    if health.spread[i] > max(_TOLERABLE, abs(gain)):
        return (
            f"evaluators that differ in their seed alone disagree by {health.spread[i]:.3f} nats "
            f"about a difference of {gain:.3f}; give more rows."
        )
    return None


INFORMS, RANDOM, WORSE = "informs", "no better than random", "worse than random"
NOT_JUDGED, ALL, NONE = "not judged", "shows everything", "shows nothing"


def fidelity(
    metrics: dict[str, Interval],
    references: dict[str, Interval],
    health: Health,
    i: int,
    masks: NDArray[np.bool_],
    encodes: bool,
) -> tuple[str, str]:
    """Does what is shown inform? A word and a sentence, by log-likelihood, paired over rows.

    Where an explanation encodes, its features were picked knowing the answer: then even values
    that mean little on their own can look right more often than they should.
    """
    if masks.all():
        return ALL, "It shows everything in every row, so it leaves nothing out and ranks nothing."
    if not masks.any():
        return NONE, "It shows nothing in any row, so there is nothing to predict from."
    gain = metrics["over_random_eloglik"]
    why_not = may_judge(health, i, gain.value)
    if why_not is not None:
        return NOT_JUDGED, f"How well it informs is not judged: {why_not}"
    sizes = masks.sum(1)
    shown = (
        f"From the {_mean(sizes)} of {masks.shape[1]} features it shows, EVAL-X reaches accuracy "
        f"{metrics['eacc'].value:.3f} and log-likelihood {metrics['eloglik'].value:.3f}; with "
        f"random features of the same number {metrics['random_eacc'].value:.3f} and "
        f"{metrics['random_eloglik'].value:.3f}, with everything "
        f"{references['everything_eacc'].value:.3f} and "
        f"{references['everything_eloglik'].value:.3f}."
    )
    if encodes:
        shown += " As it encodes, these figures may flatter it: features were picked by the answer."
    difference = f"{abs(gain.value):.3f} nats a row [{gain.low:.3f}, {gain.high:.3f}]"
    if gain.low > 0:
        return INFORMS, f"What it shows informs: {difference} more than random masks. {shown}"
    if gain.high < 0:
        return WORSE, f"What it shows informs less than random masks, by {difference}. {shown}"
    return RANDOM, (
        f"What it shows could not be told from random masks of the same sizes (difference "
        f"{gain.value:.3f} nats a row [{gain.low:.3f}, {gain.high:.3f}]). {shown}"
    )


def room(metrics: dict[str, Interval], sampled: int) -> str:
    """Say if the search's masks of the same sizes surely inform more, and by how much."""
    below = metrics["below_best_eloglik"]
    if below.low <= 0:
        return (
            f"On {sampled:,} sampled rows the evaluator's own search finds no masks of the same "
            f"sizes that are surely better (difference {below} nats)."
        )
    return (
        f"On {sampled:,} sampled rows the evaluator's own search finds masks of the same sizes "
        f"that say {below} nats a row more."
    )


def remarks(masks: NDArray[np.bool_]) -> list[str]:
    """Remark on masks of an unusual kind: alike in every row, empty, or showing everything."""
    if masks.all():
        return ["every row shows all features: nothing is left out, so nothing was explained."]
    if not masks.any():
        return ["no row shows any feature."]
    found = []
    if (masks == masks[0]).all():
        found.append(
            f"every row shows the same {int(masks[0].sum())} features: this is one choice for all "
            "rows, not an explanation of each."
        )
    never = int((~masks.any(1)).sum())
    if never:
        found.append(f"{never:,} of {len(masks):,} rows show nothing.")
    whole = int(masks.all(1).sum())
    if whole:
        found.append(f"{whole:,} of {len(masks):,} rows show everything.")
    return found


def headline(name: str, verdict: str, word: str, of_prediction: bool = False) -> str:
    """One explanation in a line; ``of_prediction``: it gives away what the model predicts."""
    away = "the model's prediction" if of_prediction else "the answer"
    encoding = {
        "encodes": f"encodes: its choice of features gives {away} away",
        "no sign of encoding": "no sign of encoding",
        "cannot tell": "cannot tell whether it encodes",
    }.get(verdict, verdict)
    return f"{name}: {encoding}" + ("." if verdict == "encodes" else f"; {_INFORM[word]}.")


def answer(verdict: str, word: str, of_prediction: bool = False) -> str:
    """Say in plain words what to make of an explanation with this verdict and fidelity."""
    if verdict == "encodes":
        away, told = ("the model's prediction", "it") if of_prediction else (
            "the answer", "the outcome"
        )  # fmt: skip
        return (
            f"It gives {away} away: which features it shows tells {told} beyond what their "
            "values say, so do not take it as what the prediction rests on."
        )
    if verdict != "no sign of encoding":
        return f"These rows cannot settle whether it gives the answer away; {_INFORM[word]}."
    if word == INFORMS:
        return "It informs by the values it shows; its choice was not seen to give the answer away."
    return f"Its choice was not seen to give the answer away, but {_INFORM[word]}."


_INFORM = {
    INFORMS: "what it shows informs",
    RANDOM: "what it shows is no better than random features",
    WORSE: "what it shows informs less than random features",
    NOT_JUDGED: "how well it informs is not judged",
    ALL: "it shows everything",
    NONE: "it shows nothing",
}


def ranking(
    names: Sequence[str], compared: dict[tuple[int, int], Interval], judged: Sequence[bool]
) -> list[str]:
    """Say which of each pair of judged explanations informs more, or that neither surely does."""
    told = []
    for (a, b), difference in compared.items():
        if not (judged[a] and judged[b]):
            continue
        if difference.low > 0 or difference.high < 0:
            more, less = (a, b) if difference.low > 0 else (b, a)
            told.append(
                f"{names[more]} informs more than {names[less]}, by {abs(difference.value):.3f} "
                "nats a row."
            )
        else:
            told.append(f"{names[a]} and {names[b]} cannot be told apart in how well they inform.")
    return told


def _mean(sizes: NDArray[np.int64]) -> str:
    return f"{sizes[0]}" if (sizes == sizes[0]).all() else f"{sizes.mean():.1f}"
