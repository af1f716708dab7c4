"""The encoding test as the audit calls it: one function to change where the test changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
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
        folds=settings.encoding_folds,
        threshold=settings.threshold,
        random_state=seed,
    )


def kept_encoding(store: Store, name: str, make: Callable[[], Encoding]) -> Encoding:
    """The same, read back where an earlier run had finished it."""
    from unmasked.evaluation.encoding import Encoding

    def plain() -> dict[str, Any]:
        made = make()
        values = {field.name: getattr(made, field.name) for field in fields(made)}
        return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in values.items()}

    found = store.values(name, plain)
    return Encoding(**{**found, "gains": np.asarray(found["gains"])})
