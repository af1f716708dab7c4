"""A browser at work on a study: what tests and the guide's pictures share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright
from small_studies import CHROMIUM, LiveServer, small_study

from unmasked.study.database import Record, open_database
from unmasked.study.folder import read_study
from unmasked.study.serving import free_port


def launch(playwright) -> Browser:
    return playwright.chromium.launch(
        executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
    )


@contextmanager
def a_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@contextmanager
def strict_page(browser: Browser) -> Iterator[Page]:
    """A page whose errors fail the test, as does every request to elsewhere."""
    context = browser.new_context(viewport={"width": 1366, "height": 860})
    page = context.new_page()
    problems: list[str] = []

    def asked(url: str) -> None:
        if not url.startswith("http://127.0.0.1:"):
            problems.append(url)

    def said(text: str) -> None:
        if "Content Security Policy" in text:
            problems.append(text)

    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: dialog.accept())
    page.on("request", lambda request: asked(request.url))
    page.on("console", lambda message: said(message.text))
    yield page
    context.close()
    assert not problems


def saved(page: Page) -> None:
    """Wait until the page says that everything is saved."""
    page.wait_for_selector("#saved[data-state=saved]")


def drag(page: Page, option: int, place: int | str) -> None:
    """Drag an option's letter to a place with the mouse."""
    chip = page.locator(f".chip[data-option='{option}']").first.bounding_box()
    lane = page.locator(f".lane[data-place='{place}']").bounding_box()
    page.mouse.move(chip["x"] + chip["width"] / 2, chip["y"] + chip["height"] / 2)
    page.mouse.down()
    page.mouse.move(chip["x"] + 30, chip["y"] + 40, steps=3)
    page.mouse.move(lane["x"] + lane["width"] / 2, lane["y"] + 45, steps=5)
    page.mouse.up()


def accessible(page: Page) -> None:
    """axe-core finds nothing."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def choose(page: Page, option: int, place: int) -> None:
    page.locator(f".option[data-option='{option}'] input[value='{place}']").check(force=True)


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the focus is there, as somebody without a mouse does."""
    for _ in range(60):
        if page.evaluate("s => document.activeElement.matches(s)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab never reaches {selector}")


class Place:
    """A study that is served, and what is in its database."""

    def __init__(self, folder: Path, readers: tuple[str, ...], cases: int, port: int) -> None:
        self.made = small_study(folder, cases=cases, readers=readers)
        self.readers = readers
        self.study = read_study(self.made.folder)
        self.server = LiveServer(self.made.folder, free_port("127.0.0.1", port))

    def link(self, reader: str) -> str:
        return f"{self.server.url}/r/{dict(self.made.readers)[reader]}"

    @property
    def owner(self) -> str:
        return f"{self.server.url}/o/{self.made.owner}"

    def records(self, reader: str) -> list[Record]:
        """Every answer of a reader that was ever saved."""
        database = open_database(self.study.answers, self.study.digest, write=False)
        mine = self.readers.index(reader)
        found = [r for r in database.records() if r.reader == mine and r.kind == "answer"]
        database.close()
        return found

    def stored(self, reader: str, number: int = 1) -> dict:
        """The last answer to a case, read by another process's eyes."""
        database = open_database(self.study.answers, self.study.digest, write=False)
        index = self.readers.index(reader)
        case = self.study.readers[index].cases[number - 1].id
        version = database.answers(index).get(case)
        database.close()
        return {} if version is None else json.loads(version.record.content)


@contextmanager
def served(folder: Path, readers: tuple[str, ...], cases: int, *, port: int) -> Iterator[Place]:
    """A study that is served from the first free port on; modules run at once, so each has its."""
    place = Place(folder, readers, cases, port)
    try:
        yield place
    finally:
        place.server.stop()
