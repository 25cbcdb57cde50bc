# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The site: every page is in it, links hold, nothing comes from the network. The last test looks at all of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from ..page.browser import Browser, is_there

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / "tests" / "tools"
README = (ROOT / "README.md").read_text()
FULL = bool(os.environ.get("FLEXDISK_FULL"))
READ_ON = """\
# x

## Read on

- **First**: [One](docs/one.md),
  [Two](docs/two.md)
- **Then**: {}

## End
"""


@pytest.fixture
def make_docs(monkeypatch, tmp_path):
    """The tool, with a site of its own."""
    monkeypatch.syspath_prepend(str(TOOLS))
    import make_docs

    for name in ("SOURCE", "HTML", "DOCTREES", "STAMP", "INVENTORY"):
        monkeypatch.setattr(make_docs, name, tmp_path / getattr(make_docs, name).name)
    return make_docs


def test_every_page_is_in_one_group(make_docs):
    groups = make_docs.groups(README, make_docs.names())
    assert len(groups) > 4
    assert sorted(page for pages in groups.values() for _title, page in pages) == sorted(make_docs.names())
    assert {"docs/errors.md", "docs/variables.md", "docs/playbook-reference.md", "CHANGELOG.md"} <= {*make_docs.names()}
    (roles, *_others) = groups.values()
    assert len(roles) == 4


def test_groups_are_read_with_items_of_several_lines(make_docs):
    pages = ["docs/one.md", "docs/two.md", "docs/three.md"]
    groups = make_docs.groups(READ_ON.format("[Three](docs/three.md)"), pages)
    assert groups == {"First": [("One", pages[0]), ("Two", pages[1])], "Then": [("Three", pages[2])]}


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ("[Four](docs/four.md)", 'no group of "Read on" has docs/three.md'),
        (
            "[Three](docs/three.md),\n  [One](docs/one.md)",
            "more than once, or without there being such a page: docs/one.md",
        ),
        (
            "[Three](docs/three.md),\n  [Four](docs/four.md)",
            "more than once, or without there being such a page: docs/four.md",
        ),
    ],
)
def test_a_page_that_is_in_no_group_or_odd_is_named(make_docs, items, words):
    with pytest.raises(SystemExit, match=re.escape(words)):
        make_docs.groups(READ_ON.format(items), ["docs/one.md", "docs/two.md", "docs/three.md"])


def test_links_are_those_of_the_site(make_docs):
    def rewritten(target, page="docs/vms.md"):
        return re.findall(r"\]\((.*)\)", make_docs.rewritten(page, f"see [it]({target})", "https://repo"))[0]

    assert rewritten("errors.md#locked") == "errors.md#locked"
    assert rewritten("../README.md") == "../index.md"
    assert rewritten("../CONTRIBUTING.md") == "../CONTRIBUTING.md"
    assert rewritten("docs/errors.md", "index.md") == "docs/errors.md"
    assert rewritten("../roles/vm_move/README.md") == "../reference/vm_move_role.rst"
    assert rewritten("../examples/haproxy") == "https://repo/tree/main/examples/haproxy"
    assert rewritten("https://elsewhere/x.md") == "https://elsewhere/x.md"
    assert rewritten("#errors") == "#errors"


def test_links_between_pages_lead_to_pages(make_docs):
    sources = make_docs.sources()
    roles = {f"reference/{path.name}_role.rst" for path in ROOT.glob("roles/*")}
    links = 0
    for page, text in sources.items():
        for target, _anchor in make_docs.LINK.findall(text):
            links += 1
            assert os.path.normpath(os.path.join(os.path.dirname(page), target)) in {*sources, *roles}, (page, target)
    assert links > 200


def test_the_first_page_has_all_others_in_its_navigation(make_docs):
    trees = make_docs.index(README).split("```{toctree}", 1)[1]
    told = re.findall(r"^\w.* <(.*)>$", trees, re.MULTILINE)
    assert sorted(told) == sorted([*make_docs.names(), "reference/index.rst", "reference/environment_variables.rst"])


def test_every_code_has_a_heading():
    page = (ROOT / "docs" / "errors.md").read_text()
    codes = re.findall(r"^## `(\w+)`$", page, re.MULTILINE)
    assert codes == sorted({*codes}, key=str.lower)
    assert len(codes) > 60
    assert page.count("\nWhat to do: ") == len(codes)


def test_what_has_not_changed_is_not_written(make_docs):
    make_docs.write_sources()
    times = {path: path.stat().st_mtime_ns for path in make_docs.SOURCE.rglob("*.md")}
    assert len(times) == len(make_docs.names()) + 1
    (make_docs.SOURCE / "docs" / "vms.md").write_text("changed")
    make_docs.write_sources()
    now = {path: path.stat().st_mtime_ns for path in make_docs.SOURCE.rglob("*.md")}
    assert [path.name for path in now if now[path] != times[path]] == ["vms.md"]


def test_nothing_is_left_of_a_page_that_is_gone(make_docs):
    for page in (make_docs.SOURCE / "docs" / "gone.md", make_docs.HTML / "docs" / "gone.html"):
        page.parent.mkdir(parents=True)
        page.touch()
    make_docs.write_sources()
    assert not make_docs.HTML.exists()
    assert (make_docs.SOURCE / "docs" / "vms.md").exists()
    assert not (make_docs.SOURCE / "docs" / "gone.md").exists()


def test_the_reference_is_made_when_it_would_change(make_docs, monkeypatch):
    codes = [1, 0, 0]
    calls = []

    def run(command):
        calls.append(command)
        (make_docs.SOURCE / "reference" / "index.rst").write_text(
            "Flexdisk.Hypervisor\n===================\n\n    vm_move_module\n"
        )
        return codes.pop(0)

    monkeypatch.setattr(make_docs, "run", run)
    assert make_docs.write_reference() == 1
    assert make_docs.write_reference() == 0, "after a failure again"
    assert make_docs.write_reference() == 0
    assert len(calls) == 2
    text = (make_docs.SOURCE / "reference" / "index.rst").read_text()
    assert text == f"{make_docs.CONTENTS}\n{'=' * len(make_docs.CONTENTS)}\n\n    vm_move (module) <vm_move_module>\n"
    monkeypatch.setattr(make_docs, "fingerprint", lambda: "another")
    assert make_docs.write_reference() == 0
    assert len(calls) == 3


def test_a_warning_is_told_again(make_docs, monkeypatch):
    """Sphinx warns of a page only when it reads the page, so nothing may remain of a build that has failed."""
    monkeypatch.setattr(make_docs, "write_reference", lambda: 0)
    monkeypatch.setattr(make_docs, "run", lambda *_command, **_words: 1)
    with pytest.raises(SystemExit, match="has not been built"):
        make_docs.main()
    assert not make_docs.SOURCE.exists()


def test_what_ansible_has_is_known_without_network(make_docs):
    make_docs.write_inventory()
    head, packed = make_docs.INVENTORY.read_bytes().split(b"using zlib.\n")
    lines = zlib.decompress(packed).decode().splitlines()
    assert head.startswith(b"# Sphinx inventory version 2\n")
    assert (
        "common_return_values std:label 1 reference_appendices/common_return_values.html#common-return-values -"
        in lines
    )
    from site_conf import conf

    assert [Path(file).suffix for _site, file in conf.intersphinx_mapping.values()] == [".inv"], "no URL is loaded"


@pytest.mark.skipif(not (FULL or is_there()), reason="no Chromium here; FLEXDISK_FULL=1 installs it from Debian")
def test_it_is_quiet_and_loads_only_itself(make_docs, tmp_path_factory):
    """All pages with a full test, else those that are not of the reference; only if the site has been built here."""
    site = ROOT / "build" / "site" / "html"
    if FULL:
        subprocess.run([sys.executable, TOOLS / "make_docs.py"], check=True)
    elif not (site / "index.html").exists():
        pytest.skip("make docs has not been run here")
    pages = [page for page in site.rglob("*.html") if FULL or "reference" not in page.parts]
    assert len(pages) >= len(make_docs.names())
    with Browser.installed(tmp_path_factory.mktemp("browser")) as browser:
        for page in pages:
            browser.width(1280)
            browser.open(page)
            browser.width(400)
            assert browser.run("document.documentElement.scrollWidth") == 400, (page, "nothing is cut off at the right")
            asked = [
                one["params"]["request"]["url"]
                for one in browser.events
                if one["method"] == "Network.requestWillBeSent"
            ]
            assert [url for url in asked if not url.startswith((site.as_uri(), "data:"))] == [], page
            assert [told for told in browser.complaints() if not told.startswith(("file:", "data:"))] == [], page
        browser.open(site / "search.html")
        found = browser.run(SEARCH, wait=True)
        assert any("errors.html" in target for target in found), found


# What a search for a code shows, within a minute
SEARCH = """new Promise((resolve, reject) => {
    Search.performSearch('InsufficientSpace');
    const look = left => {
        const found = [...document.querySelectorAll('#search-results a')].map(link => link.href);
        found.length ? resolve(found) : left ? setTimeout(look, 200, left - 1) : reject('nothing found');
    };
    look(300);
})"""
