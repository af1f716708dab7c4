"""The gallery: whole, self-contained, escaped, readable by everyone, and so in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from unmasked import InputError, OutputError
from unmasked.io import gallery
from unmasked.io.gallery import Card, Picture, render, write_gallery
from unmasked.plots.overlays import overlay, png, to_rgb

IMAGE = np.arange(28 * 28).reshape(28, 28)
ORIGINAL = Picture("original", png(to_rgb(IMAGE)), "a slope from dark to bright")
SELECTION = Picture("REAL-X", png(overlay(IMAGE, IMAGE > 700)), "the bright end is shown")
NASTY = "</title><script>alert(1)</script>\" onload='x' &amp; {{ title }} <!--"


def cards(groups: int = 2, each: int = 3) -> list[Card]:
    return [
        Card(f"digit {g}", f"image {g}.{i}", "label 3, predicted 3 (0.98), shows 1.3%",
             [ORIGINAL, SELECTION], {"log-likelihood": "−0.21"})
        for g in range(groups) for i in range(each)
    ]  # fmt: skip


class Page(HTMLParser):
    """Tags with their attributes and the text of each element, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.tags[-1][0], data.strip()))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]

    def levels(self) -> list[int]:
        return [int(tag[1]) for tag, _ in self.tags if re.fullmatch("h[1-6]", tag)]


# ---------------------------------------------------------------------- what is on the page


def test_words_pictures_and_facts_are_there_in_order() -> None:
    page = Page(
        render("Digits", cards(), lead=["Orange is shown.", "Look."], facts={"λ": "5"}, footer="me")
    )
    assert page.text("title") == page.text("h1") == ["Digits"]
    assert page.text("h2") == ["digit 0", "digit 1"]
    assert page.text("h3") == [f"image {g}.{i}" for g in range(2) for i in range(3)]
    assert page.text("p")[:3] == ["Orange is shown.", "Look.", cards()[0].caption]
    assert page.text("figcaption") == ["original", "REAL-X"] * 6
    assert page.text("dt") == ["λ"] + ["log-likelihood"] * 6
    assert page.text("dd") == ["5"] + ["−0.21"] * 6
    assert page.text("footer") == ["me"]


def test_every_picture_has_words_a_size_and_its_own_bytes() -> None:
    images = Page(render("t", cards())).all("img")
    assert len(images) == 12
    assert [image["alt"] for image in images] == [ORIGINAL.alt, SELECTION.alt] * 6
    assert [image["src"] for image in images] == [ORIGINAL.uri, SELECTION.uri] * 6
    assert [(image["width"], image["height"]) for image in images[:2]] == [
        ("28", "28"), ("224", "224"),
    ]  # fmt: skip
    assert [image.get("class") for image in images[:2]] == ["small", None]


def test_cards_gather_by_group_in_the_order_of_first_sight() -> None:
    mixed = [cards(3, 1)[g] for g in (2, 0, 2, 1)]
    page = Page(render("t", mixed))
    assert page.text("h2") == ["digit 2", "digit 0", "digit 1"]
    assert page.text("h3") == ["image 2.0", "image 2.0", "image 0.0", "image 1.0"]


def test_contents_link_to_every_group_and_only_where_there_are_several() -> None:
    page = Page(render("t", cards(12, 1)))
    links = [link["href"] for link in page.all("a")]
    places = [f"#{section['id']}" for section in page.all("section")]
    assert links == places
    assert len(set(links)) == 12
    assert page.text("a") == [f"digit {g}" for g in range(12)]
    assert page.all("nav") == [{"aria-label": "Groups"}]
    assert not Page(render("t", cards(1, 3))).all("nav")


def test_groups_of_which_some_are_shown_say_of_how_many() -> None:
    page = Page(render("t", cards(3, 2), totals={"digit 0": 23, "digit 1": 2}))
    assert [text for tag, text in page.texts if tag == "h2"] == ["digit 0", "digit 1", "digit 2"]
    assert page.text("span") == ["2 of 23", "2", "2", "2 of 23"]  # of the contents, of a heading


@pytest.mark.parametrize(
    ("groups", "levels"),
    [
        (["a"], [1, 2, 3]),
        ([""], [1, 2]),
        (["a", "b"], [1, 2, 3, 2, 3]),
        (["", "b"], [1, 2, 3, 2, 3]),
    ],
)
def test_headings_never_skip_a_level(groups: list[str], levels: list[int]) -> None:
    page = Page(render("t", [Card(group, "one", "", [ORIGINAL]) for group in groups]))
    assert page.levels() == levels
    assert all(page.text(f"h{level}") for level in set(levels))  # none is empty


def test_empty_words_leave_no_empty_elements() -> None:
    bare = Picture("", ORIGINAL.png, "a slope")
    text = render("t", [Card("", "", "", [bare])])
    assert Page(text).levels() == [1]
    for tag in ("p", "figcaption", "dl", "footer", "nav", "h2", "h3"):
        assert f"<{tag}" not in text.split("</style>")[1]


def test_ids_are_unique_and_labels_exist() -> None:
    page = Page(render("t", cards(5, 1)))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids)) == 10
    assert {section["aria-labelledby"] for section in page.all("section")} <= set(ids)


# ---------------------------------------------------------------------- safe to open


def test_nothing_comes_from_elsewhere() -> None:
    text = render("t", cards(), lead=["words"], facts={"a": "b"}, footer="f")
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "form"}
    assert "://" not in text
    assert "url(" not in text
    assert "@import" not in text
    for _, attributes in page.tags:
        assert str(attributes.get("src", ORIGINAL.uri)).startswith("data:image/png;base64,")
        assert str(attributes.get("href", "#")).startswith("#")
        assert not [name for name in attributes if name.startswith("on")]


def test_the_policy_allows_inline_style_and_data_images_only() -> None:
    page = Page(render("t", cards()))
    names = [tag for tag, _ in page.tags]
    policy = next(m for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in str(policy["content"]).split(";"))
    assert rules == {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": "'unsafe-inline'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    before = page.tags[: names.index("style")]
    assert ("meta", policy) in before  # a policy holds for what follows it


def test_everything_given_is_escaped() -> None:
    nasty = Picture(NASTY, ORIGINAL.png, NASTY)
    text = render(
        NASTY,
        [Card(NASTY, NASTY, NASTY, [nasty], {NASTY: NASTY}), Card("b", "b", "b", [ORIGINAL])],
        lead=[NASTY],
        facts={NASTY: NASTY},
        footer=NASTY,
    )
    page = Page(text)
    assert "<script" not in text
    assert "<!--" not in text
    assert not page.all("script")
    assert {image["alt"] for image in page.all("img")} == {NASTY, ORIGINAL.alt}
    for tag in ("title", "h1", "h2", "h3", "figcaption", "dt", "dd", "a", "footer", "p"):
        assert page.text(tag)[0] == NASTY
    assert not [a for _, a in page.tags if any(name.startswith("on") for name in a)]


# ---------------------------------------------------------------------- the file


def test_the_file_is_the_page_and_the_same_each_time(tmp_path: Path) -> None:
    path = tmp_path / "new" / "gallery.html"
    write_gallery(path, "Ziffern, 数字", cards(), columns=2)
    first = path.read_bytes()
    assert first.decode("utf-8") == render("Ziffern, 数字", cards(), columns=2)
    write_gallery(path, "Ziffern, 数字", cards(), columns=2)
    assert path.read_bytes() == first
    assert [item.name for item in path.parent.iterdir()] == ["gallery.html"]


def test_a_failed_write_leaves_the_earlier_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gallery.html"
    write_gallery(path, "earlier", cards())
    before = path.read_bytes()

    def half(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OutputError, match="No space left on device"):
        write_gallery(path, "later", cards())
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["gallery.html"]


def test_a_folder_is_not_replaced_by_a_page(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "precious.txt").write_text("x")
    with pytest.raises(OutputError, match=r"must be a file but .*results is a folder"):
        write_gallery(tmp_path / "results", "t", cards())
    assert (tmp_path / "results" / "precious.txt").read_text() == "x"


def test_a_name_that_is_no_text_does_not_stop_the_page(tmp_path: Path) -> None:
    name = b"scan-\xff.png".decode("utf-8", errors="surrogateescape")
    write_gallery(tmp_path / "g.html", "t", [Card("", name, "", [ORIGINAL])])
    assert Page((tmp_path / "g.html").read_text(encoding="utf-8")).text("h2") == ["scan-?.png"]


def test_a_page_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = 2 * sum(4 * -(-len(p.png) // 3) for p in (ORIGINAL, SELECTION))
    monkeypatch.setattr(gallery, "MOST_BYTES", data)
    write_gallery(tmp_path / "g.html", "t", cards(1, 2))
    assert (tmp_path / "g.html").read_text().count("base64,") == 4
    with pytest.raises(InputError, match="its 6 pictures make 0 MB; show fewer images or smaller"):
        write_gallery(tmp_path / "more.html", "t", cards(1, 3))
    assert not (tmp_path / "more.html").exists()


def test_the_limit_is_30_megabytes() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1000, 1000, 3), dtype=np.uint8)
    large = Picture("noise", png(noise), "noise")  # 3 MB, 4 MB in base64
    render("t", [Card("", "", "", [large] * 7)])
    with pytest.raises(InputError, match="may have 30 MB but its 8 pictures make 32 MB"):
        render("t", [Card("", "", "", [large] * 8)])


def test_what_cannot_be_shown_is_refused() -> None:
    with pytest.raises(InputError, match="must have cards but none came"):
        render("t", [])
    with pytest.raises(InputError, match="columns must be at least 1 but is 0"):
        render("t", cards(), columns=0)
    with pytest.raises(InputError, match="the card 'x' must have pictures but has none"):
        Card("", "x", "", [])
    with pytest.raises(InputError, match="alt text is empty"):
        Picture("x", ORIGINAL.png, " ")
    with pytest.raises(InputError, match="bytes of a PNG file but begins with b'GIF89a'"):
        Picture("x", b"GIF89a", "a picture")


# ---------------------------------------------------------------------- in a browser

Look = Callable[..., Any]


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Look]:
    """look(text, expression, width, scheme) -> what the expression is on the page, in Chromium."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("chromium is not installed")
    folder = tmp_path_factory.mktemp("browser")
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}",
    ]  # fmt: skip
    # The browser reads orders from its file 3 and answers in its file 4.
    script = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
    command = ["sh", "-c", script, chromium, *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        watchdog = threading.Timer(240, process.kill)  # a hanging browser fails, not hangs, tests
        watchdog.start()
        try:
            pipe = Pipe(process.stdin, process.stdout)
            target = pipe.call("Target.createTarget", url="about:blank")["targetId"]
            attached = pipe.call("Target.attachToTarget", targetId=target, flatten=True)
            pipe.session = attached["sessionId"]
            pipe.call("Page.enable")

            def on_page(
                text: str, expression: str, *, width: int = 390, scheme: str = "light"
            ) -> Any:
                path = folder / "page.html"
                path.write_text(text, encoding="utf-8")
                features = [{"name": "prefers-color-scheme", "value": scheme}]
                pipe.call("Emulation.setEmulatedMedia", features=features)
                pipe.call(
                    "Emulation.setDeviceMetricsOverride",
                    width=width, height=900, deviceScaleFactor=1, mobile=False,
                )  # fmt: skip
                pipe.call("Page.navigate", url=path.as_uri())
                pipe.wait("Page.loadEventFired")
                answer = pipe.call("Runtime.evaluate", expression=expression, returnByValue=True)
                assert "exceptionDetails" not in answer, answer
                return answer["result"]["value"]

            yield on_page
            pipe.session = None
            pipe.call("Browser.close")
            process.wait(60)
        finally:
            watchdog.cancel()
            process.kill()


class Pipe:
    """Orders to a browser, and its answers: JSON messages with a zero byte after each."""

    def __init__(self, orders: IO[bytes], answers: IO[bytes]) -> None:
        self.orders, self.answers = orders, answers
        self.session: str | None = None
        self.number = 0
        self.events: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        self.events.clear()
        order: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            order["sessionId"] = self.session
        self.orders.write(json.dumps(order).encode() + b"\0")
        self.orders.flush()
        while (message := self.read()).get("id") != self.number:
            self.events.append(message.get("method", ""))
        assert "error" not in message, message
        return message["result"]

    def wait(self, event: str) -> None:
        while event not in self.events:
            self.events.append(self.read().get("method", ""))

    def read(self) -> dict[str, Any]:
        data = bytearray()
        while not data.endswith(b"\0"):
            byte = self.answers.read(1)
            assert byte, "chromium went away"
            data += byte
        return json.loads(data[:-1])


LONG = "a_name_without_any_space_" * 12


@pytest.mark.parametrize("across", [1, 2, 3, 7])
def test_a_phone_shows_everything_without_scrolling_sideways(look: Look, across: int) -> None:
    pictures = [Picture(LONG, p.png, "x") for p in [ORIGINAL, SELECTION] * 4][:across]
    many = [Card(f"{LONG} {g}", LONG, LONG, pictures, {LONG: LONG}) for g in range(4)]
    text = render(LONG, many, lead=[LONG], facts={LONG: LONG}, columns=3, footer=LONG)
    seen = look(
        text,
        """({
            wide: document.documentElement.scrollWidth, room: innerWidth,
            images: [...document.images].map(i => {
                const box = i.getBoundingClientRect();
                return [i.complete, i.naturalWidth, i.naturalHeight, box.left, box.right,
                        box.width / box.height, getComputedStyle(i).imageRendering];
            }),
            past: [...document.querySelectorAll("h1, h2, h3, p, figcaption, dd, dt, footer")]
                .filter(e => e.scrollWidth > e.clientWidth || e.getBoundingClientRect().right > 390)
                .map(e => e.tagName),
            stacked: [...document.querySelectorAll("article")].every(card => {
                const parts = [...card.children].map(e => e.getBoundingClientRect());
                const end = card.getBoundingClientRect().bottom;
                return parts.every((box, i) => box.bottom <= (parts[i + 1]?.top ?? end));
            }),
        })""",
    )
    assert seen["wide"] == seen["room"] == 390
    assert seen["past"] == []
    assert seen["stacked"]  # words, pictures and facts, none above another
    assert len(seen["images"]) == 4 * across
    for i, (complete, width, height, left, right, ratio, rendering) in enumerate(seen["images"]):
        first = i % across % 2 == 0
        assert (complete, width, height) == (True, *((28, 28) if first else (224, 224)))
        assert left >= 0
        assert right <= 390
        assert right - left >= 90  # large enough to be seen
        assert ratio == pytest.approx(1, abs=0.01)
        assert rendering == ("pixelated" if first else "auto")


FIRST_ROW = """(() => {
    const cards = [...document.querySelectorAll("article")];
    const top = cards[0].getBoundingClientRect().top;
    const row = cards.filter(c => c.getBoundingClientRect().top === top);
    const tops = row.map(c => c.querySelector("img").getBoundingClientRect().top);
    return [row.length, new Set(tops).size];
})()"""


def test_columns_are_the_most_cards_side_by_side_and_their_pictures_are_level(look: Look) -> None:
    some = [Card("", "t", "word " * (1 + 30 * (i == 1)), [ORIGINAL, SELECTION]) for i in range(9)]
    free = look(render("t", some), FIRST_ROW, width=1300)
    assert free[0] > 2
    assert free[1] == 1
    assert look(render("t", some, columns=2), FIRST_ROW, width=1300) == [2, 1]
    assert look(render("t", some, columns=1), FIRST_ROW, width=1300) == [1, 1]
    assert look(render("t", some, columns=2), FIRST_ROW, width=390)[0] == 1


def test_light_and_dark_have_enough_contrast(look: Look) -> None:
    colours = """["body", ".caption", "dt", "nav span"].map(s => {
        const style = getComputedStyle(document.querySelector(s));
        return [style.color, getComputedStyle(document.body).backgroundColor];
    })"""
    papers = set()
    for scheme in ("light", "dark"):
        for ink, paper in look(render("t", cards()), colours, scheme=scheme):
            one, other = sorted(map(luminance, (ink, paper)))
            assert (other + 0.05) / (one + 0.05) >= 4.5  # WCAG AA
            papers.add((scheme, luminance(paper) > 0.5))
    assert papers == {("light", True), ("dark", False)}


def luminance(colour: str) -> float:
    share = np.array([int(number) for number in re.findall(r"\d+", colour)[:3]]) / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
