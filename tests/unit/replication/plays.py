# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbooks move_vm, failover_vm, start_host and replicate do with one VM on three hosts, in this process."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import (
    failover_start,
    vm_failover,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves import vm_move
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module_run import Call
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import (
    host_steps,
    starting,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import Stopped
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .controller import Controller, Lost
from .world import VM, Host, World

NAMES = ("hv01", "hv02", "hv03")
POOL = "zones"
_PARTS = ("vm", "move", "term", "asks")


class Refused(Exception):
    """The play ended without what was asked for, and says why."""


class Plays:
    """The playbooks. dead: hosts that cannot be reached."""

    def __init__(self, world: World, monkeypatch: Any) -> None:
        self.world = world
        self.hv: dict[str, Host] = {"hv01": world.home, "hv02": world.peer, "hv03": world.host(3)}
        self.dead: set[str] = set()
        self.controller = Controller(world, self.hv)

        def acting(host: Host) -> None:
            (name,) = [name for name, one in self.hv.items() if one is host]
            assert name not in self.dead, "a host that is down was asked"
            monkeypatch.setattr(records, "_FOLDER", str(world.folder / name))

        world.acting = acting

    @property
    def alive(self) -> list[str]:
        return [name for name in NAMES if name not in self.dead]

    def between(self, home: str, peer: str) -> None:
        """What is done next is between these hosts."""
        self.world.home, self.world.home_name = self.hv[home], home
        self.world.peer, self.world.peer_name = self.hv[peer], peer

    def _call(self, name: str, check: bool = False) -> Call:
        host = self.hv[name]
        self.world.acting(host)
        return Call(host.zfs(), host.driver(), None, check, host)

    def _move(self, on: str, **given: Any) -> dict[str, Any]:
        """A step of a move on a host."""
        params = host_steps.defaults()
        params.update(vm=VM, name=on, authorized_keys=str(self.world.authorized), **given)
        call = self._call(on)
        arguments, problems = vm_move.parse(params)
        assert problems == []
        return self._ended(vm_move.run(call, print, arguments))

    def _failover(self, on: str, check: bool = False, **given: Any) -> dict[str, Any]:
        """A step of a failover on a host."""
        params = host_steps.defaults()
        params.update({"vm": VM, "authorized_keys": str(self.world.authorized), **given})
        call = self._call(on, check)
        arguments, problems = vm_failover.parse(params)
        assert problems == []
        return self._ended(vm_failover.run(call, arguments))

    @staticmethod
    def _ended(answer: Any) -> dict[str, Any]:
        if answer.failure:
            raise Refused(answer.failure["msg"])
        result: dict[str, Any] = json.loads(json.dumps(answer.result))
        return result

    # -- move_vm

    def seen(self) -> dict[str, dict[str, Any]]:
        """What each host that answers says of the VM."""
        return {name: self._seen(name) for name in self.alive}

    def _seen(self, name: str) -> dict[str, Any]:
        result = self._move(name, step="look")
        return {key: result[key] for key in _PARTS}

    def move_vm(self, target: str, state: str = "moved") -> None:
        result = self._does("relocate", {"vm": VM, "hosts": NAMES, "target": target, "state": state})
        for name, one in result["moves"].items():
            sync = self.controller.sync(name, target, [])
            self._does("move", {"vm": one["vm"], "sync": sync, "state": state, "seen": one["seen"]})

    def _does(self, task: str, arguments: dict[str, Any]) -> dict[str, Any]:
        sync = arguments.get("sync", arguments)
        if sync.get("home") and sync["peer"]:
            self.between(sync["home"], sync["peer"])
        self.controller.lost = frozenset(self.dead)
        try:
            return self.controller.does(task, arguments)
        except (Stopped, Lost) as exc:
            raise Refused(str(exc)) from exc

    # -- replicate

    def replicate(self, peer: str) -> None:
        """With failover."""
        self._keep(peer, "present")

    def no_failover(self, peer: str) -> None:
        """replicate with flexdisk_failover=false: all that could take the VM over forget it first."""
        self._keep(peer, "absent")

    def _keep(self, peer: str, failover: str) -> None:
        seen = self.seen()
        have = [name for name, one in seen.items() if one["vm"] and (one["move"] or {}).get("phase") != "coming"]
        if len(have) != 1 or peer in have:
            raise Refused(f"it is on {have}, and {peer} shall have replicas")
        self._does("keep", self.controller.sync(have[0], peer, [VM], failover=failover))

    def absent(self, peer: str) -> None:
        """Replicas are given up. Those of a host that is dead are forgotten (flexdisk_forget_unseen)."""
        have = [name for name, one in self.seen().items() if one["vm"]]
        if len(have) != 1:
            raise Refused(f"it is on {have}")
        self._does("give_up", self.controller.sync(have[0], peer, [VM], forget_unseen=peer in self.dead))

    # -- failover_vm

    def _looks(self) -> dict[str, dict[str, Any]]:
        answers = {}
        for name in self.alive:
            host = self.hv[name]
            self.world.acting(host)
            looked = failover_start.look(host.zfs(), host.driver(), Copies(host), VM, [VM])
            answers[name] = json.loads(json.dumps(looked))
        return answers

    def failover_vm(self, target: str, most: int | None = None, without: Collection[str] = ()) -> None:
        """without: hosts that --limit leaves out."""
        self._recovers("taken_over", without, target=target, fenced=True, max_data_loss=most)

    def failover_stays(self) -> None:
        self._recovers("stays")

    def ends(self, state: str, old: str = "") -> list[str]:
        """returned or given_up. What becomes of the disks."""
        self.controller.answers.pop("Do it", None)
        self._recovers(state, old_host=old)
        done = self.controller.answers.get("Do it")
        return list(done.result["disks"]) if done else []

    def _recovers(self, state: str, without: Collection[str] = (), **more: Any) -> None:
        hosts = [name for name in NAMES if name not in without]
        keys = dict.fromkeys(NAMES, str(self.world.authorized))
        given = {"vm": VM, "hosts": hosts, "every": NAMES, "state": state, "authorized_keys": keys}
        self._does("recover", {**given, **more})

    # -- start_host

    def start_host(self, name: str, unasked: bool = False) -> list[str]:
        """What it complains of."""
        looks = {name: self._all_of(name)}
        others = starting.hosts_to_ask(looks, NAMES, NAMES)
        answers = {one: self._all_of(one) if one in self.alive else {} for one in [name, *others]}
        peers = starting.claims_for(looks, answers)[name]
        given = {"name": name, "boot": looks[name]["boot"], "peers": peers, "unasked": unasked}
        return list(self._failover(name, step="start", **given)["failures"])

    def _all_of(self, name: str) -> dict[str, Any]:
        return self._failover(name, step="look", vm=None)
