"""The encoding test as the audit calls it: one function to change where the test changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unmasked.auditing.settings import AuditSettings
from unmasked.auditing.store import Store

if TYPE_CHECKING:
    from unmasked.evaluation.encoding import Encoding


def encoding_of(
    X: Any,
    label: NDArray[np.int64],
    masks: NDArray[np.bool_],
    groups: NDArray[np.int64] | None,
    times: NDArray[np.int64] | None,
    settings: AuditSettings,
    seed: int,
) -> Encoding:
    """How much the choice of features says about the label beyond the values shown."""
    from unmasked.evaluation.encoding import encoding_test

    return encoding_test(
        X,
        label,
        masks,
        groups=groups,
        times=times,
        folds=settings.encoding_folds,
        threshold=settings.threshold,
        random_state=seed,
    )


def of_prediction(found: Encoding) -> Encoding:
    """The same answer in the words that are right where y was the model's likeliest class."""
    return replace(found, reason=found.reason.replace("about y", "about the model's prediction"))


def enough_predicted(
    predicted: NDArray[np.int64], settings: AuditSettings
) -> NDArray[np.int64] | None:
    """Rows whose predicted class is that of a row in every fold; None where that is one class.

    A class that a model hardly ever predicts cannot be cross-fitted. Leaving out its rows makes no
    honest choice look like a code: what is independent of the prediction given the values shown is
    so among some of the predictions too.
    """
    often = np.bincount(predicted) >= settings.encoding_folds
    return np.flatnonzero(often[predicted]) if often.sum() >= 2 else None


def kept_encoding(store: Store, name: str, make: Callable[[], Encoding]) -> Encoding:
    """The same, read back where an earlier run had finished it."""
    from unmasked.evaluation.encoding import Encoding

    def plain() -> dict[str, Any]:
        made = make()
        values = {field.name: getattr(made, field.name) for field in fields(made)}
        return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in values.items()}

    found = store.values(name, plain)
    return Encoding(**{**found, "gains": np.asarray(found["gains"])})
