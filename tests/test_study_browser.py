"""Readers at work in a real browser: mouse, keyboard, finger; every page, at every size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from small_studies import CHROMIUM

pytest.importorskip("playwright", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

from playwright.sync_api import expect  # noqa: E402
from study_browsers import (  # noqa: E402
    a_browser,
    accessible,
    choose,
    drag,
    saved,
    served,
    strict_page,
    tab_to,
)
from study_pictures import FOLDER, NAMES, take  # noqa: E402

READERS = ("mouse", "keyboard", "left", "right", "touch", "looking", "pieces")
CASES = 2


@pytest.fixture(scope="module")
def browser():
    with a_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with served(tmp_path_factory.mktemp("browser"), READERS, CASES, port=8950) as place:
        yield place


@pytest.fixture
def page(browser):
    with strict_page(browser) as page:
        yield page


def test_a_whole_study_with_the_mouse(place, page):
    page.goto(place.link("mouse"))
    accessible(page)
    page.click("#start")
    expect(page.locator("#saved")).to_have_text("Nothing answered yet")
    accessible(page)
    for option, where in enumerate((2, 1, 2, 4)):
        drag(page, option, where)
    expect(page.locator("#words")).to_have_text("1st: B, 2nd: A and C (tied), 4th: D")
    expect(page.locator("#missing")).to_have_text("Still open: sufficiency")
    page.locator(".sufficient").nth(1).check()
    page.fill("#remark", "heart's edge is missing")
    saved(page)
    accessible(page)
    progress = page.locator("#progress")
    assert progress.get_attribute("value") == "1"
    assert progress.get_attribute("aria-label") == "1 of 2 cases answered"
    assert place.stored("mouse") == {
        "places": [2, 1, 2, 4],
        "sufficient": [False, True, False, False],
        "remark": "heart's edge is missing",
    }
    drag(page, 3, "")  # taken back
    drag(page, 3, 3)
    page.click("#next")  # goes when the answer is saved
    page.wait_for_url("**/case/2")
    assert place.stored("mouse")["places"] == [2, 1, 2, 3]
    assert progress.get_attribute("value") == "1"
    for option in range(4):
        drag(page, option, 1)
    page.check("#none")
    page.click("#next")
    page.wait_for_url("**/review")
    assert place.stored("mouse", 2)["sufficient"] == [False] * 4
    accessible(page)
    page.click("text=Case 1")
    expect(page.locator("#remark")).to_have_value("heart's edge is missing")
    page.click("#pause")
    page.wait_for_url("**/pause")
    accessible(page)
    page.goto(place.link("mouse") + "/review")
    with page.expect_download() as download:
        page.click("text=Copy of your answers")
    assert "1,B,1,yes," in Path(download.value.path()).read_text()
    page.click("text=Finish the study")
    page.wait_for_selector("text=The study is finished")
    accessible(page)
    page.goto(place.link("mouse") + "/case/1")
    assert "/case/" not in page.url


def test_a_whole_study_with_the_keyboard_alone(place, page):
    page.goto(place.link("keyboard"))
    tab_to(page, "#start")
    page.keyboard.press("Enter")
    page.wait_for_url("**/case/1")
    tab_to(page, ".panes")
    for key in ("+", "+", "ArrowLeft"):
        page.keyboard.press(key)
    expect(page.locator("#zoom")).to_have_text("156%")
    page.keyboard.press("0")
    expect(page.locator("#zoom")).to_have_text("100%")
    for option, key in enumerate("1324"):
        tab_to(page, f".option[data-option='{option}'] .view")
        expect(page.locator("#caption")).to_have_text(f"Option {'ABCD'[option]}")
        page.keyboard.press(key)
    page.keyboard.press("Backspace")
    tab_to(page, ".option[data-option='3'] input[type=radio]")
    page.keyboard.press("Space")  # as radio buttons do everywhere
    page.keyboard.press("ArrowRight")
    tab_to(page, ".option[data-option='3'] .sufficient")
    page.keyboard.press("s")
    tab_to(page, "#remark")
    page.keyboard.type("typed 1 2 3 s")  # shortcuts do not act in text
    tab_to(page, "#next")
    page.keyboard.press("Enter")
    page.wait_for_url("**/case/2")
    assert place.stored("keyboard") == {
        "places": [1, 3, 2, 2],
        "sufficient": [False, False, False, True],
        "remark": "typed 1 2 3 s",
    }
    for option in range(4):
        tab_to(page, f".option[data-option='{option}'] .view")
        page.keyboard.press(str(option + 1))
    tab_to(page, "#none")
    page.keyboard.press("Space")
    tab_to(page, "#next")
    page.keyboard.press("Enter")
    page.wait_for_url("**/review")
    tab_to(page, "[data-post]")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=The study is finished")
    assert place.stored("keyboard", 2)["places"] == [1, 2, 3, 4]


def test_two_readers_at_once(place, browser):
    pages = {name: browser.new_context().new_page() for name in ("left", "right")}
    orders = {"left": (1, 2, 3, 4), "right": (4, 3, 2, 1)}
    for name, page in pages.items():
        page.goto(place.link(name) + "/case/1")
    for option in range(4):  # in turns
        for name, page in pages.items():
            choose(page, option, orders[name][option])
    for name, page in pages.items():
        saved(page)
        assert tuple(place.stored(name)["places"]) == orders[name]
        page.context.close()


@pytest.mark.parametrize(("width", "height"), [(1366, 720), (1180, 820), (820, 1180), (390, 844)])
def test_pages_fit_the_screen(place, browser, width, height):
    """Nothing sticks out sideways; a wide screen shows a case, with all its options, as a whole."""
    touch = width < 1200
    context = browser.new_context(
        viewport={"width": width, "height": height}, has_touch=touch, is_mobile=touch
    )
    page = context.new_page()
    for url in (place.owner, place.link("looking"), place.link("looking") + "/case/1"):
        page.goto(url)
        assert page.evaluate("document.documentElement.scrollWidth") == width, url
    if width > 1100:
        assert page.evaluate("document.documentElement.scrollHeight") == height
        steps = page.locator(".steps").bounding_box()
        last = page.locator(".option .places").last.bounding_box()
        assert last["y"] + last["height"] <= steps["y"]
    context.close()


def test_a_finger_on_a_tablet(place, browser):
    context = browser.new_context(
        viewport={"width": 820, "height": 1180}, has_touch=True, is_mobile=True
    )
    page = context.new_page()
    page.goto(place.link("touch") + "/case/1")
    for option, where in enumerate((1, 2, 3, 4)):
        page.locator(f".option[data-option='{option}'] input[value='{where}']").tap(force=True)
    page.locator(".sufficient").first.tap()
    saved(page)
    accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    small = page.evaluate(
        """[...document.querySelectorAll('button, .button, .places span, .chip')]
           .filter(e => e.offsetParent && Math.min(e.offsetHeight, e.offsetWidth) < 34).length"""
    )
    assert small == 0  # nothing is too small for a finger
    page.goto(place.link("touch") + "/case/2")
    touch = context.new_cdp_session(page)
    chip = page.locator(".chip").first.bounding_box()
    lane = page.locator(".lane[data-place='2']")
    lane.scroll_into_view_if_needed()
    chip, box = page.locator(".chip").first.bounding_box(), lane.bounding_box()

    def point(x: float, y: float) -> list[dict]:
        return [{"x": x, "y": y}]

    start = point(chip["x"] + 15, chip["y"] + 15)
    end = point(box["x"] + box["width"] / 2, box["y"] + 45)
    for kind, points in (("Start", start), ("Move", point(chip["x"] + 40, chip["y"] + 30)),
                         ("Move", end), ("End", [])):  # fmt: skip
        touch.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})
    saved(page)
    assert place.stored("touch", 2)["places"] == [2, None, None, None]
    context.close()


def test_pictures_that_do_not_load_are_said_and_fetched_again(place, page):
    """An option whose selection is missing must not be taken for one that selects nothing."""
    case = place.study.readers[READERS.index("pieces")].cases[0]
    page.route(f"**/picture/{case.options[1].over}", lambda route: route.abort())
    page.goto(place.link("pieces") + "/case/1")
    expect(page.locator("#unseen")).to_be_visible()
    accessible(page)
    page.click(".option[data-option='1'] .view")
    expect(page.locator("#caption")).to_have_text("Option B: not loaded yet")
    page.unroute(f"**/picture/{case.options[1].over}")
    expect(page.locator("#unseen")).to_be_hidden()
    expect(page.locator("#caption")).to_have_text("Option B")


def test_looking_at_an_image(place, page):
    page.goto(place.link("looking") + "/case/1")
    over = page.locator("#over .layer.over[data-option='0']")
    hide = page.locator("#over .layer.hide[data-option='0']")
    expect(over).to_be_visible()
    expect(hide).to_be_hidden()
    page.uncheck("#overlay")
    expect(over).to_be_hidden()
    page.check("#overlay")
    page.check("#only")
    expect(hide).to_be_visible()
    page.uncheck("#only")
    page.fill("#opacity", "40")
    assert over.evaluate("e => e.style.opacity") == "0.4"
    page.fill("#brightness", "150")
    page.fill("#contrast", "80")
    image = page.locator("#over img").first
    assert image.evaluate("e => e.style.filter") == "brightness(1.5) contrast(0.8)"
    box = page.locator("#over").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, -400)
    expect(page.locator("#zoom")).to_have_text("272%")
    moved = "() => document.querySelector('#plain .layers').style.transform"
    before = page.evaluate(moved)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 60, box["y"] + box["height"] / 2 + 20, steps=3)
    page.mouse.up()
    assert page.evaluate(moved) != before  # both panes move together
    page.click("#reset")
    expect(page.locator("#zoom")).to_have_text("100%")
    page.click(".option[data-option='2'] .view")
    expect(page.locator("#caption")).to_have_text("Option C")
    page.uncheck("#beside")
    expect(page.locator("#plain")).to_be_hidden()
    page.goto(place.link("looking") + "/case/2")
    expect(page.locator("#plain")).to_be_hidden()  # how one likes to look stays
    assert page.locator("#brightness").input_value() == "100"
    assert place.stored("looking") == {}  # looking is no answer


def test_the_owner_and_pages_for_nobody(place, page):
    page.goto(place.owner)
    accessible(page)
    page.click("text=New link for touch")
    link = page.locator("#reply code").inner_text()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/r/[\w-]{43}", link)
    assert page.goto(link).status == 200
    assert page.goto(place.link("touch")).status == 403
    accessible(page)
    assert page.goto(place.server.url + "/nothing").status == 404
    accessible(page)
    page.goto(place.server.url)
    accessible(page)


def test_the_guides_pictures(browser, tmp_path):
    """They are taken as for the guide; the guide shows each, and none is missing there."""
    take(browser, tmp_path, tmp_path)
    guide = (FOLDER.parent / "study.md").read_text(encoding="utf-8")
    for name in NAMES:
        taken = (tmp_path / f"{name}.png").read_bytes()
        kept = (FOLDER / f"{name}.png").read_bytes()
        assert taken[16:20] == kept[16:20], f"{name} is out of date: python tests/study_pictures.py"
        assert f"study/{name}.png" in guide
