"""Hold the options of training, and fill in epochs and batch size for given rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from unmasked.errors import InputError

_STEPS = 1500  # what the one-cycle schedule needs on tables of any size we measured
_STEPS_PER_EPOCH = 10
_BATCH = (16, 1000)  # smallest and largest automatic batch
_LEAST_EPOCHS = 3


@dataclass(frozen=True)
class Training:
    """Options of a training run. The defaults suit tables; ``Training.paper()`` is the paper's.

    Parameters
    ----------
    epochs : passes over the training rows; None: about 1,500 steps, at least 3 passes.
    batch_size : rows in a step; None: a tenth of the rows, between 16 and 1,000. A batch larger
        than the data shrinks to the data.
    learning_rate : the predictor's peak rate under "one-cycle", its rate under "constant".
    selector_learning_rate : the same for the selector.
    selector_delay : share of the steps that a selector waits when it is trained beside a
        predictor that starts with it. Without a wait it drops features before the predictor can
        use them; with a long one the predictor has memorised training rows, and showing
        everything looks best.
    price_rise : share of the selector's steps over which the price rises evenly from 0 to λ. A
        high price at once drops all features alike before the selector knows which are needed;
        none of many then comes back. Scores, best epochs and patience go by the whole price all the
        time, so leave patience out, or longer than the rise.
    schedule : "one-cycle" (linear rise over the first 30%, cosine fall to zero) or "constant".
    weight_decay : AdamW's decoupled decay.
    l2 : adds l2 · ‖weights‖² to each network's loss, as Keras' regularisers do.
    clip : largest gradient norm, per setting; None: no clipping.
    patience : epochs without a better validation score after which a setting stops;
        None: train to the end.
    keep : "best" keeps each setting's best epoch on validation rows, "last" the last one.
    validate_every : epochs from one validation to the next; the last epoch is always validated.
    precision : of products inside networks that are not plain layers: "float32", or "bfloat16",
        about twice as fast or more on a GPU that has it; weights and sums stay in float32.
    augment : a function (x, u) -> x that changes training rows, fresh in every step: x the rows of
        a batch, (batch, columns) or images (batch, channels, height, width), u uniform numbers
        (batch, 8) to take its chances from, so that runs repeat. `Shift` and `Retake` are for
        images. Targets stay those of the row as it was.
    predictor_epochs : passes of a predictor before its selector starts (``predictor_first``);
        None: as many as the selector has. It has every mask to learn, the selector only good
        ones. Where all start together, and in EVAL-X, ``epochs`` holds.
    """

    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float = 5e-3
    selector_learning_rate: float = 5e-4
    selector_delay: float = 0.2
    price_rise: float = 0.0
    schedule: Literal["one-cycle", "constant"] = "one-cycle"
    weight_decay: float = 0.03
    clip: float | None = 1.0
    patience: int | None = None
    l2: float = 0.0
    keep: Literal["best", "last"] = "best"
    validate_every: int = 1
    precision: Literal["float32", "bfloat16"] = "float32"
    augment: Callable[[Tensor, Tensor], Tensor] | None = None
    predictor_epochs: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "predictor_epochs", "batch_size", "patience", "validate_every"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise InputError(f"{name} must be a whole number above 0 but is {value!r}.")
        for name in ("learning_rate", "selector_learning_rate"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise InputError(f"{name} must be above 0 but is {value!r}.")
        if not 0 <= self.selector_delay < 1:
            raise InputError(
                "selector_delay must be a share of the steps, from 0 to below 1, but is "
                f"{self.selector_delay!r}."
            )
        if not 0 <= self.price_rise <= 1:
            raise InputError(
                f"price_rise must be a share of the steps, from 0 to 1, but is {self.price_rise!r}."
            )
        for name in ("weight_decay", "l2"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise InputError(f"{name} must be at least 0 but is {value!r}.")
        if self.clip is not None and not self.clip > 0:
            raise InputError(f"clip must be above 0 or None but is {self.clip!r}.")
        if self.keep not in ("best", "last"):
            raise InputError(f"keep must be 'best' or 'last' but is {self.keep!r}.")
        if self.precision not in ("float32", "bfloat16"):
            raise InputError(
                f"precision must be 'float32' or 'bfloat16' but is {self.precision!r}."
            )
        if self.augment is not None and not callable(self.augment):
            raise InputError(f"augment must be a function (x, u) -> x but is {self.augment!r}.")
        if self.schedule not in ("one-cycle", "constant"):
            raise InputError(
                f"schedule must be 'one-cycle' or 'constant' but is {self.schedule!r}."
            )

    @classmethod
    def paper(cls, epochs: int = 1000) -> Training:
        """Adam at a constant 1e-4 with batches of 1,000, as far as the paper states it.

        Parameters
        ----------
        epochs : passes over the training rows; 1,000 by default.
        """
        return cls(
            epochs=epochs,
            batch_size=1000,
            learning_rate=1e-4,
            selector_learning_rate=1e-4,
            selector_delay=0.0,
            schedule="constant",
            weight_decay=0.0,
            clip=None,
        )

    def resolve(self, rows: int) -> Training:
        """Fill in ``epochs`` and ``batch_size`` for a number of training rows.

        Parameters
        ----------
        rows : how many training rows there are.

        Examples
        --------
        >>> Training().resolve(10_000)  # doctest: +ELLIPSIS
        Training(epochs=150, batch_size=1000, ...)
        >>> Training(batch_size=500).resolve(120).batch_size
        120
        """
        smallest, largest = _BATCH
        batch = self.batch_size or min(max(rows // _STEPS_PER_EPOCH, smallest), largest)
        batch = min(batch, rows)
        epochs = self.epochs or max(math.ceil(_STEPS / (rows // batch)), _LEAST_EPOCHS)
        return replace(self, epochs=epochs, batch_size=batch)

    def price_share(self, step: int, steps: int) -> float:
        """Share of the price that is charged in one step of a selector.

        Parameters
        ----------
        step : the step, counted from 0 when the selector starts.
        steps : how many steps the selector takes.

        Examples
        --------
        >>> [Training(price_rise=0.5).price_share(step, 8) for step in (0, 1, 3, 7)]
        [0.25, 0.5, 1.0, 1.0]
        """
        rise = round(self.price_rise * steps)
        return 1.0 if step >= rise else (step + 1) / rise

    def pace(self, step: int, steps: int) -> float:
        """Share of the peak rate in one step: a pure function, so runs resume.

        Parameters
        ----------
        step : the step, counted from 0 when the network starts.
        steps : how many steps the network takes.
        """
        if self.schedule == "constant":
            return 1.0
        rise = max(1, round(0.3 * steps))
        if step < rise:
            return (step + 1) / rise
        done = (step - rise) / max(1, steps - rise)
        return 0.5 * (1 + math.cos(math.pi * done))
