# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook report with a page, on two simulated nodes, as a user runs it."""

from __future__ import annotations

import json
import re
import stat
from xml.etree import ElementTree

import pytest

from .nodes import Nodes

HOSTILE = "</script><img src=x onerror=alert(1)>{{ 1/0 }}"


APART = "0f0e0d0c-0000-4000-8000-00000000000a"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    made = Nodes(tmp_path_factory.mktemp("nodes"), {"hv01": "", "hv02": "", "hv03": ""})
    web = made.create("hv01", "web", 2048, 10, {}, flexible=40, more=(5,))
    made.run("hv01", "zfs", "set", "quota=60G", f"zones/{web}")
    odd = made.create("hv01", "odd", 2048, 5, {})
    made.run("hv01", "vmadm", "update", odd, stdin=json.dumps({"alias": HOSTILE}))
    db = made.create("hv02", "db", 2048, 20, {}, flexible=30)
    made.run("hv02", "zfs", "snapshot", "-r", f"zones/{db}@vmsnap-before")
    made.run("hv02", "zfs", "create", "-o", "mountpoint=none", "zones/flexdisk")
    facts = {"uuid": APART, "name": "apart", "mtime": "2026-01-02T03:04:05Z"}
    words = [word for key, value in facts.items() for word in ("-o", f"flexdisk:{key}={value}")]
    made.run("hv02", "zfs", "create", "-V", "3G", *words, f"zones/flexdisk/{APART}")
    return made


def rows(root, section):
    found = root.findall(f".//section[@id='{section}']/table/tbody/tr")
    return [["".join(cell.itertext()) for cell in row] for row in found]


def test_all_hosts_are_on_one_page(nodes):
    """One of them cannot be read."""
    place = nodes.folder / "report.html"
    status, printed = nodes.play("report", "-e", f"flexdisk_report_html={place}", unreachable="hv03")
    assert status == 4, printed
    root = ElementTree.fromstring(place.read_text())
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert f'"msg": "written to {place}"' in printed
    assert len(re.findall(r"changed=1 ", printed)) == 1
    assert [row[:2] for row in rows(root, "pools")] == [["hv01", "zones"], ["hv02", "zones"]]
    vms = {row.find("th/bdi").text: row for row in root.findall(".//section[@id='vms']/table/tbody/tr")}
    assert set(vms) == {"web", HOSTILE, "db"}
    assert [vms["db"][place].text for place in (4, 5)] == ["30 GiB", "9.9 GiB"]
    assert [vms[HOSTILE][place].text for place in (4, 5)] == ["-", "-"]
    assert "warning: drift of quota +18.5" in "".join(vms["web"].itertext())
    assert {row[1] for row in rows(root, "findings")} >= {"quota_drift"}
    assert [row[:3] for row in rows(root, "snapshots")] == [["before", "db", "hv02"]]
    ((name, vm, host, size, _takes, since, _days, _description),) = rows(root, "parked")
    assert [name, vm, host, size] == ["apart" + APART, "-", "hv02", "3 GiB"]
    assert since == "2026-01-02 03:04"
    ((host, why),) = rows(root, "unread")
    assert host == "hv03"
    assert "Connection refused" in why or "could not be sent to remote host" in why


def test_a_relative_path_is_from_where_the_user_is(nodes, monkeypatch):
    monkeypatch.chdir(nodes.folder)
    status, printed = nodes.play("report", "--limit", "hv01", "-e", "flexdisk_report_html=mine.html")
    assert status == 0, printed
    assert f'"msg": "written to {nodes.folder / "mine.html"}"' in printed
    assert (nodes.folder / "mine.html").exists()


def test_a_page_has_the_hosts_that_ask_for_one(nodes):
    place = nodes.folder / "some.html"
    path = "{{ '%s' if inventory_hostname == 'hv01' else omit }}" % place
    status, printed = nodes.play("report", "-e", json.dumps({"flexdisk_report_html": path}))
    assert status == 0, printed
    assert [row[:2] for row in rows(ElementTree.fromstring(place.read_text()), "pools")] == [["hv01", "zones"]]


def test_more_hosts_than_a_page_may_have_get_a_summary_and_pages(nodes):
    place = nodes.folder / "many.html"
    more = json.dumps({"flexdisk_report_html": str(place), "flexdisk_report_page_hosts": 1})
    status, printed = nodes.play("report", "-e", more, unreachable="hv03")
    assert status == 4, printed
    others = [place.with_name(f"many-{number}.html") for number in (1, 2)]
    assert f'"msg": "written to {place}, {others[0]}, {others[1]}"' in printed
    root = ElementTree.fromstring(place.read_text())
    assert sorted(row[0] for row in rows(root, "hosts")) == ["hv01", "hv02"]
    assert [row[0] for row in rows(root, "unread")] == ["hv03"]
    first, second = (ElementTree.fromstring(path.read_text()) for path in others)
    assert [row[0] for row in rows(first, "pools") + rows(second, "pools")] == ["hv01", "hv02"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (place, *others)} == {0o600}


def test_pages_of_an_earlier_run_are_named(nodes):
    """There were more hosts, or fewer on a page. They stay, as a report of another name may be among them."""
    place = nodes.folder / "old, (1).html"
    older = [place.with_name(f"old, (1)-{number}.html") for number in ("1", "2", "03")]
    others = [
        place.with_name(name)
        for name in ("old, (1)-x.html", "old, (1)-1.html.bak", "old, 1-1.html", "sold, (1)-1.html")
    ]
    for path in (*older, *others):
        path.write_text("old")
    note = "Beside it, not written by this run: "
    more = json.dumps({"flexdisk_report_html": str(place), "flexdisk_report_page_hosts": 1})
    status, printed = nodes.play("report", "--limit", "hv01,hv02", "-e", more)
    assert status == 0, printed
    assert f'"msg": "written to {place}, {older[0]}, {older[1]}. {note}{older[2].name}"' in printed
    more = json.dumps({"flexdisk_report_html": str(place)})
    status, printed = nodes.play("report", "--limit", "hv01,hv02", "-e", more)
    assert status == 0, printed
    assert f'"msg": "written to {place}. {note}{", ".join(sorted(path.name for path in older))}"' in printed
    assert {path.read_text() for path in others} == {"old"}


def test_check_mode_writes_nothing(nodes):
    place = nodes.folder / "other.html"
    status, printed = nodes.play(
        "report", "--check", "--diff", "--limit", "hv01", "-e", f"flexdisk_report_html={place}"
    )
    assert status == 0, printed
    assert f'"msg": "would be written to {place}"' in printed
    assert not place.exists()
    assert "<table" not in printed
