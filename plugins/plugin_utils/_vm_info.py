# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs vm_info on the hosts of an inventory, in an Ansible of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

from ansible import constants, context
from ansible.errors import AnsibleParserError

CALLBACK = "flexdisk.hypervisor.results"
INSIDE = (
    "FLEXDISK_VMS_INSIDE"  # set in that Ansible, where a source of our plugin has no hosts: or it would start another
)
LAST_LINES = 20
EXITS_WITH_RESULTS = (0, 2, 4)  # all well, failed hosts, unreachable hosts
_Reply = t.Dict[str, t.Any]


def read(sources: t.Sequence[str], pattern: str, timeout: int) -> t.Dict[str, _Reply]:
    """For each host of the sources that the pattern matches: status (ok, failed, unreachable, skipped) and result.

    timeout: seconds for each host. Raises AnsibleParserError if Ansible could not be run to its end.
    """
    with tempfile.TemporaryDirectory(prefix="flexdisk-") as folder:
        playbook, results, log = (Path(folder) / name for name in ("vm_info.yml", "results.json", "log"))
        playbook.write_text(json.dumps([_play(pattern, timeout)]), encoding="utf-8")
        with log.open("wb") as output:  # no pipe: a connection that is kept open would hold its other end
            rc = subprocess.run(
                _command(sources, playbook),
                env=_environment(results),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        if rc not in EXITS_WITH_RESULTS or not results.exists():
            tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
            raise AnsibleParserError("Reading the hypervisors failed (rc %d):\n%s" % (rc, "\n".join(tail)))
        replies: t.Dict[str, _Reply] = json.loads(results.read_text(encoding="utf-8"))
    return replies


def _play(pattern: str, timeout: int) -> t.Dict[str, t.Any]:
    """With the variables that the playbooks of this collection have."""
    return {
        "hosts": pattern,
        "gather_facts": False,
        "any_errors_fatal": False,
        "debugger": "never",
        "environment": "{{ flexdisk_environment | default({}) }}",
        "tasks": [
            {
                "name": "Read VMs",
                "flexdisk.hypervisor.vm_info": {
                    "hypervisor": "{{ flexible_disks_hypervisor | default(omit) }}",
                    "pool": "{{ flexible_disks_pool | default(omit) }}",
                },
                "timeout": timeout,
                "tags": ["always"],
            }
        ],
    }


def _command(sources: t.Sequence[str], playbook: Path) -> t.List[str]:
    command = [sys.executable, "-m", "ansible.cli.playbook", str(playbook)]
    for source in sources:
        command += ["--inventory", source]
    for path in context.CLIARGS.get("vault_password_files") or ():
        command += ["--vault-password-file", path]
    for vault in context.CLIARGS.get("vault_ids") or ():
        if not vault.endswith("@prompt"):
            command += ["--vault-id", vault]
    return command


def _environment(results: Path) -> t.Dict[str, str]:
    """Ours, but no callback of the user's runs, and a source that cannot be parsed is an error."""
    collections = os.path.abspath(os.path.join(__file__, *[os.pardir] * 6))
    return {
        **os.environ,
        INSIDE: "true",
        "FLEXDISK_RESULTS_PATH": str(results),
        "ANSIBLE_STDOUT_CALLBACK": CALLBACK,
        "ANSIBLE_CALLBACKS_ENABLED": CALLBACK,
        "ANSIBLE_CALLBACK_PLUGINS": str(results.parent),
        "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join(
            [collections, *constants.config.get_config_value("COLLECTIONS_PATHS")]
        ),
        "ANSIBLE_HOST_PATTERN_MISMATCH": "ignore",  # the caller has an error of its own for it
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "true",
        "ANSIBLE_STRATEGY": "ansible.builtin.linear",
        "ANSIBLE_NOCOLOR": "true",
    }
