"""The curious reader: tries to tell methods from everything that is served, and cannot."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass

import httpx
import numpy as np
import pytest
from PIL import Image
from sklearn.ensemble import RandomForestClassifier
from small_studies import METHODS, LiveServer, small_study

from unmasked.study.folder import read_study
from unmasked.study.key import read_key
from unmasked.study.serving import free_port

CASES = 50


@dataclass
class Seen:
    """Everything that one reader was served about one option, but for what it depicts."""

    case: int
    position: int
    method: str
    identifiers: tuple[str, str]
    bodies: tuple[bytes, bytes]
    heads: tuple[list[tuple[str, str]], list[tuple[str, str]]]
    seconds: tuple[float, float]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return small_study(tmp_path_factory.mktemp("blind"), cases=CASES)


@pytest.fixture(scope="module")
def server(made):
    """Served by a process of its own, from a folder whose key has been taken away."""
    hidden = made.key.rename(made.key.with_suffix(".away"))
    server = LiveServer(made.folder, free_port("127.0.0.1", 8900))
    yield server
    server.stop()
    hidden.rename(made.key)


@pytest.fixture(scope="module")
def key(made, server):
    return json.loads(made.key.with_suffix(".away").read_text())


@pytest.fixture(scope="module")
def pages(made, server):
    """Every page that a reader is served."""
    root = f"{server.url}/r/{made.readers[0][1]}"
    with httpx.Client() as client:
        paths = ["", "/review", "/pause", "/answers.csv", *(f"/case/{i + 1}" for i in range(CASES))]
        return [client.get(root + path) for path in paths]


@pytest.fixture(scope="module")
def seen(made, server, key, pages):
    """All layers of all cases, fetched in the order in which pages name them."""
    study = read_study(made.folder)
    root = f"{server.url}/r/{made.readers[0][1]}/picture"
    result = []
    with httpx.Client() as client:
        client.get(server.url)
        for number, case in enumerate(study.readers[0].cases):
            methods = key["readers"][0]["cases"][case.id]["methods"]
            for position, (option, method) in enumerate(zip(case.options, methods, strict=True)):
                bodies, heads, seconds = [], [], []
                for identifier in (option.over, option.hide):
                    started = time.perf_counter()
                    reply = client.get(f"{root}/{identifier}")
                    seconds.append(time.perf_counter() - started)
                    assert reply.status_code == 200
                    bodies.append(reply.content)
                    heads.append([h for h in reply.headers.items() if h[0] != "date"])
                result.append(
                    Seen(
                        number,
                        position,
                        method,
                        (option.over, option.hide),
                        tuple(bodies),
                        tuple(heads),
                        tuple(seconds),
                    )
                )
    return result


def chunks(png: bytes) -> list[tuple[str, bytes]]:
    """(kind, content) of each chunk of a PNG."""
    found, at = [], 8
    while at < len(png):
        length = int.from_bytes(png[at : at + 4], "big")
        found.append((png[at + 4 : at + 8].decode(), png[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def clues(option: Seen) -> list[float]:
    """Numbers that a curious reader could learn from."""
    numbers: list[float] = [option.position, option.case]
    for identifier, body, head, seconds in zip(
        option.identifiers, option.bodies, option.heads, option.seconds, strict=True
    ):
        around = [(kind, b"" if kind == "IDAT" else content) for kind, content in chunks(body)]
        numbers += [len(body), len(head), sum(len(n) + len(v) for n, v in head), seconds]
        numbers += [zlib.crc32(repr(head).encode()), zlib.crc32(repr(around).encode())]
        numbers += [int(identifier[i : i + 4], 16) for i in range(0, 16, 4)]
    return numbers


def p_of_guessing(features: np.ndarray, seen: list[Seen], seed: int = 0) -> float:
    """How often luck alone would guess as many methods as a forest that learned from half.

    It learns from every other case and guesses the rest, then the other way round. The null:
    methods permuted within cases.
    """
    cases = np.array([option.case for option in seen])
    truth = np.array([METHODS.index(option.method) for option in seen])
    guesses = np.empty_like(truth)
    for half in (0, 1):
        known = cases % 2 == half
        forest = RandomForestClassifier(200, random_state=seed)
        guesses[~known] = forest.fit(features[known], truth[known]).predict(features[~known])
    right = (guesses == truth).sum()
    rng = np.random.default_rng(seed)
    truths = np.broadcast_to(truth.reshape(CASES, -1), (20_000, CASES, len(METHODS)))
    lucky = (rng.permuted(truths, axis=-1) == guesses.reshape(CASES, -1)).sum((1, 2))
    return float((1 + (lucky >= right).sum()) / (1 + len(lucky)))


def test_a_curious_reader_does_no_better_than_chance(seen):
    """Only times can differ from run to run; with p > 0.0002, luck fails this once in 5,000."""
    features = np.array([clues(option) for option in seen], dtype=float)
    assert p_of_guessing(features, seen) > 0.0002
    # Within a case: which was quicker, which identifier sorts first?
    shaped = features.reshape(CASES, len(METHODS), -1)
    order = shaped.argsort(1).argsort(1).reshape(len(seen), -1).astype(float)
    assert p_of_guessing(order, seen, 1) > 0.0002


def test_the_same_reader_would_succeed_with_ordinary_pictures(seen):
    """The attack is no straw man: the sizes of compressed files give methods away."""
    sizes = []
    for option in seen:
        buffer = io.BytesIO()
        with Image.open(io.BytesIO(option.bodies[0])) as picture:
            picture.save(buffer, "PNG", optimize=True)
        sizes.append([len(buffer.getvalue())])
    assert p_of_guessing(np.array(sizes, dtype=float), seen) < 0.0002


def test_bytes_differ_in_nothing_but_the_selection(seen):
    for layer in (0, 1):
        assert len({len(option.bodies[layer]) for option in seen}) == 1
        assert len({repr(option.heads[layer]) for option in seen}) == 1
        around = {
            repr([(kind, None if kind == "IDAT" else content) for kind, content in parts])
            for parts in (chunks(option.bodies[layer]) for option in seen)
        }
        assert len(around) == 1
        kinds = [kind for kind, _ in chunks(seen[0].bodies[layer])]
        assert kinds == ["IHDR", "PLTE", "tRNS", "IDAT", "IEND"]


def test_places_are_balanced(seen):
    counts = np.zeros((len(METHODS), len(METHODS)), int)
    for option in seen:
        counts[METHODS.index(option.method), option.position] += 1
    assert counts.max() - counts.min() <= 1


def test_no_method_or_source_is_named_anywhere(made, pages, seen):
    served = [page.content for page in pages] + [body for o in seen for body in o.bodies]
    served += [repr(list(page.headers.items())).encode() for page in pages]
    text = b"\n".join(served).lower()
    for word in (*METHODS, "patient", "film", "manifest", "key.json"):
        assert word.lower().encode() not in text, word
    public = (made.folder / "study.json").read_text().lower()
    for word in (*METHODS, "patient", "seed", "secret"):
        assert word.lower() not in public, word
    assert not any(method.encode() in (made.folder / "answers.sqlite").read_bytes()
                   for method in METHODS)  # fmt: skip


def test_pages_differ_in_nothing_but_numbers_and_identifiers(pages):
    """Source of two cases, with identifiers and numbers blanked, is the same."""
    cases = [page.text for page in pages[5:-1]]  # all but the first and the last, which differ

    def blank(text: str) -> str:
        return re.sub(r"\d+", "0", re.sub(r"[0-9a-f]{24}", "", text))

    assert len({blank(text) for text in cases}) == 1


def test_identifiers_are_a_reader_s_own(made):
    study = read_study(made.folder)

    def of(reader: int) -> set[str]:
        cases = study.readers[reader].cases
        found = {case.id for case in cases} | {case.image for case in cases}
        return found.union(*({o.over, o.hide} for case in cases for o in case.options))

    assert not of(0) & of(1)
    assert len(of(0)) == CASES * (2 + 2 * len(METHODS))


def test_files_of_a_study_do_not_tell_by_size_or_date(made):
    files = list((made.folder / "pictures").iterdir())
    layers = [path for path in files if b"PLTE" in path.read_bytes()[:60]]
    assert len(layers) == CASES * 2 * len(METHODS)
    assert len({path.stat().st_size for path in layers}) == 1
    assert len({path.stat().st_mtime for path in files}) == 1


def test_the_server_has_no_code_that_opens_the_key(made):
    code = (
        "import sys, unmasked.study.serving, unmasked.study.server; "
        "print([m for m in sys.modules if m in ('unmasked.study.key', 'unmasked.study.create', "
        "'unmasked.study.analysis', 'torch')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_readers_of_one_case_see_different_orders(made, key):
    """Two readers' orders of the same case agree as often as chance has it, ± 5 standard errors."""
    study = read_study(made.folder)
    assert read_key.__module__ == "unmasked.study.key"
    orders = [{}, {}]
    for r, reader in enumerate(study.readers):
        for case in reader.cases:
            told = key["readers"][r]["cases"][case.id]
            orders[r][told["case"]] = told["methods"]
    same = sum(orders[0][c] == orders[1][c] for c in range(CASES))
    chance = 1 / 24
    assert abs(same - CASES * chance) < 5 * np.sqrt(CASES * chance * (1 - chance))
