"""`RealX`: learn to select features, with a predictor whose masks know nothing about the row."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from unmasked.errors import InputError, SavedError
from unmasked.explainers import defaults
from unmasked.explainers.base import Explainer, Fitted
from unmasked.explainers.estimator import Table
from unmasked.explainers.path import Candidate
from unmasked.explainers.penalised import Priced
from unmasked.explainers.saving import load_weights, sampler_config, sampler_from
from unmasked.explainers.search.choice import ContextChoice, RowChoice
from unmasked.explainers.search.find import KINDS, Kind, evenly, interchangeable
from unmasked.explainers.search.rounds import Judged, PerRow, Round, Search
from unmasked.explainers.search.screen import Part, PartPredictor, PartSelector
from unmasked.explainers.search.values import SetPredictor, of_size
from unmasked.explanation.explanation import Explanation
from unmasked.inputs.stored import StoredImages
from unmasked.inputs.table import Columns, GroupSpec
from unmasked.inputs.targets import Targets
from unmasked.masks.distributions import Bernoulli, MaskLaw, UniformSize
from unmasked.masks.maskers import Masker, Token, Zero
from unmasked.masks.samplers import BernoulliSampler, RebarBernoulli
from unmasked.networks.tables import MLP, Factory, SetMLP, TableSet, build
from unmasked.training import Data, Method, Training, methods
from unmasked.training.device import choose_device
from unmasked.training.progress import Show, tell

_SEARCHES = ("auto", "context", "row")
_OF_ANY_WIDTH = (Bernoulli, UniformSize)  # mask laws that go on where columns were dropped
_ASKED = 2000  # held-out rows that say which features are interchangeable, at most
_MEMBERS = "predictor.0.predictor.members."
_KINDS: dict[Kind, str] = {
    "context": "Features were chosen by the values of others that are shown, under",
    "row": "Features were searched for in each row, under",
}


class RealX(Priced):
    """REAL-X: for each row, the few features that the prediction rests on.

    A selector says which features of a row are shown. It maximises
    log q(y | what is shown) − λ · (fraction shown), where the predictor q is trained on masks that
    know nothing about the row, by default *random* ones: it cannot learn a code hidden in the
    choice of features. On tables the best sets are searched for under q (``search``); otherwise
    the selector is a network that is trained by gradients, as in the paper.

    Parameters
    ----------
    sparsity : λ, the price in nats of showing every feature. A number; a list, of which the
        setting chosen by ``choose`` is kept; or "auto", a path of six values that scales with the
        number of features.
    choose : how to choose from a path, on validation rows: "one-standard-error" (the sparsest
        within one standard error of the best log-likelihood), "accuracy" (the largest),
        "tolerance" (the sparsest within ``tolerance`` of the accuracy of a model that sees
        everything, which is trained too), or "balanced" (the same by balanced accuracy, among
        settings that show something in most rows).
    tolerance : accuracy that "tolerance" and "balanced" may give up against the model that sees
        everything; 0.05 by default.
    model : explain this model instead of the data: any object with ``predict_proba``, or any
        callable from rows to probabilities. Then ``fit(X)`` needs no y.
    selector, predictor : a ``torch.nn.Module`` or a factory ``(inputs, outputs) -> Module``. The
        selector maps standardised rows to one logit per feature; the predictor maps the masker's
        output to one logit per class.
    predictor_first : finish the predictor, then train the selector ("REAL-X-STEP"); by default
        both move in every step, as in the paper's Algorithm 1. With ``exchange`` it first learns
        from random masks alone, then goes on beside the selector.
    exchange : half of the predictor's rows are hidden by what the selector draws for *another*
        row, the others by random masks. No mask knows the row that it is put on, so the predictor
        still cannot learn a code, but it meets selections as sparse and as shaped as the
        selector's, which are rare among random masks of many features. Each λ then has a
        predictor of its own, and the selector must be without BatchNorm.
    search : "auto" (default) searches for the best sets of features under a predictor that has
        not seen the rows, wherever it can: for tables with the default masker, no selector or
        sampler of your own, no ``predictor_first``, ``exchange`` or ``restarts``, and a predictor
        that is a `SetMLP` with bins, if any is given. A tree that asks only about features which
        it shows then decides (``choice_`` is "context"): it cannot give anything away. Where that
        surely loses more than 0.02 nats on held-out rows, both at the λ of the rule
        "one-standard-error" and paying the lowest λ for what they show, the set is looked for that
        brings each row's prediction nearest to that from everything ("row"). False trains a
        selector by gradients, as the paper does; True refuses what cannot be searched, "context"
        and "row" too, which decide between the two.
    drop : whether a search of more than 30 features first drops, in up to four rounds, those that
        no tree of the two lowest prices shows, as long as held-out rows are predicted better
        without them; the first round spares 20 more that most surely go with a class, alone,
        squared or times another. Of more than 200 features it looks at the 200 that do so.
        ``dropped_`` names those that took no part, those first that screening likes best. With a
        mask law of your own none are dropped.
    masker : `Token` (default) or `Zero`, or one of your own.
    groups : columns shown or hidden together, as ``{"name": [columns]}`` or a list of lists.
    mask_law : the predictor's random masks: `UniformSize` (default), the paper's `Bernoulli`, or
        for superpixels of a grid `Patches`.
    sampler : what a trained selector learns by: by default the paper's `RebarBernoulli`, or
        `ArmsBernoulli`, `DisarmBernoulli`, `LocalExpectation` (``unmasked.masks.binary_samplers``),
        which ask the predictor about 0/1 masks alone.
    training : options, see `Training`.
    restarts : how often to train each setting, from other seeds, all in one program; once by
        default. The one with the best objective on validation rows is kept. A selector can settle
        in a selection that no small change improves; three restarts cost three times as much.
    validation : share of rows held out for stopping and choosing; 0.2 by default.
    batch_size : rows explained at once, 8,192 by default; bounds memory.
    device : "auto" (default), the first CUDA device or else the CPU; or "cpu", "cuda", …
    checkpoint : a folder; a killed fit that is called again continues from there.
    progress : True for a bar, False for none, "lines" for lines in a log, or "auto" (default): a
        bar in terminals and notebooks.
    random_state : an int makes the result repeatable on the same machine.

    Attributes
    ----------
    sparsity_ : the chosen λ. path_ : a DataFrame, one row per λ, on validation rows; of a search:
        of what one half of them finds, judged by the other half.
    selector_, predictor_ : the chosen networks. columns_ : names and statistics of the columns.
    classes_, n_features_in_, feature_names_in_ : as in scikit-learn. history_ : training curves.
    interrupted_ : whether Ctrl-C ended training early.
    choice_ : after a search "context" or "row", else None. decided_ : what was decided for this
        table, in words. dropped_ : the features that the search dropped; rounds_ : in which rounds.
        per_row_ : what choosing for each row is worth to the explainer's own predictor; None
        without a search. interchangeable_ : for features that are often shown, those that in their
        place keep at least three quarters of what they are worth, by held-out rows: another seed
        may show them instead.

    Examples
    --------
    >>> from unmasked.datasets import synthetic
    >>> rows = synthetic("S3", 400, seed=0)
    >>> explainer = RealX(sparsity=0.1, training=Training(epochs=2), random_state=0)
    >>> explainer.fit(rows.x, rows.y).explain(rows.x).masks.shape
    (400, 11)
    """

    title = "REAL-X"
    choice_: Kind | None
    dropped_: list[str]
    rounds_: list[Round]
    decided_: str
    per_row_: PerRow | None
    interchangeable_: dict[str, list[str]]
    _judgement: Judged
    _images = False  # whether pictures came

    def __init__(
        self,
        sparsity: float | Sequence[float] | str = "auto",
        *,
        choose: str = "one-standard-error",
        tolerance: float = 0.05,
        model: Any = None,
        selector: nn.Module | Factory | None = None,
        predictor: nn.Module | Factory | None = None,
        predictor_first: bool = False,
        exchange: bool = False,
        search: bool | Literal["auto", "context", "row"] = "auto",
        drop: bool = True,
        masker: Masker | None = None,
        groups: GroupSpec | None = None,
        mask_law: MaskLaw | None = None,
        sampler: BernoulliSampler | None = None,
        training: Training | None = None,
        restarts: int = 1,
        validation: float = 0.2,
        batch_size: int = 8192,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        progress: Show = "auto",
        random_state: Any = None,
    ) -> None:
        self.sparsity = sparsity
        self.choose = choose
        self.tolerance = tolerance
        self.model = model
        self.selector = selector
        self.predictor = predictor
        self.predictor_first = predictor_first
        self.exchange = exchange
        self.search = search
        self.drop = drop
        self.masker = masker
        self.groups = groups
        self.mask_law = mask_law
        self.sampler = sampler
        self.training = training
        self.restarts = restarts
        self.validation = validation
        self.batch_size = batch_size
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    @classmethod
    def paper(cls, **options: Any) -> Self:
        """Algorithm 1 as the paper runs it on tables; ``options`` replace any of its settings.

        Zeros for what is hidden, Bernoulli(½) random masks, REBAR at temperature 0.1, Adam at 1e-4
        and the λ of the largest accuracy; where the paper is silent, as the preset "paper" of
        `unmasked reproduce` (its networks, a batch of 1,000, L2).

        >>> RealX.paper(sparsity=0.1).sampler
        RebarBernoulli(temperature=0.1)
        """
        settings: dict[str, Any] = {
            "choose": "accuracy",
            "selector": MLP((200, 200, 200), "relu", None, "glorot"),
            "predictor": MLP((200, 200), "relu", "batch", "glorot"),
            "search": False,
            "masker": Zero(),
            "mask_law": Bernoulli(0.5),
            "sampler": RebarBernoulli(0.1),
            "training": replace(Training.paper(), l2=1e-3, validate_every=10),
        }
        return cls(**{**settings, **options})

    @property
    def _sampler(self) -> BernoulliSampler:
        return defaults.SAMPLER if self.sampler is None else self.sampler

    def _method(self) -> Method:
        return methods.real_x(
            self.masker_,
            self._law,
            self._predictor_network,
            self._selector_network,
            self._sampler,
            predictor_first=self.predictor_first,
            exchange=self.exchange,
        )

    def _train(self, train: Data, valid: Data, targets: Targets, seed: int) -> list[int]:
        self.choice_, self.dropped_, self.rounds_, self.decided_ = None, [], [], ""
        self.per_row_, self.interchangeable_ = None, {}
        if not self._searches:
            return super()._train(train, valid, targets, seed)
        started = time.perf_counter()
        levels, features = self._levels(), self._sizes[1]
        search = self._search(train, valid, levels, seed, self.checkpoint)
        searched = search.run()
        learned, self.rounds_ = searched.learned, searched.rounds
        self._judgement = search.judged(learned)
        asked = self.search if self.search in KINDS else None
        self.choice_ = asked or self._judgement.better
        predictor = PartPredictor(learned.predictor, learned.part, len(self.columns_.index))
        self.settings_ = [
            Fitted(level, selector, predictor)
            for level, selector in zip(
                levels, searched.selectors(self.choice_, features), strict=True
            )
        ]
        self.dropped_ = [self.columns_.features[i] for i in searched.dropped]
        self._learned(learned.trained, targets)
        self.decided_ = (
            f"{_KINDS[self.choice_]} {len(learned.predictor.members)} networks that learned from "
            f"{train.rows:,} rows and {len(learned.part.features):,} of {features:,} features"
            f"{', from labels softened by boosting' if learned.soft else ''}."
        )
        self.seconds_ = max(self.seconds_, time.perf_counter() - started)  # the search itself, too
        return [max(learned.trained.epochs)] * len(levels)

    def _candidates(self, valid: Data) -> list[Candidate]:
        if self.choice_ is None:
            return super()._candidates(valid)
        return self._judgement.of(self.choice_)

    def _search(
        self, train: Data, valid: Data, levels: Sequence[float], seed: int, checkpoint: Any
    ) -> Search:
        """The table, and how to search it for each λ."""
        assert isinstance(self.columns_, Columns)
        return Search(
            train,
            valid,
            self.columns_,
            cast(SetMLP, self._predictor),
            self._law,
            self._options,
            levels,
            rounds=defaults.ROUNDS if self.drop and type(self._law) in _OF_ANY_WIDTH else 0,
            seed=seed,
            device=self.device,
            checkpoint=checkpoint,
            show=self.progress,
            title=self.title,
        )

    def _again(
        self, train: Data, valid: Data, level: float, seeds: Sequence[int], fitted: Explainer
    ) -> list[nn.Module]:
        assert isinstance(fitted, RealX)
        if fitted.choice_ is None:
            return super()._again(train, valid, level, seeds, fitted)
        found: list[nn.Module] = []
        for seed in seeds:
            folder = None if self.checkpoint is None else Path(self.checkpoint) / f"seed-{seed}"
            levels = [own.level for own in fitted.settings_]  # what is dropped hangs on them
            searched = self._search(train, valid, levels, seed, folder).run([level])
            if searched.learned.interrupted:
                raise KeyboardInterrupt
            found += searched.selectors(fitted.choice_, self._sizes[1])
        return found

    def _of_size(self, X: Table, k: int) -> Explanation:
        """Search for the best k features of each row; dropped ones follow where fewer took part."""
        explanation = super()._of_size(X, k)
        if self.choice_ is None or not len(explanation.masks):
            return explanation
        own = self.settings_[self.chosen_].predictor
        assert isinstance(own, PartPredictor)
        predictor, part, device = own.predictor, own.part, choose_device(self.device)
        x = torch.from_numpy(self._matrix(X)[:, list(part.columns)]).to(device)
        masks, missed = of_size(predictor.to(device).eval(), x, min(k, len(part.features)))
        predictor.to("cpu")
        shown = np.zeros_like(explanation.masks)
        shown[:, list(part.features)] = masks.cpu().numpy()
        chances = np.zeros(shown.shape, dtype=np.float32)
        most = missed.amax(1, keepdim=True).clamp_min(1e-12)
        chances[:, list(part.features)] = torch.where(masks, 0.51 + 0.49 * missed / most, 0).cpu()
        more = [self.columns_.features.index(name) for name in self.dropped_]
        more = more[: max(0, k - len(part.features))]
        shown[:, more] = True
        chances[:, more] = np.linspace(0.509, 0.501, len(more))  # after all that took part
        about = {**explanation.about, "search": "row"}  # whatever chooses without k
        return replace(explanation, masks=shown, probabilities=chances, about=about)

    def _choose(
        self, method: Method, train: Data, valid: Data, epochs: list[int], seed: int
    ) -> None:
        super()._choose(method, train, valid, epochs, seed)
        if self.choice_ is not None:
            judged, i = self._judgement, self.chosen_
            own = judged.of(self.choice_)[i]
            self.per_row_ = PerRow.of(judged.fixed[i], own, judged.row[i])
            del self._judgement  # of all held-out rows
            self.decided_ += f" {self.per_row_}"
            self.interchangeable_ = self._interchangeable(valid)
            tell(self.title, self.decided_, self.progress)

    def _interchangeable(self, valid: Data) -> dict[str, list[str]]:
        """By the chosen setting, on held-out rows."""
        own, device = self.settings_[self.chosen_], choose_device(self.device)
        assert isinstance(own.predictor, PartPredictor)
        part, predictor = own.predictor.part, own.predictor.predictor.to(device).eval()
        assert isinstance(own.selector, PartSelector)
        some = evenly(valid.rows, _ASKED)
        x = valid.x[some][:, list(part.columns)].to(device)
        selector = own.selector.selector.to(device)
        with torch.no_grad():
            masks = selector(x) > 0
        found = interchangeable(predictor, x, valid.target[some].to(device), masks)
        predictor.to("cpu"), selector.to("cpu")
        names = [self.columns_.features[i] for i in part.features]
        return {names[i]: [names[j] for j in others] for i, others in found.items()}

    def _full_accuracy(self, method: Method, train: Data, valid: Data, seed: int) -> float:
        if self.choice_ is None:
            return super()._full_accuracy(method, train, valid, seed)
        return self._accuracy_of(self.settings_[0].predictor, valid)

    def _asked_selector(self) -> nn.Module | Factory | None:
        return None if self.choice_ is not None else super()._asked_selector()

    @property
    def _searches(self) -> bool:
        """Return True if ``fit`` is to search: as asked, or with "auto" wherever it can be done."""
        if self.search == "auto":
            return not self._images and self._unfit_for_search() is None
        return bool(self.search)

    def _unfit_for_search(self) -> str | None:
        """Say the first thing asked for that a search cannot do; return None if there is none."""
        for name in ("predictor_first", "exchange"):
            if getattr(self, name):
                return f"search is instead of {name}, so choose one of the two."
        if self.sampler is not None:
            return (
                "search trains no selector that could learn by a sampler, but came with sampler="
                f"{self.sampler!r}; leave one of the two out."
            )
        if self.restarts != 1:
            return (
                f"search trains no selector that could be restarted, but restarts is "
                f"{self.restarts!r}; leave it out."
            )
        if self.selector is not None or type(self._masker) is not Token:
            return (
                "search needs no selector and works with masker=Token(), but came with "
                f"selector={self.selector!r} and masker={self._masker!r}; leave them out."
            )
        own = self.predictor
        if own is not None and not (isinstance(own, SetMLP) and own.bins):
            return (
                "with search the predictor must be a SetMLP(…, bins=True) but is "
                f"{own!r}; leave it out for the default."
            )
        return None

    @property
    def _predictor(self) -> nn.Module | Factory:
        if self.predictor is None and self._searches:
            return defaults.NETWORK
        return super()._predictor

    def _check_parts(self) -> None:
        super()._check_parts()
        if self.sampler is not None and not isinstance(self.sampler, BernoulliSampler):
            raise InputError(
                "sampler must be a BernoulliSampler, such as ArmsBernoulli(), but is "
                f"{self.sampler!r}; leave it out for the default."
            )
        if not isinstance(self.search, bool) and self.search not in _SEARCHES:
            raise InputError(
                f"search must be True, False or one of {', '.join(_SEARCHES)} but is "
                f"{self.search!r}."
            )
        unfit = self._unfit_for_search()
        if self.search and self.search != "auto" and unfit is not None:
            raise InputError(unfit)

    def _learn(self, table: Any) -> None:
        self._images = isinstance(table, np.ndarray | StoredImages)
        super()._learn(table)
        if self.search and self.search != "auto" and self._images:
            raise InputError("search is for tables, but images came; leave it out.")

    @property
    def _predictor_first(self) -> bool:
        return self.predictor_first and not self.exchange

    def _parameters(self) -> dict[str, Any]:
        return {
            "predictor_first": self.predictor_first,
            "exchange": self.exchange,
            "search": self._searches,
            "drop": self.drop,
        }

    def _config(self) -> dict[str, Any]:
        return {
            **super()._config(),
            "sampler": sampler_config(self.sampler),
            "dropped": self.dropped_,
            "rounds": [asdict(own) for own in self.rounds_],
            "decided": self.decided_,
            "per_row": None if self.per_row_ is None else asdict(self.per_row_),
            "interchangeable": self.interchangeable_,
        }

    def _restore(self, config: dict[str, Any], masker: Masker | None) -> None:
        super()._restore(config, masker)
        self.sampler = sampler_from(config.get("sampler"))
        self.choice_, per_row = None, config.get("per_row")
        self.dropped_, self.decided_ = config.get("dropped", []), config.get("decided", "")
        self.rounds_ = [Round(**own) for own in config.get("rounds", [])]
        self.per_row_ = PerRow(**per_row) if per_row else None
        self.interchangeable_ = config.get("interchangeable", {})

    def _restored(self, settings: list[dict[str, Any]], tensors: dict[str, Tensor]) -> list[Fitted]:
        if not self._searches:
            return super()._restored(settings, tensors)
        columns, features, _ = self._sizes
        dropped = {self.columns_.features.index(name) for name in self.dropped_}
        part = Part.of([i for i in range(features) if i not in dropped], self.columns_.index)
        members = {key.split(".")[4] for key in tensors if key.startswith(_MEMBERS)}
        if not members:
            raise SavedError(
                "the weights have none of the networks that a search asks; fit again and save."
            )
        assert isinstance(self.columns_, Columns)
        network = cast(SetMLP, self._predictor).bound(part.numeric(self.columns_.numeric))
        built = [build(network, 2 * len(part.columns), len(self.classes_), 0) for _ in members]
        shared = SetPredictor(cast(list[TableSet], built), part.index)
        predictor = PartPredictor(shared, part, columns)
        load_weights(predictor, tensors, "predictor.0")
        self.choice_ = "row" if "selector.0.selector.bonus" in tensors else "context"
        empty: RowChoice | ContextChoice
        restored = []
        for i, setting in enumerate(settings):
            if self.choice_ == "row":
                count = len(tensors[f"selector.{i}.selector.bonus"])
                sets = torch.zeros(count, len(part.features), dtype=torch.bool)
                empty = RowChoice(shared, sets, torch.zeros(count), 0.0)
            else:
                leaves, depth = tensors[f"selector.{i}.selector.column"].shape
                empty = ContextChoice(leaves, depth, len(part.features))
            selector = PartSelector(empty, part, features)
            load_weights(selector, tensors, f"selector.{i}")
            restored.append(Fitted(setting["level"], selector, predictor))
        return restored

    @classmethod
    def _from_parameters(cls, config: dict[str, Any]) -> dict[str, Any]:
        return {**super()._from_parameters(config), **config["parameters"]}
