"""What the tables call methods, metrics and evaluators, and how they explain them."""

from __future__ import annotations

STEP = "REAL-X-STEP"
REFERENCES = ("FULL", "random masks", "true features", "true features without x11", "optimum")
SHORT = {"true features without x11": "true, no x11"}
"""Shorter names, so that a line stays within 120 characters."""

SELECTION = {"cfsr": "CFSR", "tpr": "TPR", "fdr": "FDR", "fraction": "shown"}
SCORES = {"auroc": "AUROC", "acc": "ACC", "loglik": "log-lik."}
PREDICTION = ("auroc", "eauroc", "acc", "eacc", "loglik", "eloglik")
EVALUATORS = {
    "{}": "own",
    "e{}": "EVAL-X",
    "o{}": "exact",
    "c{}": "collection",
    "r{}": "ROAR",
    "p{}": "post-hoc",
}
"""How an evaluator's metric keys are made from "auroc", "acc" and "loglik"."""
VARIED = {"e{}_varied": "EVAL-X, second"}

PAPER = "paper: Jethani et al., AISTATS 2021; its rows are other draws of the same data sets."
LOG_LIKELIHOOD = "log-lik.: mean log-likelihood of a row's label, in nats; the paper prints none."
EXACT = (
    "exact: the true posterior P(y | what is shown), computed from the formulas that make the "
    "data. On average, no selection is better under it than the optimum."
)
COLLECTION = "collection: 2,048 models, one trained for each subset of the eleven features."


def _names() -> dict[str, str]:
    """Every metric key and how a header writes it, in the order of the tables."""
    names = dict(SELECTION)
    for form in [*EVALUATORS, *VARIED]:
        for score, name in SCORES.items():
            letter = form[: form.index("{")]
            space = " " if letter and score == "loglik" else ""
            second = ", second" if form in VARIED else ""
            names[form.format(score)] = f"{letter}{space}{name}{second}"
    return names


NAMES = _names()
