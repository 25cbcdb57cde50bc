# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the report of many hosts as HTML files on the controller."""

from __future__ import annotations

import os
import re
import time
import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.registered import Registered
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.page import summary
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.page.document import page
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _calling

MODULES = ("vm_info", "host_info", "disk_verify", "zfs_quota")  # whose results the playbook has registered

_Dict = t.Dict[str, t.Any]


class Pages(t.NamedTuple):
    """Where the report is written."""

    path: str
    most_hosts: int
    """On one page. With more, the file is a summary, and the pages lie beside it."""


def write_pages(action: ActionBase, registered: Registered, pages: Pages, variables: _Dict) -> _Dict:
    """Write the files, and return the result of the task. The results of only one page are in memory at a time."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    # A relative path is meant from where the user is, and not from where Ansible has the playbook.
    path = os.path.abspath(os.path.expanduser(os.path.expandvars(pages.path)))
    asked = [host for host in registered.hosts if set(registered.names) <= set(registered.variables(host))]
    files = summary.pages(asked, path, pages.most_hosts)
    unread = registered.reasons(registered.names[0])
    figures: _Dict = {}
    changed = False
    for file in reversed(files):  # the summary, which leads to the others, is the last one
        if file["summary"]:
            text = summary.summary({host: figures[host] for host in asked}, now, unread, files)
        else:
            results = {host: _results(registered, host) for host in file["hosts"]}
            if len(files) > 1:
                figures.update((host, summary.figures(one)) for host, one in results.items())
            text = page(results, now, unread if len(files) == 1 else {})
        written = _calling.run_action(
            action, "ansible.builtin.copy", {"dest": file["path"], "content": text, "mode": "0600"}, variables
        )
        if written.get("failed"):
            return {"failed": True, "msg": f"{file['path']}: {written.get('msg')}"}
        changed = changed or bool(written.get("changed"))
    paths = [file["path"] for file in files]
    would_be = "would be " if action._task.check_mode else ""
    older = _older(path, paths)
    note = f". Beside it, not written by this run: {', '.join(older)}" if older else ""
    return {"changed": changed, "msg": f"{would_be}written to {', '.join(paths)}{note}"}


def _results(registered: Registered, host: str) -> t.Dict[str, t.Any]:
    """Return what a page shows of a host."""
    variables = registered.variables(host)
    return {module: variables[name] for module, name in zip(MODULES, registered.names)}


def _older(path: str, written: t.Sequence[str]) -> t.List[str]:
    """Return the pages of an earlier run, which had more hosts, or fewer on a page."""
    folder, name = os.path.split(path)
    stem, suffix = os.path.splitext(name)
    new = {os.path.basename(one) for one in written}
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    numbered = re.compile(re.escape(stem) + r"-[0-9]+" + re.escape(suffix))
    return sorted(one for one in names if numbered.fullmatch(one) and one not in new)
