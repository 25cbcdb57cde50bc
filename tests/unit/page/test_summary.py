# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of many hosts: which files it has, and a summary that is well-formed, small, and leads to all of them."""

from __future__ import annotations

from urllib.parse import unquote, urljoin, urlsplit
from xml.etree import ElementTree

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.page.summary import figures, pages
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.page.summary import (
    summary as of_hosts,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .sample import HOSTILE, NOW, UNREAD, few, many


def summary(found, time, files, unread):
    return of_hosts(found, time, unread, files)


def test_few_hosts_have_one_page():
    assert pages(["a", "b"], "/srv/report.html", 2) == [
        {"path": "/srv/report.html", "hosts": ["a", "b"], "summary": False}
    ]


def test_many_hosts_have_a_summary_and_pages():
    hosts = [f"hv{number}" for number in range(21)]
    first, *others = pages(hosts, "/srv/report.html", 2)
    assert first == {"path": "/srv/report.html", "hosts": hosts, "summary": True}
    assert others[0] == {"path": "/srv/report-01.html", "hosts": ["hv0", "hv1"], "summary": False}
    assert others[-1] == {"path": "/srv/report-11.html", "hosts": ["hv20"], "summary": False}
    assert [host for page in others for host in page["hosts"]] == hosts


def test_the_summary_has_a_row_for_each_host_and_the_worst_first():
    found = {host: figures(one) for host, one in few().items()}
    files = pages(sorted(found), "/srv/report.html", 1)
    root = ElementTree.fromstring(summary(found, NOW, files, UNREAD))
    rows = root.findall(".//section[@id='hosts']/table/tbody/tr")
    assert len(rows) == len(found)
    assert sorted(link.get("href") for link in root.findall(".//section[@id='hosts']//a")) == [
        "./report-1.html",
        "./report-2.html",
    ]
    errors = [int(row.findall("td")[2].text) for row in rows]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == 1
    assert "hv09" in "".join(root.itertext())
    assert HOSTILE not in summary(found, NOW, files, UNREAD)


@pytest.mark.parametrize("name", ["report#1", "50%20", "x:y", "a?b", "a b&c", "gr\u00fcn", "\udcff"])
def test_a_link_leads_to_the_page_whatever_its_name_is(name):
    found = {host: figures(one) for host, one in few().items()}
    files = pages(sorted(found), f"/srv/{name}.html", 1)
    links = ElementTree.fromstring(summary(found, NOW, files, {})).findall(".//section[@id='hosts']//a")
    ways = [urlsplit(urljoin("file:///srv/report", link.get("href"))) for link in links]
    assert {(way.query, way.fragment) for way in ways} == {("", "")}
    paths = [unquote(way.path, errors="surrogateescape") for way in ways]
    assert sorted(paths) == [file["path"] for file in files[1:]]


def test_a_row_takes_less_than_a_kilobyte():
    one = figures(next(iter(many(1, 20).values())))
    sizes = []
    for hosts in (100, 1000):
        found = {f"hv{number:04}": one for number in range(hosts)}
        sizes.append(len(summary(found, NOW, pages(list(found), "/f.html", 50), {})))
    assert sizes[1] - sizes[0] < 900 * 1000


def test_what_is_no_time_is_refused():
    with pytest.raises(FlexdiskError, match="time x is not valid"):
        summary({}, "x", [], {})
