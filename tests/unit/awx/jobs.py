# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs of the templates, as AWX 24.6.1 has ansible-runner play them: files, environment, variables, artifacts."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ..playbooks.nodes import CONFIG, Nodes
from . import rules

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

from tree import in_forks

ROOT = Path(__file__).resolve().parents[3]
AWX = ROOT / "extensions" / "awx"
_OBJECTS: dict[str, Any] = {}


def template(playbook: str) -> dict[str, Any]:
    """The job template of a playbook."""
    if not _OBJECTS:
        _OBJECTS.update(yaml.safe_load((AWX / "objects" / "templates.yml").read_text()))
    found: list[dict[str, Any]] = [
        one for one in _OBJECTS["controller_templates"] if one["playbook"] == f"{playbook}.yml"
    ]
    return found[0]


class Job(NamedTuple):
    """What AWX keeps of a job: its state, its output without colours, what it leaves for later jobs, and its events."""

    status: str
    stdout: str
    artifacts: dict[str, Any]
    events: list[dict[str, Any]]


class Jobs:
    """core: a folder of programs with another ansible-core. variables: what the hosts of the inventory have."""

    def __init__(self, nodes: Nodes, core: Path | None = None) -> None:
        self.nodes = nodes
        self.path = f"{core or Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.built = in_forks()
        if core is not None:  # what .venv has built of the modules is not for it, and in_process.py knows .venv's alone
            self.built = {"FLEXDISK_BUILT": str(nodes.folder / "built")}
            (nodes.folder / "built").mkdir()
        self._numbers = itertools.count(1)

    def launch(
        self,
        playbook: str,
        answers: Mapping[str, object] | None = None,
        *,
        workflow: Mapping[str, object] | None = None,
        check: bool = False,
        limit: str = "",
        part: tuple[int, int] = (1, 1),
    ) -> Job:
        """Play a template. answers: of its survey, checked as AWX does. workflow: what the workflow has for all its
        jobs, its own answers and the artifacts of earlier jobs; AWX checks them against no survey.
        part: which slice of how many.
        """
        of = template(playbook)
        given = rules.launched(of, answers or {}) if workflow is None else dict(workflow)
        number = next(self._numbers)
        folder = self.nodes.folder / f"awx_{number}"
        shutil.copytree(AWX / "project", folder / "project")
        (folder / "project" / "ansible.cfg").write_text(CONFIG)  # one's own, as projects may have it
        self._inventory(folder / "inventory" / "hosts", *part)
        told = {
            f"{name}_{key}": value for key, value in self._told(number, of["name"]).items() for name in ("awx", "tower")
        }
        words = ["-u", "root", *(["--check"] if check else []), *(["--diff"] if of.get("diff_mode") else [])]
        words += ["-l", limit] if limit else []
        self._write(folder / "env" / "extravars", rules.extra_vars({**given, **told}, of.get("extra_vars", {})))
        self._write(folder / "env" / "cmdline", " ".join(words))
        self._write(folder / "env" / "envvars", json.dumps(self._environment(folder, number)))
        return self._run(folder, f"{playbook}.yml", str(number))

    @staticmethod
    def _told(number: int, name: str) -> dict[str, object]:
        return {
            "job_id": number,
            "job_launch_type": "manual",
            "job_template_id": 7,
            "job_template_name": name,
            "user_id": 1,
            "user_name": "admin",
            "user_email": "admin@example.com",
            "inventory_id": 2,
            "inventory_name": "Hypervisors",
            "project_revision": "0" * 40,
            "project_scm_branch": "",
        }

    def _inventory(self, script: Path, number: int, count: int) -> None:
        """A program that prints the inventory as JSON, which is what AWX writes. A slice has every count-th host."""
        groups = yaml.safe_load(self.nodes.inventory("").read_text())
        variables, listed = {}, {}
        for name, group in groups.items():
            hosts = list(group["hosts"])[number - 1 :: count]
            listed[name] = {"hosts": hosts, "vars": group.get("vars", {})}
            for identity, (host, own) in enumerate(group["hosts"].items(), start=1):
                if host in hosts:
                    variables[host] = {**own, "remote_tower_enabled": "true", "remote_tower_id": identity}
        printed = json.dumps({**listed, "all": {"children": list(listed)}, "_meta": {"hostvars": variables}})
        self._write(script, f"#! /usr/bin/env python3\n# -*- coding: utf-8 -*-\nprint({printed!r})\n")
        script.chmod(0o700)

    def _environment(self, folder: Path, number: int) -> dict[str, str]:
        others = "~/.ansible/collections:/usr/share/ansible/collections"
        mine = self.nodes.folder / "collections"  # in the image: /usr/share/ansible/collections
        return {
            "ANSIBLE_FORCE_COLOR": "True",
            "ANSIBLE_HOST_KEY_CHECKING": "False",
            "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
            "ANSIBLE_PARAMIKO_RECORD_HOST_KEYS": "False",
            "ANSIBLE_RETRY_FILES_ENABLED": "False",
            "ANSIBLE_COLLECTIONS_PATHS": f"{folder}/requirements_collections:{others}:{mine}",
            "ANSIBLE_COLLECTIONS_PATH": f"{folder}/requirements_collections:{others}:{mine}",
            "ANSIBLE_ROLES_PATH": f"{folder}/requirements_roles:~/.ansible/roles:/usr/share/ansible/roles",
            "AWX_HOST": "https://awx.example.com",
            "AWX_PRIVATE_DATA_DIR": str(folder),
            "INVENTORY_ID": "2",
            "JOB_ID": str(number),
            "MAX_EVENT_RES": "700000",
            "PROJECT_REVISION": "0" * 40,
            # What the simulated nodes need
            "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests" / "unit" / "playbooks" / "connection"),
            "ANSIBLE_HOME": str(self.nodes.folder / "ansible"),
            "ANSIBLE_PIPELINING": "True",
            "FLEXDISK_NODES": str(self.nodes.folder),
        }

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def _run(self, folder: Path, playbook: str, identity: str) -> Job:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_") or "CALLBACK" in name
        }
        env = {**kept, **self.built, "PATH": self.path}
        command = [sys.executable, "-m", "ansible_runner", "run", str(folder), "-p", playbook, "-i", identity, "-q"]
        subprocess.run(command, env=env, check=False, stdin=subprocess.DEVNULL)
        left = folder / "artifacts" / identity
        files = [json.loads(path.read_text()) for path in (left / "job_events").glob("*-*.json")]
        events = sorted(files, key=lambda event: event["counter"])
        artifacts: dict[str, Any] = {}
        for event in events:
            artifacts = event.get("event_data", {}).get("artifact_data") or artifacts
        stdout = re.sub(r"\x1b\[[0-9;]*[mK]", "", (left / "stdout").read_text())
        return Job((left / "status").read_text(), stdout, artifacts, events)
