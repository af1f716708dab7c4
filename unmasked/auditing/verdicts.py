"""What was found, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unmasked.auditing.health import Health, may_judge
from unmasked.metrics import Interval

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
    """How much better could it be?"""
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
    """What a reader should know about masks of an unusual kind."""
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
    """What a reader should take away, in plain words."""
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
    """Which of two explanations informs more, where that is beyond doubt."""
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
