"""Pages in headless Chromium: sliders, keyboard, printing, no network, nothing on the console."""

import base64
import json
import re
import shutil
from fractions import Fraction
from functools import cache

import pytest
from conftest import ROOT

from placement_proofs import read_subject
from placement_proofs.checking import plan_of
from placement_proofs.cost.closed_form import closed_forms
from placement_proofs.render.page import page

selenium = pytest.importorskip("selenium", reason="selenium drives the browser: extra 'browser'")

from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no Chromium with its driver on this machine"
)

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,900",
)
SUBJECTS = {
    "abstract": ("zero3(dp=N)", "abstract"),
    "dense": ("zero2(dp=8) * tensor(tp=4)", None),
    "stages": ("hsdp(dp_replicate=2, dp_shard=N) * pipeline(pp=4, microbatches=8)", None),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def opened(browser, folder, monkeypatch):
    """Opens the page of a subject in the usual window."""
    monkeypatch.chdir(ROOT)

    def opened(name):
        path = folder / f"{name}.html"
        if not path.exists():
            text, model = SUBJECTS[name]
            path.write_text(page(read_subject(text, model=model)))
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.get(path.as_uri())
        return browser

    return opened


@cache
def forms_of(name, divides):
    text, model = SUBJECTS[name]
    return closed_forms(*plan_of(read_subject(text, model=model)), divides=divides)


SHOWN = """
return Object.fromEntries([...document.querySelectorAll('[data-form^="own:"]')].map(
  (out) => [out.dataset.form.slice(4), out.dataset.exact]))
"""
SLIDE = """
for (const [name, at] of Object.entries(arguments[0])) {
  const slider = document.getElementById(`r-${name}`);
  slider.value = at === -1 ? slider.max : at;
  slider.dispatchEvent(new Event("input", {bubbles: true}));
}
return Object.fromEntries([...document.querySelectorAll("input[type=number]")].map(
  (input) => [input.dataset.symbol, input.value]))
"""


def shown(driver):
    return {name: Fraction(value) for name, value in driver.execute_script(SHOWN).items()}


def expected(name, values, divides=True):
    forms = forms_of(name, divides)
    known = {n for _, f in forms.forms() for n in map(str, f.exact.free_symbols)} | {"Psi"}
    numbers = forms.numbers({n: int(v) for n, v in values.items() if n in known})
    return {form: amount.bytes for form, amount in numbers.items()}


# --- numbers -------------------------------------------------------------------------


@pytest.mark.parametrize("name", SUBJECTS)
def test_sliders_give_the_numbers_of_python(opened, name):
    driver = opened(name)
    stops = json.loads(driver.execute_script("return document.getElementById('setup').text"))[
        "stops"
    ]
    seen = set()
    for at in (0, 1, 3, -1):
        values = driver.execute_script(SLIDE, {n: min(at, len(s) - 1) for n, s in stops.items()})
        found = shown(driver)
        assert found == expected(name, values), values
        seen.add(found["memory_peak"])
    assert len(seen) == 4


@pytest.mark.parametrize("name", SUBJECTS)
def test_rounding_up_gives_the_numbers_of_python(opened, name):
    """Sizes that do not divide: ceilings and the maximum are exact."""
    driver = opened(name)
    values = driver.execute_script(SLIDE, {})
    used = {s.name for _, f in forms_of(name, True).forms() for s in f.exact.free_symbols}
    driver.find_element("id", "uneven").click()
    for symbol, number in (("N", 7), ("N_tp", 3), ("N_dp", 5), ("Psi", 10**12 + 7), ("K", 13)):
        if symbol in used:
            values[symbol] = str(number)
            type_number(driver, symbol, number)
    found = shown(driver)
    assert found == expected(name, values, divides=False)
    assert found != expected(name, values, divides=True)


def type_number(driver, symbol, text):
    box = driver.find_element("id", f"n-{symbol}")
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(str(text))
    return box


PUT = """
const box = document.getElementById(arguments[0]);
box.value = arguments[1];
box.dispatchEvent(new Event("input", {bubbles: true}));
return box.getAttribute("aria-invalid")
"""


def test_a_number_that_is_none_is_refused_and_changes_nothing(opened):
    driver = opened("abstract")
    before = shown(driver)
    for text in ("", "0", "-3", "1.5", "1e-3", "9" * 20):
        assert driver.execute_script(PUT, "n-N", text) == "true", text
        assert driver.find_element("id", "e-N").text == "a whole number from 1 to 1e15"
        assert shown(driver) == before
    assert driver.execute_script(PUT, "n-N", "2") == "false"
    assert shown(driver)["memory_optimizer"] == before["memory_optimizer"] * 2
    assert driver.execute_script(PUT, "n-Psi", "1.5e9") == "false"
    assert shown(driver)["memory_optimizer"] == 9 * 10**9


def test_bytes_are_written_as_in_python(opened):
    driver = opened("abstract")
    rows = driver.find_elements("css selector", '[data-form="own:memory_persistent"]')
    assert rows[0].text == "30 GB"
    type_number(driver, "N", 7)
    cell = rows[0].find_element("xpath", "..")
    assert cell.text == "17.14 GB\n17,142,857,142.86 bytes"


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_first_numbers_are_those_of_the_sliders(opened, name):
    """What the script computes at first, from the numbers that stand in the fields."""
    driver = opened(name)
    before = shown(driver)
    values = driver.execute_script(SLIDE, {})
    assert before == expected(name, values)
    driver.execute_script("document.getElementById('uneven').click()")
    driver.execute_script("document.getElementById('uneven').click()")
    assert shown(driver) == before


def test_the_other_model_and_reset(opened):
    driver = opened("dense")
    before = shown(driver)
    type_number(driver, "K", 4)
    driver.find_element("css selector", "input[value=psi]").click()
    assert driver.find_element("id", "n-Psi").is_displayed()
    assert not driver.find_element("id", "n-h").is_displayed()
    driver.find_element("css selector", "button[type=reset]").click()
    driver.execute_async_script("setTimeout(arguments[0], 20)")
    assert shown(driver) == before
    assert driver.find_element("id", "n-h").is_displayed()


# --- keyboard ------------------------------------------------------------------------


def test_everything_can_be_done_by_keyboard(opened):
    driver = opened("abstract")
    order = []
    for _ in range(40):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        order.append(
            driver.execute_script(
                "return document.activeElement.id || document.activeElement.className"
            )
        )
        if order[-1] == "r-Psi":
            break
    assert order[0] == "skip"
    wanted = ["r-N", "n-N", "r-K", "n-K", "r-b", "n-b"]
    assert [name for name in order if name in wanted] == wanted
    slider = driver.find_element("id", "r-N")
    before = shown(driver)["memory_optimizer"]
    slider.send_keys(Keys.ARROW_RIGHT)
    assert slider.get_attribute("aria-valuetext") == "8"
    assert shown(driver)["memory_optimizer"] == before / 2
    slider.send_keys(Keys.HOME)
    assert driver.find_element("id", "n-N").get_attribute("value") == "1"
    driver.execute_async_script("setTimeout(arguments[0], 700)")
    said = driver.find_element("id", "status").get_attribute("textContent")
    assert said.startswith("between steps 120 GB, peak of a step")


def test_what_has_the_focus_is_outlined(opened):
    driver = opened("abstract")
    driver.find_element("tag name", "body").send_keys(Keys.TAB)
    outline = driver.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


# --- the page as a whole -------------------------------------------------------------


@pytest.mark.parametrize("name", SUBJECTS)
def test_nothing_is_fetched_and_the_console_is_silent(opened, name):
    driver = opened(name)
    driver.get_log("performance"), driver.get_log("browser")
    driver.refresh()
    events = [json.loads(row["message"])["message"] for row in driver.get_log("performance")]
    urls = {
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    }
    assert urls == {driver.current_url}
    assert driver.get_log("browser") == []


def test_a_fetch_and_a_foreign_script_would_be_seen(opened):
    """The checks above can fail, and the page's policy refuses both."""
    driver = opened("abstract")
    driver.get_log("browser")
    driver.execute_script(
        """
        const script = document.createElement("script");
        script.textContent = "window.foreign = 1";
        document.body.append(script);
        const image = document.createElement("img");
        image.src = "http://127.0.0.1:9/x.png";
        document.body.append(image);
        """
    )
    driver.execute_async_script("setTimeout(arguments[0], 50)")
    assert driver.execute_script("return window.foreign") is None
    said = " ".join(row["message"] for row in driver.get_log("browser"))
    assert "script-src" in said and "img-src" in said


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_and_follow_the_scheme(opened, scheme):
    driver = opened("stages")
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    wide, room, ground = driver.execute_script(
        "return [document.documentElement.scrollWidth, innerWidth, "
        "getComputedStyle(document.body).backgroundColor]"
    )
    assert wide <= room == 390
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 22, 22)"}[scheme]


def test_formulas_are_set_as_mathematics(opened):
    """A fraction stands higher than a letter, its parts one above the other."""
    driver = opened("abstract")
    above, below = driver.execute_script(
        """
        const row = document.querySelector('[data-form="own:memory_optimizer"]').closest("tr");
        return [...row.querySelector("mfrac").children].map((e) => e.getBoundingClientRect().bottom)
        """
    )
    assert below > above + 5


def test_printing_gives_pages_with_everything_opened(opened):
    driver = opened("abstract")
    made = driver.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})
    data = base64.b64decode(made["data"])
    pages = len(re.findall(rb"/Type\s*/Page\b(?!s)", data))
    assert data.startswith(b"%PDF") and 3 <= pages <= 30
    for event, wanted in (("beforeprint", {True}), ("afterprint", {False})):
        driver.execute_script("dispatchEvent(new Event(arguments[0]))", event)
        opened_ = driver.execute_script(
            "return [...document.querySelectorAll('details')].map((box) => box.open)"
        )
        assert set(opened_) == wanted
