"""What SHAP, LIME and Captum really return goes through the audit; explanations go to SHAP."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from small_audits import FEATURES, QUICK, table
from small_tables import assert_one_sentence

from unmasked import Explanation, InputError, MissingExtra, audit
from unmasked.auditing.explanations import read_all, read_one
from unmasked.auditing.matching import Audited, Cut, cut, match

mpl.use("Agg")
with warnings.catch_warnings():  # their imports call what newer versions of others dislike
    warnings.simplefilter("ignore")
    shap = pytest.importorskip("shap", reason="shap is not installed")
    lime_tabular = pytest.importorskip("lime.lime_tabular", reason="lime is not installed")
    captum = pytest.importorskip("captum.attr", reason="captum is not installed")

pytestmark = pytest.mark.usefixtures("one_thread")

X, Y = table()
LEARN, ASKED = X.iloc[:300], X.iloc[300:]
CLASSES = np.array(["ill", "well"])
GRADES = np.digitize(X["age"] + X["dose"], [-0.7, 0.7])  # three classes
THREE = np.array([0, 1, 2])


def trees(y: Any = Y, kind: Any = HistGradientBoostingClassifier, **more: Any) -> Any:
    return kind(max_depth=3, random_state=0, **more).fit(LEARN, y[: len(LEARN)])


def cut_at(
    thing: Any, k: int, classes: Any = CLASSES, of_class: Any = None, **more: Any
) -> Audited:
    """The reading steps of an audit, for the asked rows."""
    matched = match(read_one("it", thing, FEATURES), FEATURES, True, ASKED.index)
    signed = more.get("signed", False)
    (one,) = cut(matched, Cut.read(k, None, len(FEATURES)), classes, of_class, signed=signed)
    return one


def largest(values: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """By hand: a feature is shown when fewer than k are larger, and no ties are expected."""
    size = np.abs(np.asarray(values, dtype=float))
    larger = (size[:, None, :] > size[:, :, None]).sum(2)
    masks = larger < k
    assert (masks.sum(1) == k).all()
    return masks


# ---------------------------------------------------------------------- SHAP


def test_tree_explainer_of_two_classes() -> None:
    found = shap.TreeExplainer(trees())(ASKED)
    assert found.values.shape == (100, 5)
    one = cut_at(found, 2)
    assert (one.masks == largest(found.values, 2)).all()
    assert one.how == "rows by order, columns by name"


def test_columns_of_a_tree_explainer_match_by_name() -> None:
    turned = FEATURES[::-1]
    model = HistGradientBoostingClassifier(max_depth=3, random_state=0)
    model.fit(LEARN[turned], Y[: len(LEARN)])
    found = shap.TreeExplainer(model)(ASKED[turned])
    assert found.feature_names == turned
    assert (cut_at(found, 2).masks == largest(found.values, 2)[:, ::-1]).all()


def test_a_forest_has_values_for_both_classes_and_needs_the_class() -> None:
    found = shap.TreeExplainer(trees(kind=RandomForestClassifier, n_estimators=20))(ASKED)
    assert found.values.shape == (100, 5, 2)
    with pytest.raises(InputError, match="for 2 classes; name one of ill, well") as caught:
        cut_at(found, 2)
    assert_one_sentence(caught.value)
    one = cut_at(found, 2, of_class="well", signed=True)
    by_hand = np.argsort(-found.values[:, :, 1], axis=1, kind="stable")[:, :2]
    assert (np.sort(by_hand, 1) == np.nonzero(one.masks)[1].reshape(-1, 2)).all()


@pytest.mark.parametrize("of_class", [0, 1, 2, "2"])
def test_tree_explainer_of_three_classes_needs_the_class(of_class: Any) -> None:
    found = shap.TreeExplainer(trees(GRADES))(ASKED)
    assert found.values.shape == (100, 5, 3)
    with pytest.raises(InputError, match="for 3 classes; name one of 0, 1, 2"):
        cut_at(found, 2, THREE)
    one = cut_at(found, 2, THREE, of_class)
    assert (one.masks == largest(found.values[:, :, int(of_class)], 2)).all()
    sliced = cut_at(found[:, :, int(of_class)], 2, THREE)
    assert (sliced.masks == one.masks).all()  # the class named by slicing instead


def test_output_names_name_the_classes_in_whatever_order() -> None:
    found = shap.TreeExplainer(trees(kind=RandomForestClassifier, n_estimators=20))(ASKED)
    named = shap.Explanation(
        found.values[:, :, ::-1], feature_names=FEATURES, output_names=["well", "ill"]
    )
    for label in CLASSES:
        one = cut_at(named, 2, of_class=label, signed=True)
        assert (one.masks == cut_at(found, 2, of_class=label, signed=True).masks).all()


def test_kernel_explainer() -> None:
    model = trees()

    def probability(rows: NDArray[Any]) -> NDArray[Any]:
        return model.predict_proba(pd.DataFrame(rows, columns=FEATURES))

    both = shap.KernelExplainer(probability, LEARN.iloc[:20])(ASKED.iloc[:10], silent=True)
    one = shap.KernelExplainer(lambda rows: probability(rows)[:, 1], LEARN.iloc[:20])
    single = one.shap_values(ASKED.iloc[:10], silent=True)  # an array without names
    assert both.values.shape == (10, 5, 2)
    assert single.shape == (10, 5)
    index = ASKED.index[:10]
    for thing, of_class in ((both, "well"), (single, None)):
        matched = match(read_one("it", thing, FEATURES), FEATURES, True, index)
        (found,) = cut(matched, Cut((2,)), CLASSES, of_class, signed=False)
        assert (found.masks == largest(single, 2)).all()


def test_interactions_are_refused() -> None:
    model = trees()
    explainer = shap.TreeExplainer(model)
    for thing in (
        explainer(ASKED.iloc[:10], interactions=True),
        explainer.shap_interaction_values(ASKED.iloc[:10]),
    ):
        with pytest.raises(InputError, match="interactions of 5 features") as caught:
            read_one("it", thing, FEATURES)
        assert_one_sentence(caught.value)


# ---------------------------------------------------------------------- LIME


@pytest.fixture(scope="module")
def grades() -> Any:
    return trees(GRADES)


def explained(model: Any, rows: int = 6, mode: str = "classification", **more: Any) -> list[Any]:
    """LIME's explanations of the first asked rows, one object for each."""
    names = more.pop("class_names", None)
    explainer = lime_tabular.LimeTabularExplainer(
        LEARN.to_numpy(), feature_names=FEATURES, class_names=names, random_state=0, mode=mode
    )

    def predict(values: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = model.predict_proba(pd.DataFrame(values, columns=FEATURES))
        return found[:, 1] if mode == "regression" else found

    return [
        explainer.explain_instance(row, predict, num_samples=200, **more)
        for row in ASKED.to_numpy()[:rows]
    ]


def lime_cut(rows: Any, k: int, classes: Any = CLASSES, of_class: Any = None, **more: Any) -> Any:
    matched = match(read_one("lime", rows, FEATURES), FEATURES, True, ASKED.index[: len(rows)])
    signed = more.get("signed", False)
    (one,) = cut(matched, Cut((k,)), classes, of_class, signed=signed)
    return one.masks


def heaviest(rows: list[Any], label: int, k: int) -> NDArray[np.bool_]:
    """By hand, from the lists that LIME prints: it lists the heaviest first."""
    masks = np.zeros((len(rows), len(FEATURES)), dtype=bool)
    for i, row in enumerate(rows):
        for feature, _ in row.as_map()[label][:k]:
            masks[i, feature] = True
    return masks


def test_lime_of_two_classes() -> None:
    rows = explained(trees(), num_features=4)
    assert rows[0].available_labels() == [1]
    for k in (1, 2, 4):
        assert (lime_cut(rows, k) == heaviest(rows, 1, k)).all()
    named = explained(trees(), num_features=4, class_names=["ill", "well"])
    # of two classes the weights differ in sign alone, so either may be asked for
    assert (lime_cut(named, 2, of_class="ill") == heaviest(named, 1, 2)).all()
    with pytest.raises(InputError, match="explains the class 'well' but of_class is 'ill'"):
        lime_cut(named, 2, of_class="ill", signed=True)


def test_what_lime_left_out_is_not_shown() -> None:
    rows = explained(trees(), num_features=2)
    assert (lime_cut(rows, 2).sum(1) == 2).all()
    with pytest.raises(InputError, match=r"only 2 features .* num_features=3") as caught:
        lime_cut(rows, 3)
    assert_one_sentence(caught.value)


def test_lime_of_three_classes_needs_the_class(grades: Any) -> None:
    rows = explained(grades, num_features=5, labels=(0, 1, 2))
    with pytest.raises(InputError, match="for 3 classes; name one of 0, 1, 2"):
        lime_cut(rows, 2, THREE)
    for label in (0, 1, 2):
        assert (lime_cut(rows, 2, THREE, label) == heaviest(rows, label, 2)).all()


@pytest.mark.parametrize("names", [None, ["low", "mid", "high"]])
def test_lime_of_some_of_the_classes_takes_the_right_one(grades: Any, names: Any) -> None:
    classes = THREE if names is None else np.array(names)
    rows = explained(grades, num_features=5, labels=(1, 2), class_names=names)
    for label in (1, 2):
        assert (lime_cut(rows, 2, classes, classes[label]) == heaviest(rows, label, 2)).all()
    with pytest.raises(InputError, match="is none of them") as caught:
        lime_cut(rows, 2, classes, classes[0])
    assert f"name one of {classes[1]}, {classes[2]}." in str(caught.value)
    alone = explained(grades, num_features=5, labels=(1,), class_names=names)
    assert (lime_cut(alone, 2, classes) == heaviest(alone, 1, 2)).all()
    with pytest.raises(InputError, match=f"explains the class '{classes[1]}' but of_class"):
        lime_cut(alone, 2, classes, classes[2])


def test_classes_that_are_numbers_are_not_taken_for_lime_s_own_counting(grades: Any) -> None:
    rows = explained(grades, num_features=5, labels=(0, 1, 2))  # LIME counts 0, 1, 2
    shifted = np.array([1, 2, 3])  # the table's classes
    for label in (0, 1, 2):
        assert (lime_cut(rows, 2, shifted, label + 1) == heaviest(rows, label, 2)).all()


def test_lime_of_each_row_s_likeliest_class(grades: Any) -> None:
    rows = explained(grades, rows=8, num_features=5, top_labels=1)
    likeliest = [row.available_labels()[0] for row in rows]
    assert len(set(likeliest)) > 1
    by_hand = np.concatenate([heaviest([r], c, 2) for r, c in zip(rows, likeliest, strict=True)])
    assert (lime_cut(rows, 2, THREE) == by_hand).all()
    two = explained(grades, rows=8, num_features=5, top_labels=2)
    without = sum(0 not in row.as_map() for row in two)
    assert 0 < without < 8
    with pytest.raises(InputError, match=f"no weights for the class 0 in {without} of") as caught:
        lime_cut(two, 2, THREE, 0)
    assert_one_sentence(caught.value)


def test_lime_s_regression_has_one_output() -> None:
    rows = explained(trees(), num_features=5, mode="regression")
    assert set(rows[0].as_map()) == {0, 1}  # the output and its negative
    assert (lime_cut(rows, 2) == heaviest(rows, 1, 2)).all()


def test_lists_of_lime_s_are_told_apart() -> None:
    rows = explained(trees(), num_features=5)
    assert [len(one.values) for one in read_all(rows, FEATURES)] == [6]
    assert [len(one.values) for one in read_all([rows, rows[:2]], FEATURES)] == [6, 2]
    assert len(read_all({"lime": rows[0]}, FEATURES)[0].values) == 1


# ---------------------------------------------------------------------- Captum


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    """Trained a little on the rows to learn from."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    rows = torch.tensor(LEARN.to_numpy(), dtype=torch.float32)
    label = torch.tensor((Y[: len(LEARN)] == "well").astype(int))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(rows), label).backward()
        optimiser.step()
    return net


def asked() -> torch.Tensor:
    return torch.tensor(ASKED.to_numpy(), dtype=torch.float32)


@pytest.mark.parametrize("method", ["IntegratedGradients", "FeatureAblation", "InputXGradient"])
def test_captum_s_tensors(method: str, network: torch.nn.Module) -> None:
    rows = asked().requires_grad_(method == "InputXGradient")
    found = getattr(captum, method)(network).attribute(rows, target=1)
    assert found.requires_grad == rows.requires_grad  # such tensors are no arrays yet
    by_hand = largest(found.detach().numpy(), 2)
    assert (cut_at(found, 2).masks == by_hand).all()
    in_tuple = getattr(captum, method)(network).attribute((rows,), target=1)
    assert isinstance(in_tuple, tuple)
    assert (cut_at(in_tuple, 2).masks == by_hand).all()


def test_captum_s_convergence_delta_is_left_out(network: torch.nn.Module) -> None:
    gradients = captum.IntegratedGradients(network)
    both = gradients.attribute(asked(), target=1, return_convergence_delta=True)
    plain = gradients.attribute(asked(), target=1)
    assert len(both) == 2
    for thing in (both, ((both[0],), both[1])):
        assert (cut_at(thing, 2).masks == largest(plain.numpy(), 2)).all()
    named = read_all([both, plain], FEATURES)
    assert [one.values.shape for one in named] == [(100, 5), (100, 5)]


def test_captum_of_two_inputs_is_refused() -> None:
    class TwoInputs(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.stack([a.sum(1) * b.sum(1), -a.sum(1)], dim=1)

    found = captum.FeatureAblation(TwoInputs()).attribute(
        (asked()[:, :3], asked()[:, 3:]), target=0
    )
    with pytest.raises(InputError, match="2 tensors, one for each input") as caught:
        read_one("it", found, FEATURES)
    assert_one_sentence(caught.value)
    assert cut_at(torch.cat(found, 1), 2).masks.shape == (100, 5)


# ---------------------------------------------------------------------- all of them, audited


def test_all_three_libraries_in_one_audit(network: torch.nn.Module) -> None:
    model = trees()
    rows = ASKED.iloc[:60]
    explanations = {
        "TreeSHAP": shap.TreeExplainer(model)(rows),
        "LIME": explained(model, rows=60, num_features=5),
        "Captum": captum.IntegratedGradients(network).attribute(asked()[:60], target=1),
    }
    found = audit(
        explanations, rows, Y[300:360], top=2, train=(LEARN, Y[:300]), settings=QUICK,
        progress=False,
    )  # fmt: skip
    assert [one.name for one in found.explanations] == list(explanations)
    assert (found["TreeSHAP"].masks == largest(explanations["TreeSHAP"].values, 2)).all()
    assert (found["LIME"].masks == heaviest(explanations["LIME"], 1, 2)).all()
    assert (found["Captum"].masks == largest(explanations["Captum"].numpy(), 2)).all()
    for one in found.explanations:  # age and dose are what counts, and each finds them mostly
        assert one.masks[:, :2].mean() > 0.6
        assert one.metrics["fraction"].value == pytest.approx(0.4)


# ---------------------------------------------------------------------- to SHAP

CHANCES = np.random.default_rng(0).random((100, 5)).astype(np.float32)


def ours(**changes: Any) -> Explanation:
    given = {"feature_names": FEATURES, "index": ASKED.index, **changes}
    return Explanation(CHANCES > 0.5, given.pop("probabilities", CHANCES), **given)


def test_to_shap_holds_probabilities_or_masks() -> None:
    found = ours().to_shap(ASKED)
    assert isinstance(found, shap.Explanation)
    np.testing.assert_array_equal(found.values, CHANCES.astype(float))
    np.testing.assert_array_equal(found.data, ASKED.to_numpy())
    assert found.feature_names == FEATURES
    assert found.output_names == "probability of being shown"
    assert found.base_values is None  # chances do not add up to a prediction
    masks = ours(probabilities=None).to_shap()
    np.testing.assert_array_equal(masks.values, (CHANCES > 0.5).astype(float))
    assert masks.output_names == "shown"


def test_without_data_shap_gets_the_values_that_are_known() -> None:
    np.testing.assert_array_equal(ours().with_values(X).to_shap().data, ASKED.to_numpy())
    np.testing.assert_array_equal(ours().with_values(X)[5:9].to_shap().data, ASKED.to_numpy()[5:9])


@pytest.mark.parametrize("kind", ["waterfall", "force"])
def test_plots_that_add_up_to_a_prediction_refuse_it(kind: str) -> None:
    from matplotlib import pyplot

    options: dict[str, Any] = {"matplotlib": True} if kind == "force" else {}
    with pytest.raises((TypeError, AttributeError)):
        getattr(shap.plots, kind)(ours().to_shap(ASKED)[0], show=False, **options)
    pyplot.close("all")


def test_rows_for_shap_match_by_label_and_name() -> None:
    whole = X.assign(outcome=Y)[[*FEATURES[::-1], "outcome"]]  # more rows and columns, turned
    np.testing.assert_array_equal(ours()[5:9].to_shap(whole).data, ASKED.to_numpy()[5:9])
    np.testing.assert_array_equal(ours().to_shap(ASKED.to_numpy()).data, ASKED.to_numpy())
    strangers = ASKED.set_axis(range(1000, 1100))
    np.testing.assert_array_equal(ours().to_shap(strangers).data, ASKED.to_numpy())
    for wrong in (ASKED.iloc[:50], ASKED.to_numpy()[:50], ASKED[FEATURES[:2]], np.zeros(3)):
        with pytest.raises(InputError, match="data must") as caught:
            ours().to_shap(wrong)
        assert_one_sentence(caught.value)


def test_images_for_shap() -> None:
    pixels = np.array([[0, 0, 1], [2, 3, 4]])
    images = np.random.default_rng(1).random((100, 1, 2, 3))
    found = ours(pixels=pixels).to_shap(images)
    assert found.values.shape == (100, 2, 3, 1, 1)
    assert found.data.shape == (100, 2, 3, 1)
    np.testing.assert_array_equal(found.values[7, :, :, 0, 0], CHANCES[7][pixels].astype(float))
    from matplotlib import pyplot

    with warnings.catch_warnings():  # SHAP's use of matplotlib is not ours
        warnings.simplefilter("ignore")
        shap.plots.image(found[:2], show=False)
    titles = [ax.get_title() for ax in pyplot.gcf().axes]
    pyplot.close("all")
    assert "probability of being shown" in titles
    with pytest.raises(InputError, match="100 explained images"):
        ours(pixels=pixels).to_shap(images[:, :, :1])


@pytest.mark.parametrize("data", [ASKED, None])
@pytest.mark.parametrize("kind", ["beeswarm", "bar", "heatmap"])
def test_shap_s_plots_accept_it(kind: str, data: Any) -> None:
    from matplotlib import pyplot

    pyplot.figure()
    with warnings.catch_warnings():  # SHAP's use of matplotlib and numpy is not ours
        warnings.simplefilter("ignore")
        ax = getattr(shap.plots, kind)(ours().to_shap(data), show=False)
        ax.figure.canvas.draw()
    told = " ".join(text.get_text() for text in ax.get_yticklabels())
    pyplot.close("all")
    assert all(name in told for name in FEATURES)


def test_without_shap_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(MissingExtra, match=r'pip install "unmasked\[compare\]"') as caught:
        ours().to_shap()
    assert_one_sentence(caught.value)
