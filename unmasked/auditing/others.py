"""What other measures say of the same masks, and what each of them cannot see."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from unmasked.auditing.judges import Fold, quiet, take
from unmasked.columns import Columns
from unmasked.errors import InputError
from unmasked.evaluation import PostHoc
from unmasked.evaluation.copies import hide

ROAR_BLIND = (
    "ROAR retrains a model on the explanation's own masks, so it learns whatever the choice of "
    "features gives away: it cannot see encoding, and a code scores as well as an honest choice."
)
POSTHOC_BLIND = (
    "Post-hoc accuracy feeds masked rows to a model that never saw any, so it mixes what is shown "
    "with how the model extrapolates."
)
NO_MODEL = "There are no post-hoc figures: they need the explained model, and none was given."


def matrix_of(X: Any) -> tuple[NDArray[np.float32], tuple[int, ...]]:
    """A table (a DataFrame) as numbers (rows, columns) and the feature of each column."""
    with quiet():
        columns = Columns.learn(X)
        return columns.matrix(X), columns.index


def roar(
    matrix: NDArray[np.float32],
    index: tuple[int, ...],
    label: NDArray[np.int64],
    classes: int,
    masks: NDArray[np.bool_],
    folds: list[Fold],
    seed: int,
) -> NDArray[np.float64]:
    """Boosting retrained on the masks of the other folds, (rows, classes) for all rows."""
    result = np.zeros((len(label), classes))
    for fold in folds:
        rows = np.concatenate([fold.learn, fold.stop])
        learned = hide(matrix[rows], masks[rows], index)
        used = ~np.isnan(learned).all(0)
        if not used.any():  # nothing is shown: the class shares are all there is
            result[fold.judge] = np.bincount(label[rows], minlength=classes) / len(rows)
            continue
        model = HistGradientBoostingClassifier(
            max_iter=60, max_bins=64, early_stopping=False, random_state=seed
        )
        model.fit(learned[:, used], label[rows])
        asked = hide(matrix[fold.judge], masks[fold.judge], index)[:, used]
        known = np.asarray(model.classes_, dtype=np.int64)
        result[np.ix_(fold.judge, known)] = model.predict_proba(asked)
    return result


class Model:
    """The explained model, asked about masked rows; hidden values are means or modes."""

    def __init__(self, model: Any, X: Any, classes: NDArray[Any]) -> None:
        with quiet():
            self._posthoc = PostHoc(model=model, progress=False).fit(X)
        own = [str(label) for label in self._posthoc.classes_.tolist()]
        ours = [str(label) for label in classes.tolist()]
        if not hasattr(model, "classes_") and len(own) == len(ours):
            own = ours  # it does not name its classes: they are ours, in order
        unknown = [label for label in ours if label not in own]
        if unknown:
            raise InputError(
                f"the model knows the classes {', '.join(own[:10])} but y holds {unknown[0]!r}; "
                "give the model that was explained."
            )
        self._places = [own.index(label) for label in ours]

    def predict(self, X: Any, masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(rows, classes) in the order of our classes."""
        parts = []
        for start in range(0, len(masks), 8192):
            rows = np.arange(start, min(start + 8192, len(masks)))
            with quiet():
                parts.append(self._posthoc.predict_proba(take(X, rows), masks[rows]))
        found: NDArray[np.float64] = np.concatenate(parts)[:, self._places]
        return found
