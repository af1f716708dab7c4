"""Nothing that a page shows as saved is lost, and a page never pretends: in a real browser."""

from __future__ import annotations

import json
import resource

import pytest
from small_studies import CHROMIUM, wait_for

pytest.importorskip("playwright", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

from playwright.sync_api import expect  # noqa: E402
from study_browsers import (  # noqa: E402
    a_browser,
    accessible,
    choose,
    saved,
    served,
    strict_page,
)

from unmasked.study.database import open_database  # noqa: E402

READERS = ("reload", "hasty", "killed", "slow", "lost", "full", "offline", "overtaken", "often")
READERS += ("windows", "pieces")
CASES = 2


@pytest.fixture(scope="module")
def browser():
    with a_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with served(tmp_path_factory.mktemp("browser"), READERS, CASES, port=9050) as place:
        yield place


@pytest.fixture
def page(browser):
    with strict_page(browser) as page:
        yield page


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


def test_a_page_that_was_overtaken_by_its_own_answers(place, page):
    """Loaded anew while answers were on their way: the server made it before they came."""
    url = place.link("hasty") + "/case/1"
    page.goto(url)
    choose(page, 0, 1)
    saved(page)
    old = page.request.get(url).text()  # with one answer
    choose(page, 1, 2)
    saved(page)

    def stale(route) -> None:
        route.fulfill(body=old, content_type="text/html")

    page.route(url, stale, times=1)
    page.reload()
    expect(page.locator("#words")).to_have_text("1st: A, 2nd: B")
    page.route("**/answer/*", lambda route: None)  # on its way for ever
    with page.expect_request("**/answer/*"):
        page.fill("#remark", "half a rem")
    page.route(url, stale, times=1)
    page.reload()
    page.unroute("**/answer/*")
    expect(page.locator("#remark")).to_have_value("half a rem")
    expect(page.locator("#words")).to_have_text("1st: A, 2nd: B")
    page.wait_for_selector("#saved:has-text('Saved')")
    assert place.stored("hasty")["remark"] == "half a rem"
    assert place.stored("hasty")["places"] == [1, 2, None, None]


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


def _close_without_a_network(page):
    """What a page sends as it goes may outlive it, and the browser's being offline with it."""
    page.evaluate("() => { window.fetch = () => Promise.reject(new TypeError('no network')); }")
    page.close()


def test_losing_the_network_and_closing_the_tab_loses_nothing(place, page):
    page.goto(place.link("offline") + "/case/1")
    choose(page, 0, 2)
    saved(page)
    page.context.set_offline(True)
    choose(page, 1, 1)
    page.wait_for_selector("#problem:visible")
    context = page.context
    _close_without_a_network(page)
    context.set_offline(False)
    assert place.stored("offline")["places"] == [2, None, None, None]
    again = context.new_page()
    for path in ("", "/pause", "/review"):
        again.goto(place.link("offline") + path)
        expect(again.locator("#drafts")).to_contain_text("may not be saved yet. Open case 1")
    accessible(again)
    asked = []
    again.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    again.click("text=Finish the study")
    assert "Changes of case 1 may not be saved yet." in asked[0]
    again.click("#drafts a")  # the draft is sent when the page is back
    saved(again)
    wait_for(lambda: place.stored("offline")["places"] == [2, 1, None, None])
    expect(again.locator("#words")).to_have_text("1st: B, 2nd: A")
    again.goto(place.link("offline") + "/review")
    expect(again.locator("#drafts")).to_be_hidden()


def test_a_change_that_is_overtaken_is_given_up_in_words(place, page):
    """It was never sent, and the same case was answered elsewhere in the meantime."""
    page.goto(place.link("overtaken") + "/case/1")
    page.context.set_offline(True)
    choose(page, 0, 1)
    page.wait_for_selector("#problem:visible")
    _close_without_a_network(page)
    context = page.context
    context.set_offline(False)
    case = place.study.readers[READERS.index("overtaken")].cases[0].id
    database = open_database(place.study.answers, place.study.digest)
    given = {"places": [4, None, None, None], "sufficient": None, "remark": ""}
    database.save_answer(READERS.index("overtaken"), case, given, base=0, change="elsewhere")
    database.close()
    again = context.new_page()
    again.goto(place.link("overtaken") + "/case/1")
    expect(again.locator("#problem")).to_contain_text("is gone: this case was changed elsewhere")
    choose(again, 1, 1)
    saved(again)
    expect(again.locator("#problem")).to_be_hidden()
    assert place.stored("overtaken")["places"] == [4, 1, None, None]


def test_a_page_that_the_browser_kept_is_loaded_anew(place, page):
    """The back button may show a page as it was left, behind what the server knows."""
    page.goto(place.link("overtaken") + "/case/2")
    with page.expect_navigation():
        page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")


def test_a_case_that_takes_no_more_changes_says_so(place, page):
    """The server's own words; the change is not kept for another try, which would fail, too."""
    text = "Nothing was saved: this case was changed so often"
    page.goto(place.link("often") + "/case/1")
    refuse = {"status": 409, "json": {"error": text}}
    page.route("**/answer/*", lambda route: route.fulfill(**refuse))
    choose(page, 0, 1)
    expect(page.locator("#problem")).to_contain_text(text)
    expect(page.locator("#saved")).to_have_text("Not saved")
    page.unroute("**/answer/*")
    page.reload()
    expect(page.locator("#saved")).to_have_text("Nothing answered yet")
    expect(page.locator("#words")).to_have_text("")


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


def test_a_page_without_its_scripts_does_not_pretend_to_save(place, page):
    """The server was gone between the page and its scripts."""
    page.goto(place.link("pieces") + "/case/2")
    choose(page, 0, 1)
    saved(page)
    page.route("**/static/saving.js", lambda route: route.abort())
    page.reload()
    expect(page.locator("#saved")).to_contain_text("reload the page")
    assert page.locator("#saved").get_attribute("data-state") != "saved"
    box = page.locator(".option[data-option='0'] .places label").nth(3).bounding_box()
    page.mouse.click(box["x"] + 9, box["y"] + 9)
    assert not page.locator(".option[data-option='0'] input[value='4']").is_checked()
    page.unroute("**/static/saving.js")
    page.reload()
    expect(page.locator("#saved")).to_have_text("All saved")
    expect(page.locator("#words")).to_have_text("1st: A")
