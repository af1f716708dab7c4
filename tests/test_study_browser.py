"""Readers at work in a real browser: every answer that a page shows as saved is there."""

from __future__ import annotations

import json
import re
import resource
from pathlib import Path

import pytest
from small_studies import CHROMIUM, wait_for

pytest.importorskip("playwright", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

from playwright.sync_api import expect, sync_playwright  # noqa: E402
from study_browsers import Place, accessible, choose, drag, launch, saved, tab_to  # noqa: E402
from study_pictures import FOLDER, NAMES, take  # noqa: E402

READERS = ("mouse", "keyboard", "reload", "left", "right", "killed", "full", "offline", "touch")
READERS += ("windows", "looking", "slow", "lost")
CASES = 2


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("browser"), READERS, CASES)
    yield place
    place.server.stop()


@pytest.fixture
def page(browser):
    """A page whose errors fail the test, as does every request to elsewhere."""
    context = browser.new_context(viewport={"width": 1366, "height": 860})
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("dialog", lambda dialog: dialog.accept())
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith("http://127.0.0.1:")
            else page.problems.append(request.url)
        ),
    )
    page.on(
        "console",
        lambda message: (
            page.problems.append(message.text)
            if "Content Security Policy" in message.text
            else None
        ),
    )
    yield page
    context.close()
    assert not page.problems


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
    assert page.locator("#progress").get_attribute("value") == "1"
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


def test_reloading_in_mid_case_loses_nothing(place, page):
    page.goto(place.link("reload") + "/case/1")
    choose(page, 0, 1)
    choose(page, 1, 2)
    page.fill("#remark", "half a rem")
    page.reload()  # at once: the remark is still on its way
    expect(page.locator("#remark")).to_have_value("half a rem")
    expect(page.locator("#words")).to_have_text("1st: A, 2nd: B")
    saved(page)
    assert place.stored("reload")["remark"] == "half a rem"
    assert place.stored("reload")["places"] == [1, 2, None, None]


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


def test_killed_and_restarted_between_two_answers(place, page):
    page.goto(place.link("killed") + "/case/1")
    choose(page, 0, 1)
    saved(page)
    place.server.kill()
    assert place.stored("killed")["places"] == [1, None, None, None]  # it was on the disk
    choose(page, 1, 2)
    page.wait_for_selector("#problem:visible")
    expect(page.locator("#saved")).to_have_text("Not saved yet")
    expect(page.locator("#problem")).to_contain_text("stay on this page")
    accessible(page)
    choose(page, 2, 3)
    assert place.stored("killed")["places"] == [1, None, None, None]
    page.click("#next")  # does not leave with an answer that is not saved
    assert page.url.endswith("/case/1")
    place.server.start()
    page.wait_for_url("**/case/*")
    wait_for(lambda: place.stored("killed")["places"] == [1, 2, 3, None])
    saved(page)
    expect(page.locator("#problem")).to_be_hidden()


def test_saved_is_said_after_the_servers_reply_and_not_before(place, page):
    held = []

    def hold_the_first(route) -> None:
        route.continue_() if held else held.append(route)

    page.goto(place.link("slow") + "/case/1")
    page.route("**/answer/*", hold_the_first)
    choose(page, 0, 1)
    expect(page.locator("#saved")).to_have_text("Saving…")
    page.click("#next")  # waits, too
    choose(page, 1, 2)
    assert len(held) == 1
    assert page.locator("#saved").get_attribute("data-state") == "saving"
    assert page.url.endswith("/case/1")
    assert place.stored("slow") == {}
    held[0].continue_()
    page.wait_for_url("**/case/2")
    assert place.stored("slow")["places"] == [1, 2, None, None]


def test_a_reply_that_is_lost_does_not_save_twice(place, page):
    def lose(route) -> None:
        route.fetch()  # the server has it
        route.abort()  # the page does not know
        page.unroute("**/answer/*")

    page.goto(place.link("lost") + "/case/1")
    page.route("**/answer/*", lose)
    choose(page, 0, 1)
    page.wait_for_selector("#problem:visible")
    choose(page, 1, 2)
    saved(page)
    places = [json.loads(record.content)["places"] for record in place.records("lost")]
    assert places == [[1, None, None, None], [1, 2, None, None]]


def test_a_full_disk_is_said_and_the_page_keeps_everything(place, page):
    page.goto(place.link("full") + "/case/1")
    choose(page, 0, 4)
    saved(page)
    pid = place.server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (512, before[1]))  # stands in for a full disk
    choose(page, 1, 3)
    page.wait_for_selector("#problem:visible")
    expect(page.locator("#problem")).to_contain_text("Nothing was saved")
    expect(page.locator("#words")).to_have_text("1st: B, 2nd: A")  # still on the page
    assert place.stored("full")["places"] == [4, None, None, None]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    saved(page)
    assert place.stored("full")["places"] == [4, 3, None, None]


def test_losing_the_network_and_closing_the_tab_loses_nothing(place, page):
    page.goto(place.link("offline") + "/case/1")
    choose(page, 0, 2)
    saved(page)
    page.context.set_offline(True)
    choose(page, 1, 1)
    page.wait_for_selector("#problem:visible")
    context = page.context
    page.close()
    context.set_offline(False)
    assert place.stored("offline")["places"] == [2, None, None, None]
    again = context.new_page()
    again.goto(place.link("offline") + "/case/1")  # the draft is sent when the page is back
    saved(again)
    wait_for(lambda: place.stored("offline")["places"] == [2, 1, None, None])
    expect(again.locator("#words")).to_have_text("1st: B, 2nd: A")


def test_two_windows_of_one_reader_do_not_overwrite_each_other(place, page):
    other = page.context.new_page()
    for window in (page, other):
        window.goto(place.link("windows") + "/case/1")
    choose(page, 0, 1)
    saved(page)
    choose(other, 0, 4)
    expect(other.locator("#problem")).to_contain_text("another window")
    assert place.stored("windows")["places"] == [1, None, None, None]
    other.reload()
    expect(other.locator("#words")).to_have_text("1st: A")


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
