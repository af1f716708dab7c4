"""Fitted objects on disk: a folder with ``config.json`` and ``weights.safetensors``.

No pickle. The configuration carries a format name, a version and digests of itself and of the
other files, so that a damaged or foreign folder is refused in one sentence. A scikit-learn
classifier is a file of skops beside them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from unmasked.errors import InputError, MissingExtra, OutputError, SavedError
from unmasked.masks.binary_samplers import ArmsBernoulli, DisarmBernoulli, LocalExpectation
from unmasked.masks.distributions import Bernoulli, MaskLaw, Patches, UniformSize
from unmasked.masks.maskers import Groups, Masker, Token, Zero
from unmasked.masks.samplers import BernoulliSampler, RebarBernoulli, ScoreBernoulli
from unmasked.masks.superpixels import Blur, ImageMean, Superpixels
from unmasked.networks.images import CNN, DenseNet121, MonaiUNet, UNet
from unmasked.networks.tables import MLP, Factory, SetMLP

FORMAT, VERSION = "unmasked", 2
_CONFIG, _WEIGHTS = "config.json", "weights.safetensors"
CLASSIFIER = "estimator.skops"
_NETWORKS: dict[str, Any] = {
    kind.__name__: kind for kind in (MLP, SetMLP, CNN, UNet, DenseNet121, MonaiUNet)
}
_SAMPLERS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (RebarBernoulli, ScoreBernoulli, DisarmBernoulli, ArmsBernoulli, LocalExpectation)
}
_TRUSTED = ("sklearn", "numpy", "scipy")  # packages whose classes a saved classifier may hold


def write_folder(
    folder: Path,
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    files: dict[str, bytes] | None = None,
) -> None:
    """Write a fitted object; replaces an earlier one only when the new one is complete.

    files : further files by name; their digests go into the configuration.
    """
    if files:
        config = {**config, "files": {name: _sha256(content) for name, content in files.items()}}
    check_replaceable(folder, config["kind"])
    part = folder.with_name(f".{folder.name}.part")
    old = folder.with_name(f".{folder.name}.old")
    try:
        for leftover in (part, old):
            shutil.rmtree(leftover, ignore_errors=True)
        part.mkdir(parents=True)
        plain = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
        save_file(plain, part / _WEIGHTS)
        for name, content in (files or {}).items():
            (part / name).write_bytes(content)
        digest = _sha256((part / _WEIGHTS).read_bytes())
        head = {
            "format": FORMAT,
            "version": VERSION,
            "weights_sha256": digest,
            "config_sha256": _digest(config),
        }
        (part / _CONFIG).write_text(
            json.dumps({**head, **config}, indent=1, allow_nan=False), encoding="utf-8"
        )
        if folder.exists():
            os.replace(folder, old)
        os.replace(part, folder)
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise OutputError(
            f"the model cannot be saved in {folder} ({error}); choose another folder."
        ) from error


def read_folder(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a fitted object of class ``kind``, or say in one sentence why not."""
    if not (folder / _CONFIG).is_file():
        raise SavedError(f"{folder} must be a folder written by save() but has no {_CONFIG}.")
    try:
        config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
        if not isinstance(config, dict) or config.get("format") != FORMAT:
            raise SavedError(f"{folder / _CONFIG} was not written by this program.")
        if config.get("version") != VERSION:
            raise SavedError(
                f"{folder} was saved in version {config.get('version')!r} of the format but this "
                f"program reads version {VERSION}; use a matching release."
            )
        if config.get("kind") != kind:
            raise SavedError(
                f"{folder} holds a saved {config.get('kind')}, but {kind} was asked for."
            )
        if _digest(config) != config.get("config_sha256"):
            raise SavedError(f"{folder / _CONFIG} is damaged: its digest differs from the saved.")
        digests = {_WEIGHTS: config.get("weights_sha256"), **config.get("files", {})}
        for name, digest in digests.items():
            if _sha256((folder / name).read_bytes()) != digest:
                raise SavedError(f"{folder / name} is damaged: its digest differs from the saved.")
        tensors: dict[str, Tensor] = load_file(folder / _WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        if isinstance(error, SavedError):
            raise
        raise SavedError(f"{folder} is damaged ({type(error).__name__}: {error}).") from error
    return config, tensors


def _digest(config: dict[str, Any]) -> str:
    """The digest of what a configuration says, without the digests that it carries."""
    head = ("format", "version", "weights_sha256", "config_sha256")
    body = {key: value for key, value in config.items() if key not in head}
    return _sha256(json.dumps(body, sort_keys=True).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def saved_kind(folder: Path) -> str | None:
    """Read what kind is saved in a folder, such as "RealX"; None where nothing of ours is."""
    try:
        config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    ours = isinstance(config, dict) and config.get("format") == FORMAT
    return str(config.get("kind")) if ours else None


def check_replaceable(folder: Path, kind: str) -> None:
    """Refuse to put a model where something else is; an older one of its kind is replaced."""
    if not folder.exists() or saved_kind(folder) == kind:
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise OutputError(
            f"{folder} exists and is not a saved {kind}; choose another folder or remove it."
        )


def masker_config(masker: Masker) -> dict[str, Any]:
    """A masker as plain values; one of the user's own is named but not stored."""
    if isinstance(masker, Groups):
        return {"kind": "Groups", "index": masker.index, "masker": masker_config(masker.masker)}
    if type(masker) is Superpixels:
        return {
            "kind": "Superpixels",
            "grid": masker.grid,
            "labels": None if masker.labels is None else masker.labels.tolist(),
            "shape": masker.shape,
            "masker": masker_config(masker.masker),
        }
    if type(masker) is Blur:
        return {"kind": "Blur", "sigma": masker.sigma}
    if type(masker) in (Token, Zero, ImageMean):
        return {"kind": type(masker).__name__}
    return {"kind": "custom", "name": type(masker).__name__}


def masker_from(config: dict[str, Any], given: Masker | None) -> Masker:
    """The inverse of `masker_config`; ``given`` stands in for a custom one."""
    if config["kind"] == "Groups":
        return Groups(config["index"], masker_from(config["masker"], given))
    if config["kind"] == "Superpixels":
        if isinstance(given, Superpixels):  # as it was passed to the constructor
            given = given.masker
        return Superpixels(
            None if config["grid"] is None else tuple(config["grid"]),
            None if config["labels"] is None else np.array(config["labels"]),
            masker_from(config["masker"], given),
            tuple(config["shape"]),
        )
    if given is not None:
        return given
    if config["kind"] == "custom":
        raise SavedError(
            f"the saved model uses its own masker {config['name']}; pass it as load(masker=…)."
        )
    if config["kind"] == "Blur":
        return Blur(config["sigma"])
    kinds: dict[str, Callable[[], Masker]] = {"Token": Token, "Zero": Zero, "ImageMean": ImageMean}
    return kinds[config["kind"]]()


def law_config(law: MaskLaw) -> dict[str, Any]:
    """A mask law as plain values."""
    if isinstance(law, Bernoulli):
        return {"kind": "Bernoulli", "p": law.p}
    if isinstance(law, UniformSize):
        return {"kind": "UniformSize"}
    if isinstance(law, Patches):
        return {"kind": "Patches", **asdict(law)}
    return {"kind": "custom", "name": type(law).__name__}


def law_from(config: dict[str, Any]) -> MaskLaw | None:
    """The inverse of `law_config`; None for a custom law, which prediction does not need."""
    if config["kind"] == "Bernoulli":
        return Bernoulli(config["p"])
    if config["kind"] == "Patches":
        return Patches(tuple(config["grid"]), tuple(config["widths"]))
    return UniformSize() if config["kind"] == "UniformSize" else None


def sampler_config(sampler: BernoulliSampler | None) -> dict[str, Any] | None:
    """A sampler as plain values; None for the default."""
    if sampler is None:
        return None
    if type(sampler) in _SAMPLERS.values():
        return {"kind": type(sampler).__name__, **asdict(sampler)}  # type: ignore[call-overload]
    return {"kind": "custom", "name": type(sampler).__name__}


def sampler_from(config: dict[str, Any] | None) -> BernoulliSampler | None:
    """The inverse of `sampler_config`; None for a custom one, which explaining does not need."""
    if config is None or config["kind"] not in _SAMPLERS:
        return None
    made: BernoulliSampler = _SAMPLERS[config["kind"]](
        **{name: value for name, value in config.items() if name != "kind"}
    )
    return made


def network_config(network: nn.Module | Factory) -> dict[str, Any]:
    """Return the settings to build a network again; a user's own is named but not stored."""
    if type(network) in _NETWORKS.values():
        return {"kind": type(network).__name__, **asdict(network)}  # type: ignore[call-overload]
    return {"kind": "custom", "name": type(network).__name__}


def network_from(
    config: dict[str, Any], given: nn.Module | Factory | None, what: str
) -> nn.Module | Factory:
    """The inverse of `network_config`; ``given`` stands in for a custom network."""
    if given is not None:
        return given
    if config["kind"] not in _NETWORKS:
        raise SavedError(
            f"the saved model uses its own {what} {config['name']}; pass one as load({what}=…)."
        )
    values = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in config.items()
        if name != "kind"
    }
    made: Factory = _NETWORKS[config["kind"]](**values)
    return made


def classes_config(classes: NDArray[Any]) -> dict[str, Any]:
    """Class labels as plain values with their type."""
    return {"dtype": classes.dtype.str, "values": classes.tolist()}


def classes_from(config: dict[str, Any]) -> NDArray[Any]:
    """The inverse of `classes_config`."""
    return np.array(config["values"], dtype=np.dtype(config["dtype"]))


def weights_of(module: nn.Module, prefix: str) -> dict[str, Tensor]:
    """A module's state under a prefix."""
    return {f"{prefix}.{name}": value for name, value in module.state_dict().items()}


def load_weights(module: nn.Module, tensors: dict[str, Tensor], prefix: str) -> nn.Module:
    """Put the weights under a prefix into a module, which must fit them."""
    start = f"{prefix}."
    own = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
    try:
        module.load_state_dict(own)
    except RuntimeError as error:
        detail = " ".join(str(error).split())
        raise InputError(f"the saved {prefix} does not fit this network: {detail}") from error
    return module.eval()


def classifier_bytes(estimator: Any) -> bytes:
    """A fitted scikit-learn classifier in the format of skops, which is no pickle."""
    skops = _skops("saving an EvalX with an estimator")
    try:
        content: bytes = skops.dumps(estimator)
        foreign = _foreign(skops, content)
    except Exception as error:  # what skops does not know it refuses in many ways
        raise InputError(
            f"the estimator {type(estimator).__name__} cannot be saved by skops "
            f"({' '.join(str(error).split())}); keep it in memory."
        ) from error
    if foreign:
        raise InputError(
            "an estimator to be saved must be made of scikit-learn's parts only but has "
            f"{foreign[0]}, which loading would refuse; keep it in memory."
        )
    return content


def classifier_from(folder: Path) -> Any:
    """The inverse of `classifier_bytes`; refuses whatever is no class of scikit-learn's kin."""
    return read_skops(folder / CLASSIFIER, "loading an EvalX with an estimator")


def read_skops(
    path: Path,
    what: str,
    *,
    trust: bool = False,
    advice: str = "load only what you saved yourself",
) -> Any:
    """Read a file of skops: classes of scikit-learn's kin, or any with ``trust``.

    what : what is being done, for the sentence where skops is not installed.
    """
    skops = _skops(what)
    try:
        content = path.read_bytes()
        foreign = [] if trust else _foreign(skops, content)
        if not foreign:
            return skops.loads(content, trusted=skops.get_untrusted_types(data=content))
    except Exception as error:  # whatever another version of scikit-learn trips over
        raise SavedError(
            f"{path} cannot be read ({' '.join(str(error).split())}); use the "
            "version of scikit-learn it was saved with."
        ) from error
    raise SavedError(
        f"{path} must hold classes of {', '.join(_TRUSTED)} only but holds {foreign[0]}; {advice}."
    )


def has_skops() -> bool:
    """Return True if skops, which saves classifiers, is installed; it may have been left out."""
    return find_spec("skops") is not None


def _skops(what: str) -> Any:
    try:
        return import_module("skops.io")
    except ImportError as error:
        raise MissingExtra("skops", "sklearn-saving", what) from error


def _foreign(skops: Any, content: bytes) -> list[str]:
    """List the types in a skops file that skops does not trust and no trusted package defines.

    Functions stay foreign: some of numpy's run any code they are given.
    """
    return [name for name in skops.get_untrusted_types(data=content) if not _known_class(name)]


def _known_class(name: str) -> bool:
    module, _, kind = name.rpartition(".")
    if module.split(".")[0] not in _TRUSTED:
        return False
    try:
        found = getattr(import_module(module), kind)
    except (ImportError, AttributeError):
        return False
    return isinstance(found, type) and found.__module__.split(".")[0] in _TRUSTED
