# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as a page: it is one file, says what the modules say, and lets nobody's text be anything but text."""

from __future__ import annotations

import base64
import copy
import hashlib
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.filter.report_page import FilterModule
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.page.markup import (
    Html,
    clean,
    element,
)

from .sample import HOSTILE, NOW, UNREAD, few, many

GOLDEN = Path(__file__).with_name("golden.html")
page = FilterModule().filters()["report_page"]


def tree(found, unread=None):
    """The page as a tree. So it is well-formed."""
    return ElementTree.fromstring(page(found, NOW, unread))


@pytest.fixture(scope="module")
def thousand():
    """Results with a thousand VMs, and their page."""
    found = many(10, 100)
    return found, tree(found)


def rows(root, section):
    """The texts of a table's cells."""
    found = root.findall(f".//section[@id='{section}']/table/tbody/tr")
    return [["".join(cell.itertext()) for cell in row] for row in found]


def test_the_golden_page():
    made = page(few(), NOW, UNREAD)
    if os.environ.get("FLEXDISK_GOLDEN"):
        GOLDEN.write_text(made)
    assert made == GOLDEN.read_text()


def test_the_order_of_what_is_told_does_not_matter():
    turned = dict(reversed(few().items()))
    for found in turned.values():
        found["vm_info"]["vms"].reverse()
        found["zfs_quota"]["vms"].reverse()
        found["disk_verify"]["findings"].reverse()
    assert page(turned, NOW, UNREAD).split("</nav>")[1] == GOLDEN.read_text().split("</nav>")[1]


def test_nobodys_text_is_markup():
    root = tree(few(), UNREAD)
    assert {one.tag for one in root.iter()} <= {
        *(
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "h1",
            "h2",
            "p",
            "nav",
            "a",
            "bdi",
            "div",
            "label",
            "input",
        ),
        *("span", "main", "section", "table", "thead", "tbody", "tr", "th", "td", "svg", "rect", "ul", "li", "code"),
        "script",
    }
    attributes = {name for one in root.iter() for name in one.attrib}
    assert not [name for name in attributes if name.startswith("on") or name in ("style", "src")]
    assert all(one.attrib["href"].startswith("#") for one in root.iter("a"))
    text = page(few(), NOW, UNREAD)
    assert text.count("<script>") == text.count("</script>") == 1
    assert "<img" not in text
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x09\x0b-\x1f]", text)
    assert text.encode()
    names = [cells[0] for cells in rows(root, "vms")]
    assert any(name.startswith(HOSTILE) for name in names)
    assert any(name.startswith("[U+202E]gpj.exe[U+2066] {{ 1/0 }} \ufffd \ufffd") for name in names)


def test_the_policy_allows_the_style_and_the_script_and_nothing_else():
    root = tree(few())
    (policy,) = [one.attrib["content"] for one in root.iter("meta") if "http-equiv" in one.attrib]
    hashes = [
        base64.b64encode(hashlib.sha256((next(root.iter(tag)).text or "").encode()).digest()).decode()
        for tag in ("style", "script")
    ]
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{hashes[0]}'",
        f"script-src 'sha256-{hashes[1]}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert not re.search(r"https?:|url\(|@import", page(few(), NOW, UNREAD))


def test_tables_can_be_read_out():
    for table in tree(few(), UNREAD).iter("table"):
        heads = table.findall("thead/tr/th")
        assert [head.attrib["scope"] for head in heads] == ["col"] * len(heads)
        for row in table.findall("tbody/tr"):
            assert [cell.tag for cell in row] == ["th"] + ["td"] * (len(heads) - 1)
            assert row[0].attrib["scope"] == "row"
            labels = [head.text for head in heads[1:]]
            assert [cell.attrib["data-label"] for cell in row[1:]] == labels


def test_every_bar_is_full_and_said_in_words():
    bars = 0
    for cell in tree(many(2, 20)).iter("td"):
        for svg in cell.iter("svg"):
            bars += 1
            rects = svg.findall("rect")
            assert sum(int(rect.attrib["width"]) for rect in rects) == 1000
            words = "".join(cell.find("ul").itertext())
            assert all(rect.find("title").text in words for rect in rects)
    assert bars == 42


def test_what_needs_attention_comes_first():
    root = tree(few())
    found = rows(root, "vms")
    assert [row[0][:5] for row in found] == ["db01" + found[0][0][4], "</scr", "web01", "legac", "[U+20"]
    assert found[0][-1] == "error: dangling_reference of disk1error: holds 6 GiB more than its flexible size"
    assert found[2][4:8] == ["100 GiB", "27 GiB", "105673 MiB", "105665 MiB"]
    assert found[2][-1].startswith("warning: drift of quota +8 MiB, reservation +8 MiB: overhead of a removed disk")
    assert "quota_drift" not in found[2][-1], "that is said once"
    calm = [row.attrib.get("class") for row in root.findall(".//section[@id='vms']/table/tbody/tr")]
    assert calm == [None, None, None, "calm", "calm"]


def test_exact_figures_are_there_to_sort_by():
    root = tree(few())
    row = root.findall(".//section[@id='vms']/table/tbody/tr")[2]
    told = few()["hv01"]
    quota = told["zfs_quota"]["vms"][0]
    assert [int(cell.attrib["data-v"]) for cell in row if cell.attrib.get("class") == "num"] == [
        100 * 1024**3,
        27 * 1024**3,
        quota["actual"]["quota_bytes"],
        quota["expected_bytes"],
    ]


def test_findings_lead_to_their_vms():
    root = tree(few())
    there = {row.attrib.get("id") for row in root.iter("tr")}
    links = [one.attrib["href"][1:] for one in root.findall(".//section[@id='findings']//a")]
    assert len(links) == 4
    assert set(links) <= there
    assert [row[0] for row in rows(root, "findings")] == ["error", "error", "warning", "warning", "info"]
    assert '{"flexdisk.hypervisor.disk_verify": {"repair": ["stale_copy"]' in rows(root, "findings")[-1][-1]


def test_snapshots_by_what_they_free(thousand):
    found = rows(tree(few()), "snapshots")
    assert [(row[0], row[-1]) for row in found] == [("before", "3 GiB"), (HOSTILE, "5 MiB"), ("nightly", "112 KiB")]
    assert found[0][4] == "2026-11-18 11:06"
    everyone, root = thousand
    count = sum(len(vm["snapshots"]) for told in everyone.values() for vm in told["vm_info"]["vms"])
    assert len(rows(root, "snapshots")) == 200
    assert f"{count - 200} smaller ones not shown" in "".join(root.find(".//section[@id='snapshots']").itertext())


def test_detached_disks_with_their_age():
    found = rows(tree(few()), "parked")
    assert [row[6] for row in found] == ["117", "7", "-"]
    assert found[0][1:6] == ["legacy01", "hv01", "40 GiB", "41.2 GiB", "2026-08-01 12:00"]
    assert found[0][7] == "kept for the auditors"
    assert found[2][1].endswith(" (gone)")


def test_hosts_that_could_not_be_read_are_named():
    root = tree(few(), UNREAD)
    assert rows(root, "unread") == [["hv09", UNREAD["hv09"]]]
    assert "Not read, and missing on this page: hv09." in "".join(root.itertext())
    assert "Not read" not in "".join(tree(few()).itertext())
    assert rows(tree({}, UNREAD), "unread") == rows(root, "unread")


def test_vms_that_are_left_out():
    assert rows(tree(few()), "left-out")[0] == ["zonez1", "hv01", "brand lx"]


def test_every_vm_of_a_thousand_has_a_row(thousand):
    found, root = thousand
    told = {vm["uuid"] for host in found.values() for vm in host["vm_info"]["vms"]}
    there = [row.attrib["id"][5:] for row in root.findall(".//section[@id='vms']/table/tbody/tr")]
    assert len(there) == 1000
    assert set(there) == told


def test_a_vm_that_two_hosts_have():
    found = few()
    found["hv02"] = copy.deepcopy(found["hv01"])
    names = [row.attrib["id"] for row in tree(found).iter("tr") if "id" in row.attrib]
    assert len(names) == len(set(names)) == 8


def test_what_cannot_be_seen_is_shown():
    assert clean("a\u200bb\u202ec") == "a[U+200B]b[U+202E]c"
    assert clean("a\x1b[0m\udc80") == "a\ufffd[0m\ufffd"
    assert clean("é" * 201) == "é" * 200 + "… (201 characters)"
    assert (
        element("p", {"title": '"><b>'}, "<b>", Html("<i></i>"))
        == '<p title="&quot;&gt;&lt;b&gt;">&lt;b&gt;<i></i></p>'
    )


@pytest.mark.parametrize("time", ["yesterday", "2026-11-27", "", None])
def test_a_wrong_time_is_refused(time):
    with pytest.raises(AnsibleFilterError, match="2026-11-27T00:30:00Z"):
        page(few(), time)


@pytest.mark.parametrize("found", [{"hv01": {"vm_info": {"vms": []}}}, {"hv01": None}, {"hv01": []}])
def test_other_results_are_refused(found):
    with pytest.raises(AnsibleFilterError, match="space: true"):
        page(found, NOW)
