"""The pictures of docs/study.md, taken from the demonstration in a real browser.

python tests/study_pictures.py      writes docs/study/*.png anew
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from small_studies import CHROMIUM, SECRET, LiveServer
from study_browsers import drag, launch, saved

from unmasked.study.power import METHODS, create_demo
from unmasked.study.serving import free_port

FOLDER = Path(__file__).parents[1] / "docs" / "study"
NAMES = ("instructions", "case", "only", "tablet", "overview", "owner")


def take(browser: Browser, folder: Path, scratch: Path) -> None:
    """All pictures, from a demonstration of its own."""
    made = create_demo(scratch / "demo", cases=6, secret=SECRET)
    server = LiveServer(made.folder, free_port("127.0.0.1", 9000))
    link = f"{server.url}/r/{made.readers[0][1]}"
    first = next(iter(json.loads(made.key.read_text())["readers"][0]["cases"].values()))
    places = [dict(zip(METHODS, (1, 2, 3, 3), strict=True))[method] for method in first["methods"]]
    page = browser.new_page(viewport={"width": 1366, "height": 860})
    try:
        page.goto(link)
        page.screenshot(path=folder / "instructions.png", full_page=True)
        page.goto(f"{link}/case/1")
        for option, place in enumerate(places):
            drag(page, option, place)
        page.locator(".sufficient").nth(places.index(1)).check()
        page.locator(".option").nth(places.index(1)).locator(".view").focus()
        saved(page)
        page.screenshot(path=folder / "case.png")
        page.locator("#only").check()
        page.locator("#beside").uncheck()
        page.screenshot(path=folder / "only.png")
        page.goto(f"{link}/review")
        page.screenshot(path=folder / "overview.png")
        page.goto(f"{server.url}/o/{made.owner}")
        upper = {"x": 0, "y": 0, "width": 1366, "height": 440}
        page.screenshot(path=folder / "owner.png", clip=upper)
        tablet = browser.new_page(
            viewport={"width": 820, "height": 1180}, has_touch=True, is_mobile=True
        )
        tablet.goto(f"{link}/case/1")
        tablet.wait_for_load_state("networkidle")
        tablet.screenshot(path=folder / "tablet.png")
        tablet.close()
    finally:
        page.close()
        server.stop()


if __name__ == "__main__":
    if CHROMIUM is None:
        sys.exit("chromium is not installed")
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as scratch:
        take(launch(playwright), FOLDER, Path(scratch))
