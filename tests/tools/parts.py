# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which part of `make verify` a changed file asks for. `make test` adds these parts."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping, Sequence

from tree import ROOT

SHARED = "plugins/module_utils/_flexdisk/"
ONE_HOST = (f"{SHARED}engine/", f"{SHARED}plan/", f"{SHARED}rules/", f"{SHARED}zfs/", f"{SHARED}hypervisor/")
CONTROLLER = tuple(f"plugins/{kind}/" for kind in ("action", "callback", "filter", "inventory", "plugin_utils"))
SIMULATED = "extensions/simulated_node/"
LONG: Mapping[str, Sequence[str]] = {  # a folder, or file, with tests that take long, and what they alone prove
    "tests/unit/action": CONTROLLER,
    "tests/unit/awx": ("extensions/awx/", "playbooks/"),
    "tests/unit/differential": (SIMULATED, "tests/lab/differential/"),
    "tests/unit/docs": ("README.md", "docs/", "examples/", "playbooks/", "roles/", "tests/tools/"),
    "tests/unit/domains": ONE_HOST,
    "tests/unit/engine": ONE_HOST,
    "tests/unit/faults": (*ONE_HOST, SIMULATED, "tests/faults/"),
    "tests/unit/fleet": (f"{SHARED}fleet/",),
    "tests/unit/guest": (f"{SHARED}guest/", f"{SHARED}engine/", "extensions/guests/", "roles/guest_growth/"),
    "tests/unit/lab": ("tests/lab/",),
    "tests/unit/modules": ("plugins/modules/", f"{SHARED}parse/"),
    "tests/unit/placement": (f"{SHARED}fleet/placement/", "extensions/iallocator/"),
    "tests/unit/playbooks": ("playbooks/", "roles/", *CONTROLLER, f"{SHARED}fleet/"),
    "tests/unit/proxmox": (*ONE_HOST, "playbooks/"),
    "tests/unit/registry": ONE_HOST,
    "tests/unit/replication": (f"{SHARED}fleet/replication/", *ONE_HOST, "roles/vm_move/", "roles/vm_replica/"),
    "tests/unit/rolls": (f"{SHARED}fleet/", f"{SHARED}engine/", "roles/instance_group/", "examples/"),
    "tests/unit/rules": (f"{SHARED}rules/",),
    "tests/unit/simnode": (SIMULATED,),
    "tests/unit/stateful": (*ONE_HOST, SIMULATED),
    "tests/unit/test_bench.py": ("tests/bench/", f"{SHARED}engine/"),
    "tests/unit/test_release.py": ("changelogs/", "galaxy.yml", "tests/tools/"),
}
OTHERS: Mapping[str, Sequence[str]] = {  # a stage of make verify that is no pytest of a folder
    "integration": (
        "plugins/modules/",
        f"{SHARED}parse/",
        f"{SHARED}model/",
        "roles/",
        SIMULATED,
        "tests/integration/",
    ),
    "lab-share": (
        f"{SHARED}zfs/",
        f"{SHARED}hypervisor/",
        f"{SHARED}engine/host/runner.py",
        f"{SHARED}engine/host/lock.py",
        f"{SHARED}guest/",
        SIMULATED,
        "extensions/guests/",
        "tests/lab/",
        "tests/conformance/",
        "tests/faults/",
        "tests/streams/",
        "tests/unit/replication/test_move.py",
        "tests/unit/replication/test_other_tasks.py",
        "tests/unit/replication/world.py",
    ),
}


def parts(changed: Collection[str]) -> list[str]:
    """The folders of LONG and the stages of OTHERS that these files, relative to the root, belong to."""
    return [
        name for name, files in {**LONG, **OTHERS}.items() if any(path.startswith((name, *files)) for path in changed)
    ]


def changed_files() -> list[str] | None:
    """Files that differ from where this branch has left the main one, with those not committed; None without git."""
    for main in ("origin/main", "main"):
        base = _git("merge-base", "HEAD", main)
        if base is not None:
            listed = _git("diff", "--name-only", base.strip()), _git("ls-files", "--others", "--exclude-standard")
            return sorted({name for names in listed for name in (names or "").splitlines()})
    return None


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
