"""What RealX explains: labels of any kind, probabilities, or a model of any kind."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from small_tables import frame, quick, rows
from torch import Tensor, nn

from unmasked import Training

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["well", "ill"], ["ill", "well"]),
        ([False, True], [False, True]),
        ([-1.0, 1.0], [-1.0, 1.0]),
        ([7, 3], [3, 7]),
    ],
)
def test_labels_of_any_kind_come_back(labels: list[Any], classes: list[Any]) -> None:
    x, y = rows()
    target = np.array(labels)[y]
    explainer = quick().fit(x, target)
    assert explainer.classes_.tolist() == classes
    assert explainer.predict(x).dtype == target.dtype
    first_class_is_one = labels[1] == classes[0]
    plain = quick().fit(x, 1 - y if first_class_is_one else y)
    np.testing.assert_array_equal(explainer.predict_proba(x), plain.predict_proba(x))


@pytest.mark.parametrize("dtype", ["category", "string", "object"])
def test_pandas_labels_equal_numpy_labels(dtype: str) -> None:
    x, y = rows()
    text = np.array(["ill", "well"])[y]
    labels = pd.Series(text).astype(dtype)
    explainer = quick().fit(x, labels)
    np.testing.assert_array_equal(explainer.predict_proba(x), quick().fit(x, text).predict_proba(x))
    assert explainer.score(x, text) == (explainer.predict(x) == text).mean()


def test_several_classes() -> None:
    x, _ = rows(120)
    y = np.digitize(x[:, 0], [-0.5, 0.5])
    longer = Training(epochs=15, batch_size=20, learning_rate=0.05, selector_learning_rate=0.01)
    explainer = quick(sparsity=0.01, training=longer).fit(x, y)
    probabilities = explainer.predict_proba(x)
    assert probabilities.shape == (120, 3)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-9)
    assert (probabilities > 0).all()
    assert explainer.score(x, y) > 0.6  # the largest class holds 0.38


def test_one_hot_probabilities_are_labels() -> None:
    x, y = rows()
    hard = quick().fit(x, y)
    soft = quick().fit(x, np.eye(2)[y])
    assert (hard.soft_, soft.soft_) == (False, True)
    np.testing.assert_array_equal(hard.predict_proba(x), soft.predict_proba(x))


def test_probabilities_are_used_and_not_only_the_likeliest_class() -> None:
    x, _ = rows()
    chance = 1 / (1 + np.exp(-x[:, 0]))
    soft = np.stack([1 - chance, chance], 1)
    one = quick().fit(x, soft).predict_proba(x)
    other = quick().fit(x, np.eye(2)[soft.argmax(1)]).predict_proba(x)
    assert not np.allclose(one, other, atol=1e-3)


# ---------------------------------------------------------------------- explaining a model


class Softmax(nn.Module):
    """A user's network that returns probabilities, with a layer that differs while training."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.layers(x), dim=-1)


@pytest.mark.parametrize("kind", ["classifier", "strings", "n", "n1", "n2"])
def test_a_model_is_its_probabilities(kind: str) -> None:
    x, y = rows()
    labels = np.array(["ill", "well"])[y] if kind == "strings" else y
    logistic = LogisticRegression().fit(x, labels)
    models: dict[str, Any] = {
        "classifier": logistic,
        "strings": logistic,
        "n": lambda x: logistic.predict_proba(x)[:, 1],
        "n1": lambda x: logistic.predict_proba(x)[:, 1:],
        "n2": logistic.predict_proba,
    }
    explainer = quick(model=models[kind]).fit(x)
    expected = quick().fit(x, logistic.predict_proba(x))
    np.testing.assert_allclose(explainer.predict_proba(x), expected.predict_proba(x), atol=1e-6)
    assert explainer.soft_
    assert explainer.classes_.tolist() == (["ill", "well"] if kind == "strings" else [0, 1])


@pytest.mark.parametrize("named", [False, True])
def test_a_torch_model_is_asked_in_evaluation_mode_and_left_as_it_was(named: bool) -> None:
    x, _ = frame() if named else rows()
    model = Softmax().train()
    before = copy.deepcopy(model.state_dict())
    explainer = quick(model=model).fit(x)
    assert model.training
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    with torch.no_grad():
        direct = model.eval()(torch.tensor(np.asarray(x), dtype=torch.float32)).numpy()
    expected = quick().fit(x, direct)
    np.testing.assert_array_equal(explainer.predict_proba(x), expected.predict_proba(x))
