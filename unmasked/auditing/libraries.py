"""What SHAP, LIME and Captum return.

Nothing of those libraries is imported. What they return is known by its looks: a
``shap.Explanation`` has values and feature_names, LIME's has as_map(), Captum's is a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from unmasked.auditing.given import Given, numbers
from unmasked.errors import InputError

_LIME_OUTPUT = 1  # LIME calls a regression's one output 1, and its negative 0


def is_shap(thing: Any) -> bool:
    """A ``shap.Explanation``, or what looks like one."""
    values = getattr(thing, "values", None)
    return (
        values is not None
        and not callable(values)
        and hasattr(thing, "feature_names")
        and not isinstance(thing, pd.DataFrame | pd.Series)
    )


def from_shap(name: str, thing: Any) -> Given:
    """Its values, (rows, features) or (rows, features, outputs), with the names that it carries.

    SHAP names outputs "Output 0", "Output 1", … where it knows no better; those are no names.
    """
    values = numbers(name, thing.values)
    features = _names(getattr(thing, "feature_names", None), values.shape[1])
    outputs = None
    if values.ndim == 3:
        outputs = _names(getattr(thing, "output_names", None), values.shape[2])
        if outputs == [f"Output {i}" for i in range(values.shape[2])]:
            outputs = None
    return Given(name, values, features, classes=outputs)


def _names(names: Any, count: int) -> list[str] | None:
    if names is None or isinstance(names, str) or len(names) != count:
        return None
    return [str(one) for one in names]


def is_lime(thing: Any) -> bool:
    """LIME's explanation of one row."""
    return callable(getattr(thing, "as_map", None))


def from_lime(name: str, rows: Sequence[Any], width: int) -> Given:
    """LIME's weights, (rows, features), 0 for features that it left out.

    Where rows were explained for several classes there is a third axis, with NaN where a row has
    no weights for a class. Where each was explained for one class alone (its likeliest, with
    top_labels=1) there is none. A regression has one output.
    """
    maps = [_weights(row) for row in rows]
    labels = sorted({label for found in maps for label in found})
    single = all(len(found) == 1 for found in maps)
    values = np.full((len(rows), width, 1 if single else len(labels)), np.nan)
    for i, found in enumerate(maps):
        for label, pairs in found.items():
            place = 0 if single else labels.index(label)
            values[i, :, place] = 0
            for feature, weight in pairs:
                if not 0 <= feature < width:
                    raise InputError(
                        f"explanation {name!r} names feature {feature} but the table has {width} "
                        "features; LIME must have explained its numeric columns as they are."
                    )
                values[i, feature, place] = weight
    listed = min((len(pairs) for found in maps for pairs in found.values()), default=0)
    if _is_regression(rows[0]) or (single and len(labels) > 1):
        return Given(name, values[:, :, 0], listed=listed)
    return Given(name, values, classes=_lime_classes(rows[0], labels), listed=listed)


def _weights(row: Any) -> dict[int, list[tuple[int, float]]]:
    """For each explained label, pairs of feature and weight."""
    found = {
        int(label): [(int(feature), float(weight)) for feature, weight in pairs]
        for label, pairs in row.as_map().items()
    }
    return {_LIME_OUTPUT: found[_LIME_OUTPUT]} if _is_regression(row) else found


def _is_regression(row: Any) -> bool:
    return getattr(row, "mode", "classification") == "regression"


def _lime_classes(row: Any, labels: list[int]) -> list[str] | list[int]:
    """LIME's names of some labels; their numbers where it was given no names and counts them."""
    names = getattr(row, "class_names", None)
    if names is None or [str(n) for n in names] == [str(i) for i in range(len(names))]:
        return labels
    return [str(names[label]) for label in labels]


def is_captum(thing: Any) -> bool:
    """A tuple as Captum returns it: of tensors, or of such a tuple and the convergence delta."""
    return isinstance(thing, tuple) and len(thing) > 0 and all(map(_is_tensors, thing))


def from_captum(name: str, thing: tuple[Any, ...]) -> Given:
    """The attributions of a model's one input; a convergence delta beside them is left out."""
    first, *others = thing
    if len(others) == 1 and np.ndim(others[0]) == 1 and not _is_vector(first):
        return from_captum(name, first if isinstance(first, tuple) else (first,))
    if others:
        raise InputError(
            f"explanation {name!r} has {len(thing)} tensors, one for each input of the model, "
            "but one table is needed; join them with torch.cat(tensors, 1)."
        )
    return Given(name, numbers(name, first))


def _is_vector(thing: Any) -> bool:
    return not isinstance(thing, tuple) and np.ndim(thing) == 1


def _is_tensors(thing: Any) -> bool:
    if isinstance(thing, tuple):
        return len(thing) > 0 and all(map(_is_tensors, thing))
    return hasattr(thing, "detach")
