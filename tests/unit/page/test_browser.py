# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page in Debian's Chromium: quiet, complete, and readable wide, narrow, dark and on paper."""

from __future__ import annotations

import os

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.filter.report_page import report_page

from .browser import Browser, is_there
from .sample import HOSTILE, NOW, UNREAD, few, many

FULL = bool(os.environ.get("FLEXDISK_FULL"))
SHOWN = "Array.from(document.querySelectorAll('#{} tbody tr')).filter(row => !row.hidden)"
ACROSS = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium takes 120 MB, so that only the full tests install it. What apt cannot do is a failure then."""
    if not (FULL or is_there()):
        pytest.skip("no Chromium here; FLEXDISK_FULL=1 installs it from Debian")
    with Browser.installed(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """The page of the sample, opened anew each time."""
    written = tmp_path_factory.mktemp("page") / "report.html"
    written.write_text(report_page(few(), NOW, UNREAD))

    def opened():
        browser.open(written)
        return browser

    return opened


def names(browser, section="vms"):
    return browser.run(SHOWN.format(section) + ".map(row => row.cells[0].querySelector('bdi').textContent)")


def typed(browser, text):
    """The row names of VMs that are left when a text is in the field."""
    browser.run(
        f"field = document.getElementById('filter'); field.value = {text!r}; field.dispatchEvent(new Event('input'))"
    )
    return names(browser)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1240, 1400])
def test_it_is_quiet_and_fits(browser, page, scheme, width):
    browser.scheme(scheme)
    browser.width(width)
    page()
    assert browser.complaints() == []
    assert browser.run(ACROSS) == width, "nothing is cut off at the right"
    assert browser.run("typeof window.hurt") == "undefined"
    dark = browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(22, 25, 29)"
    assert dark == (scheme == "dark")


def test_the_script_of_somebody_else_does_not_run(browser, page):
    """The policy holds even where the escaping would not."""
    page()
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=\"x\" onerror=\"window.hurt = 1\">')")
    browser.run("new Promise(resolve => setTimeout(resolve, 200))", wait=True)
    assert browser.run("typeof window.hurt") == "undefined"
    assert any("Content Security Policy" in told for told in browser.complaints()), "the test would see complaints"


def test_rows_are_found(browser, page):
    page()
    assert len(names(browser)) == 5
    assert typed(browser, "WEB01 hv01") == ["web01"]
    assert typed(browser, "onerror=alert") == [HOSTILE]
    assert browser.run("document.getElementById('count').textContent") == "5 of 21 rows"
    assert typed(browser, "no such thing") == []
    assert len(typed(browser, "")) == 5
    browser.run("document.getElementById('only').click()")
    assert names(browser) == ["db01", HOSTILE, "web01"]
    assert len(names(browser, "pools")) == 2


def test_columns_are_sorted(browser, page):
    page()

    def press(column):
        browser.run(f"document.querySelectorAll('#vms thead button')[{column}].click()")
        state = browser.run("document.querySelector('#vms th[aria-sort]').ariaSort")
        return state, names(browser)

    assert press(0)[0] == "ascending"
    ordered = press(0)[1]
    assert ordered == press(0)[1][::-1]
    state, by_size = press(3)
    assert (state, by_size[:2], by_size[-1]) == ("descending", ["web01", "db01"], "legacy01")
    assert press(3)[0] == "ascending"


def test_it_is_printed_whole(browser, page, tmp_path):
    page()
    browser.print(tmp_path / "page.pdf")
    printed = (tmp_path / "page.pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    browser.ask("Emulation.setEmulatedMedia", media="print")
    assert browser.run("getComputedStyle(document.querySelector('.tools')).display") == "none"
    browser.ask("Emulation.setEmulatedMedia", media="")


def test_it_is_complete_without_its_script(browser, page):
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page()
        assert browser.complaints() == []
        assert len(names(browser)) == 5
        assert browser.run("getComputedStyle(document.querySelector('.tools')).display") == "none"
    finally:
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.skipif(not FULL, reason="takes half a minute; FLEXDISK_FULL=1 runs it")
def test_a_thousand_vms(browser, tmp_path):
    found = many(10, 100)
    (tmp_path / "report.html").write_text(report_page(found, NOW, UNREAD))
    for width in (400, 1240, 1400):
        browser.width(width)
        browser.open(tmp_path / "report.html")
        assert browser.complaints() == []
        assert browser.run(ACROSS) == width
        told = {vm["alias"] for host in found.values() for vm in host["vm_info"]["vms"]}
        assert len(names(browser)) == 1000
        assert set(names(browser)) == told
        for alias in sorted(told)[::50]:
            assert typed(browser, alias) == [alias]
    assert len(typed(browser, "")) == 1000
    browser.print(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 1000000, "what a filter hides is not printed"
