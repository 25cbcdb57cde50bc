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
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import host_steps, places
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import Stopped
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import read_claims
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.moves import read_sightings
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .controller import Controller, Lost
from .world import VM, Host, World

NAMES = ("hv01", "hv02", "hv03")
POOL = "zones"
_PARTS = ("vm", "move", "term", "asks")
_OF_OTHERS = ("vm", "move", "term")


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
        params.update(vm=VM, authorized_keys=str(self.world.authorized), **given)
        call = self._call(on, check)
        arguments, problems = vm_failover.parse(params)
        assert problems == []
        return self._ended(vm_failover.run(call, arguments))

    @staticmethod
    def _ended(answer: Any) -> dict[str, Any]:
        if answer.failure:
            raise Refused(answer.failure["msg"])
        found: dict[str, Any] = json.loads(json.dumps(answer.result))
        return found

    # -- move_vm

    def seen(self) -> dict[str, dict[str, Any]]:
        """What each host that answers says of the VM."""
        return {name: self._seen(name) for name in self.alive}

    def _seen(self, name: str) -> dict[str, Any]:
        found = self._move(name, step="look")
        return {key: found[key] for key in _PARTS}

    def _others(self, seen: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
        """What the other hosts say, to one of them."""
        said: dict[str, Any] = dict.fromkeys(self.dead, "")
        for other, one in seen.items():
            said.update({} if other == name else {other: {key: one[key] for key in _OF_OTHERS}})
        return said

    def move_vm(self, target: str, state: str = "moved") -> None:
        seen = self.seen()
        found = places.find(read_sightings(seen), places.Wanted(VM, target, state, False))
        if found.problems:
            raise Refused(". ".join(found.problems))
        if state == "forgotten":
            for name in self.alive:
                self._forget(name, seen)
        elif found.source not in self.alive:
            if state == "moved" and not found.homes:
                if target in self.dead:
                    raise Refused(f"{target} cannot be reached")
                self._move(target, step="arrive", peer_name=found.source, peers=self._others(seen, target))
        elif found.source != target:
            self._leaves(found.source, target, state, self._others(seen, found.source))

    def _forget(self, name: str, seen: dict[str, dict[str, Any]]) -> None:
        if seen[name]["move"]:
            self._move(name, step="forget", peers=self._others(seen, name))

    def _leaves(self, source: str, target: str, state: str, others: dict[str, Any]) -> None:
        """The role vm_move."""
        sync = self.controller.sync(source, target, [])
        self._does("move", {"vm": VM, "sync": sync, "state": state, "seen": others})

    def _does(self, task: str, arguments: dict[str, Any]) -> None:
        sync = arguments.get("sync", arguments)
        self.between(sync["home"], sync["peer"])
        self.controller.lost = frozenset(self.dead)
        try:
            self.controller.does(task, arguments)
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
        said = {}
        for name in self.alive:
            host = self.hv[name]
            self.world.acting(host)
            found = failover_start.look(host.zfs(), host.driver(), Copies(host), VM, [VM])
            said[name] = json.loads(json.dumps(found))
        return said

    def failover_vm(self, target: str, most: int | None = None, without: Collection[str] = ()) -> None:
        """without: hosts that --limit leaves out."""
        said = {name: one for name, one in self._looks().items() if name not in without}
        if target not in said:
            raise Refused(f"{target} could not be asked")
        homes = [one["host"] for one in said[target]["records"]]
        if len(homes) != 1 and not said[target]["vms"]:
            raise Refused(f"{target} has {len(homes)} records")
        begun = self._begun(said).get(target, "")
        if set(homes) & set(without):
            raise Refused("the home must be asked")
        peers: dict[str, Any] = {name: "" for name in NAMES if name not in without}
        peers.update({name: one["vms"] + one["moved"] for name, one in said.items()})
        elsewhere = {name: one["records"] + one["moved"] for name, one in said.items()}
        given: dict[str, Any] = {"step": "take_over", "name": target, "peers": peers}
        given["elsewhere"] = {**elsewhere, target: []}
        if begun in said:
            self._failover(target, check=True, **given)
            self._failover(begun, step="end", peers={target: said[target]["vms"]}, begun=True)
        self._failover(target, **given, max_data_loss=most)

    @staticmethod
    def _begun(said: dict[str, dict[str, Any]]) -> dict[str, str]:
        return {name: one["vms"][0]["taking"] for name, one in said.items() if one["vms"] and one["vms"][0]["taking"]}

    def failover_stays(self) -> None:
        said = self._looks()
        begun = self._begun(said)
        whole = {name for name, one in said.items() if one["vms"] and not one["vms"][0]["left"]}
        whole |= {name for name, one in said.items() if one["moved"] and one["moved"][0].get("begun")}
        if self.dead and len(begun) != 1:
            raise Refused(f"{self.dead} could not be asked")
        if len(begun) > 1:
            raise Refused(f"{list(begun)} have begun")
        if begun and not whole - set(begun):
            raise Refused("no host says that it has it whole")
        for name in begun:
            self._failover(name, step="stay")

    def ends(self, step: str, old: str = "") -> list[str]:
        """returned (end) or given_up (give_up). What becomes of the disks."""
        said = self._looks()
        moved = {name: one["moved"] for name, one in said.items()}
        if old and old not in said:
            raise Refused(f"{old} could not be asked")
        would = {}
        for name in [old] if old else said:
            peers = {other: said[other]["vms"] if other in said else "" for other in NAMES if other != name}
            given = {"step": step, "peers": peers, "old": bool(old), "elsewhere": moved}
            disks = self._failover(name, check=True, **given)["disks"]
            would.update({name: given} if disks else {})
        if len(would) > 1:
            raise Refused(f"{list(would)} have something of it")
        return [words for name, given in would.items() for words in self._failover(name, **given)["disks"]]

    # -- start_host

    def start_host(self, name: str, unasked: bool = False) -> list[str]:
        """What it complains of."""
        said: dict[str, Any] = dict.fromkeys(self.dead, "")
        for other, one in self._looks().items():
            said.update({} if other == name else {other: one["vms"] + one["moved"]})
        host = self.hv[name]
        self.world.acting(host)
        claims = read_claims(said)
        return failover_start.start(host.zfs(), host.driver(), claims, unasked, False, name).failures
