"""`Full`: the reference that always shows everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from unmasked import methods
from unmasked.columns import GroupSpec
from unmasked.engine import Settings, Training, fit
from unmasked.engine.progress import Show
from unmasked.estimator import MaskedEstimator, Table, checkpoint_file, restore_network
from unmasked.explanation import Explanation
from unmasked.masking import Masker
from unmasked.networks import Factory
from unmasked.storage import network_from, read_folder, weights_of, write_folder


class Full(TransformerMixin, MaskedEstimator):  # type: ignore[misc]
    """FULL: a predictor on every feature, with the interface of an explainer.

    Its explanations show everything. What the others' accuracy is to be compared with.

    Parameters
    ----------
    predictor, model, masker, groups, training, validation, batch_size, device, checkpoint,
    progress, random_state : as in `RealX`.

    Examples
    --------
    >>> from unmasked.data import synthetic
    >>> rows = synthetic("S3", 400, seed=0)
    >>> full = Full(training=Training(epochs=2), random_state=0).fit(rows.x, rows.y)
    >>> full.explain(rows.x).fraction
    1.0
    """

    title = "FULL"

    def __init__(
        self,
        predictor: nn.Module | Factory | None = None,
        *,
        model: Any = None,
        masker: Masker | None = None,
        groups: GroupSpec | None = None,
        training: Training | None = None,
        validation: float = 0.2,
        batch_size: int = 8192,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        progress: Show = "auto",
        random_state: Any = None,
    ) -> None:
        self.predictor = predictor
        self.model = model
        self.masker = masker
        self.groups = groups
        self.training = training
        self.validation = validation
        self.batch_size = batch_size
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    def fit(self, X: Table, y: Any = None, *, validation: tuple[Table, Any] | None = None) -> Self:
        """Learn p(y | x); arguments as in `RealX.fit`."""
        train, valid, targets, seed = self._prepare(X, y, validation, self.model)
        trained = fit(
            methods.full(self.masker_, self._predictor),
            Settings(seeds=(seed,)),
            train,
            valid,
            self.training,
            device=self.device,
            path=checkpoint_file(self.checkpoint, "full"),
            show=self.progress,
            title=self.title,
        )
        self.predictor_ = trained.predictors[0]
        self.soft_ = targets.soft
        self.history_, self.interrupted_ = trained.history, trained.interrupted
        self.seconds_ = trained.seconds
        return self

    def explain(self, X: Table) -> Explanation:
        """Everything, for each row."""
        table = self._read(X, reset=False)
        self.columns_.matrix(table)  # refuses values that cannot be shown
        shape = (len(table), self._sizes[1])
        index = table.index.to_numpy() if isinstance(X, pd.DataFrame) else None
        everything = np.ones(shape, dtype=bool)
        return Explanation(
            everything,
            everything.astype(np.float64),
            self.columns_.features,
            index,
            {"method": self.title},
        )

    def predict_proba(self, X: Table) -> NDArray[np.float64]:
        """Class probabilities from everything."""
        matrix = self._matrix(X)
        everything = np.ones((len(matrix), self._sizes[1]), dtype=bool)
        return self._probabilities(self.predictor_, matrix, everything).astype(np.float64)

    def predict(self, X: Table) -> NDArray[Any]:
        """The likeliest class from everything."""
        likeliest = self.predict_proba(X).argmax(1)  # checks that it is fitted
        return self.classes_[likeliest]

    def transform(self, X: Table) -> Any:
        """The rows as they are: nothing is hidden."""
        table = self._read(X, reset=False)
        self.columns_.matrix(table)  # refuses values that cannot be shown
        return table if isinstance(X, pd.DataFrame) else table.to_numpy(dtype=np.float64)

    @property
    def _fitted(self) -> bool:
        return hasattr(self, "predictor_")

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``weights.safetensors`` into a folder of their own."""
        check_is_fitted(self)
        write_folder(Path(folder), self._config(), weights_of(self.predictor_, "predictor"))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        predictor: nn.Module | Factory | None = None,
        masker: Masker | None = None,
        device: str = "auto",
    ) -> Self:
        """Read what `save` wrote. A network or masker of your own must be passed again."""
        config, tensors = read_folder(Path(folder), cls.__name__)
        full = cls(
            predictor=network_from(config["predictor"], predictor, "predictor"),
            batch_size=config["batch_size"],
            device=device,
        )
        full._restore(config, masker)
        full.predictor_ = restore_network(
            full.predictor, full._sizes[2], len(full.classes_), tensors, "predictor"
        )
        return full
