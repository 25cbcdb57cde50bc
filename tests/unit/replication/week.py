# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Four simulated nodes with VMs, on which the playbook replicate runs every quarter of an hour for days, by a clock of
its own: what it decides, does and tells is the product's; what should be there is written down here a second time.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from simnode.zfs import extents

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module_run import Call
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.order import Play, decide
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.playbooks import PLAYBOOKS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.replicate_report import (
    report,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import Stopped
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.replicas import is_synced
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.retention import PERIODS
from ansible_collections.flexdisk.hypervisor.plugins.modules import vm_info

from .controller import Controller, Lost
from .world import REPLICAS, Foreign, World

HOSTS = ("hv01", "hv02", "hv03", "hv04")
START, TICK, HOUR, DAY = 1767225600, 900, 3600, 86400
POLICIES = (
    {"every": 900, "keep": {"hourly": 6, "daily": 3}},
    {"every": 3600, "keep": {"hourly": 24, "daily": 7}, "keep_home": {"hourly": 2}},
    {"every": 4 * 3600, "keep": {"last": 3, "daily": 2}, "bandwidth_limit": "50MiB"},
    {"every": 3600},
)
READS = {"vms": None, "space": False, "leases": False}
SNAPSHOTTER_KEEPS = 6


class Broken(AssertionError):
    """Something that must not be."""


def as_the_policy_says(history: list[tuple[str, int]], keep: dict[str, int]) -> set[str]:
    """The sets that should be there: each of the last periods that have any keeps its newest one."""
    wanted = {name for name, _time in history[-max(1, keep.get("last", 0)) :]}
    for period, form in PERIODS.items():
        newest = {datetime.fromtimestamp(moment, UTC).strftime(form): name for name, moment in history}
        count = keep.get(period, 0)
        wanted |= set([*newest.values()][-count:] if count else [])
    return wanted


class Week(World):
    """The nodes, the VMs and the policies. trouble: what befalls the hosts, by the number of the tick."""

    def __init__(self, folder: Any, monkeypatch: Any, seed: int, vms: int) -> None:
        self.dice, self.count = random.Random(seed), vms
        self.now, self.dead = START, set[str]()
        monkeypatch.setattr(time, "time", lambda: self.now)
        super().__init__(folder, monkeypatch)

        def acting(host: Any) -> None:
            name = next(name for name, one in self.named.items() if one is host)
            assert name not in self.dead, "a host that is down was asked"
            monkeypatch.setattr(records, "_FOLDER", str(folder / name))

        self.acting = acting
        self.controller = Controller(self, self.named)
        self.entries: list[dict[str, Any]] = []
        self.history: dict[tuple[str, str], list[tuple[str, int]]] = {}
        """The sets that were complete on a host, by VM and host, whether they are still there or not."""
        self.contents: dict[tuple[str, str, str], list[str]] = {}
        """What the disks had in each of them."""
        self.synced: dict[tuple[str, str], int] = {}
        """When a host had everything, by VM and host."""
        self.counts = Counter[str]()
        self.clones: list[tuple[str, str]] = []
        self.guids = {
            name: int(host.ok("zfs", "get", "-Hpo", "value", "guid", "zones")) for name, host in self.named.items()
        }
        for number, (name, home) in enumerate(self.homes.items()):
            place = HOSTS.index(home)
            entry = {"vm": name, "host": HOSTS[(place + 1) % 4], **POLICIES[number % len(POLICIES)]}
            self.entries.append({**entry, "failover": number % 2 == 0})
            if number % 5 == 0:  # and further away
                self.entries.append({**entry, "host": HOSTS[(place + 2) % 4], "every": 4 * HOUR})

    def make(self) -> None:
        """The VMs, one after the other on the hosts."""
        self.host(3)
        self.host(4)
        self.uuids = {
            f"vm{number:02}": f"aaaaaaaa-0000-4000-8000-0000000001{number:02}" for number in range(self.count)
        }
        self.homes = {name: HOSTS[number % 4] for number, name in enumerate(self.uuids)}
        for number, (name, uuid) in enumerate(self.uuids.items()):
            disks = [{"boot": not disk, "model": "virtio", "size": 64} for disk in range(1 + number % 2)]
            payload = {"uuid": uuid, "alias": name, "brand": "bhyve", "ram": 128, "vcpus": 1, "quota": 1}
            payload.update(flexible_disk_size=64 * 16, disks=disks)
            host = self.named[self.homes[name]]
            assert host.node.run(["vmadm", "create"], json.dumps(payload))[0] == 0

    def write(self, disk: int, mib: int, start: int = 0) -> None:
        """Not by number here."""

    # -- what befalls them

    def goes_on(self) -> None:
        """A quarter of an hour passes. Guests write meanwhile."""
        self.now += TICK
        for host in self.named.values():
            host.node.clock._now = float(self.now)
        for name, home in self.homes.items():
            if home not in self.dead and self.dice.random() < 0.3:
                host = self.named[home]
                self.serial += 1
                where = self.dice.choice(host.disks(self.uuids[name]))["dataset"]
                host.ok("guest", "write", where, str(self.dice.randint(0, 40)), "1", f"w{self.serial}")

    def snapshotter(self, name: str) -> None:
        """A tool of somebody takes a snapshot of a whole pool every hour, and destroys its own older ones."""
        if name in self.dead or self.now % HOUR:
            return
        number = self.now // HOUR
        Foreign.of_pool(self.named[name], f"auto-{number}")
        node, old = self.named[name].node, f"@auto-{number - SNAPSHOTTER_KEEPS}"
        listed = node.run(["zfs", "list", "-Ho", "name", "-t", "snapshot"])[1].split()
        for one in [each for each in listed if each.endswith(old)]:
            node.run(["zfs", "destroy", one])

    def fills(self, name: str) -> None:
        """Something else takes what the pool has left, but for a MiB."""
        host = self.named[name]
        room = int(host.ok("zfs", "get", "-Hpo", "value", "available", "zones"))
        host.ok("zfs", "create", "-o", f"reservation={room - (1 << 20)}", "zones/filler")

    def empties(self, name: str) -> None:
        self.named[name].ok("zfs", "destroy", "zones/filler")

    def dies(self, name: str) -> None:
        """A host loses power."""
        host = self.named[name]
        for vm in json.loads(host.ok("vmadm", "lookup", "-j")):
            if vm["state"] == "running":
                host.ok("vmadm", "stop", vm["uuid"], "-F")  # which turns autoboot off
                host.node.run(["vmadm", "update", vm["uuid"]], json.dumps({"autoboot": vm["autoboot"]}))
        self.dead.add(name)

    def taken_over(self, name: str) -> None:
        """An operator brings the VMs of a dead host that have failover back on the hosts of their replicas."""
        for vm, home in list(self.homes.items()):
            entry = next(one for one in self.entries if one["vm"] == vm)
            if home != name or not entry["failover"] or (vm, entry["host"]) not in self.history:
                continue
            before = self.contents[vm, entry["host"], self.history[vm, entry["host"]][-1][0]]
            wanted = {"target": entry["host"], "fenced": True, "max_data_loss": None}
            try:
                self._recovers(vm, "taken_over", **wanted)
            except Stopped as exc:
                if "dependent clones" not in str(exc):
                    raise
                self._ends_looking()  # as the message says
                self._recovers(vm, "taken_over", **wanted)
            self.homes[vm] = entry["host"]
            host = self.named[entry["host"]]
            has = [host.ok("guest", "hash", disk["dataset"]) for disk in host.disks(self.uuids[vm])]
            if has != before:
                raise Broken(f"{vm} came back with something else than its newest whole set")
            self.counts["failovers"] += 1
            self.synced.pop((vm, entry["host"]))
            self.history.pop((vm, entry["host"]))  # the host has the VM now, and no replica
            self.entries = [one for one in self.entries if (one["vm"], one["host"]) != (vm, entry["host"])]

    def returns(self, name: str) -> None:
        """The host boots. Its former VMs end there, and their new homes replicate to it."""
        self.dead.discard(name)
        host = self.named[name]
        host.node.vmadm_state["boots"] = host.node.vmadm_state.get("boots", 0) + 1
        for vm in json.loads(host.ok("vmadm", "lookup", "-j")):
            if vm["uuid"] in [self.uuids[one] for one, home in self.homes.items() if home == name]:
                host.node.run(["vmadm", "start", vm["uuid"]])
        for number, (vm, home) in enumerate(self.homes.items()):
            here = [one["host"] for one in self.entries if one["vm"] == vm]
            if home != name and name not in here and any(one["uuid"] == self.uuids[vm] for one in _vms(host)):
                self._recovers(vm, "returned", old_host=name)
                self.entries.append({"vm": vm, "host": name, **POLICIES[number % len(POLICIES)], "failover": False})

    def _recovers(self, vm: str, state: str, **more: Any) -> None:
        uuid = self.uuids[vm]
        self.controller.lost = frozenset(self.dead)
        keys = dict.fromkeys(HOSTS, str(self.authorized))
        given = {"vm": uuid, "hosts": list(HOSTS), "every": list(HOSTS), "state": state, "authorized_keys": keys}
        home, peer = self.homes[vm], more.get("target") or more["old_host"]
        self._between(home, peer)
        self.controller.does("recover", {**given, **more})

    def _between(self, home: str, peer: str) -> None:
        self.home, self.home_name = self.named[home], home
        self.peer, self.peer_name = self.named[peer], peer

    def restores(self) -> None:
        """Somebody looks into an older set of a replica for some hours, as a clone of its snapshot."""
        self._ends_looking()
        there = [
            key for key in self.history if not {key[1], self.homes[key[0]]} & self.dead and len(self._sets(*key)) > 1
        ]
        if there:
            vm, host = self.dice.choice(sorted(there))
            first = self._replicas(vm, host)[0]
            clone = f"zones/look-{self.now}"
            self.named[host].ok("zfs", "clone", f"{first}@{self._sets(vm, host)[0]}", clone)
            self.clones.append((host, clone))
            self.counts["restores"] += 1

    def _ends_looking(self) -> None:
        for host, clone in self.clones:
            if host not in self.dead:
                self.named[host].node.run(["zfs", "destroy", "-r", clone])
        self.clones = [one for one in self.clones if one[0] in self.dead]

    # -- the playbook

    def replicate(self) -> list[str]:
        """One run of the playbook. What has failed, which is what a monitoring sees."""
        alive = [name for name in HOSTS if name not in self.dead]
        given = {"flexdisk_replicas": self.entries}
        variables = dict.fromkeys(alive, given)
        read = {name: self._read(name) for name in alive}
        order = decide(PLAYBOOKS["replicate"], Play(variables, read, sorted(self.dead)))
        if order.problems:
            raise Broken(str(order.problems))
        self.controller.lost = frozenset(self.dead)
        results: dict[str, list[Any]] = {name: [] for name in alive}
        for number in range(max(len(call["peers"]) for call in order.calls.values())):
            for home, call in order.calls.items():
                if call["peers"][number]:
                    results[home].append(self._syncs(home, dict(call["peers"][number])))
        self.counts["fresh"] += sum(len(call["fresh"]) for call in order.calls.values())
        return report(order.calls, results, order.left_out).failures

    def _read(self, name: str) -> Any:
        host = self.named[name]
        self.acting(host)
        answer = vm_info.body(Call(host.zfs(), host.driver(), None, False, host), READS)
        return json.loads(json.dumps(answer.result))

    def _syncs(self, home: str, peer: dict[str, Any]) -> Any:
        vms, host = peer.pop("vms"), peer.pop("host")
        peer.pop("rows")
        self._between(home, host) if host in self.named else None
        try:
            ended = self.controller.does("replicate", self.controller.sync(home, host, vms, goes_on=True, **peer))
        except Lost as exc:
            raise Broken(f"a lost host stops the run: {exc}") from exc
        for row in ended["rows"]:
            self.counts["complete" if row["complete"] else "failed"] += 1
            if row["complete"]:
                self._note(next(name for name, uuid in self.uuids.items() if uuid == row["vm"]), host)
        return ended

    def _note(self, vm: str, host: str) -> None:
        sets = self._sets(vm, host)
        if (vm, host) not in self.history:  # what a former disk had is older than all that comes
            self.history[vm, host] = [(name, 0) for name in sets[:-1]]
        self.synced[vm, host] = self.now
        if sets[-1] in dict(self.history[vm, host]):
            return
        self.history[vm, host].append((sets[-1], self.now))
        home = self.named[self.homes[vm]]
        self.contents[vm, host, sets[-1]] = [
            home.ok("guest", "hash", disk["dataset"]) for disk in home.disks(self.uuids[vm])
        ]
        entry = next(one for one in self.entries if (one["vm"], one["host"]) == (vm, host))
        wanted = as_the_policy_says(self.history[vm, host], entry.get("keep", {}))
        cloned = {one.split("@")[1] for one in self._cloned(vm, host)}
        if not wanted <= {*sets} <= wanted | cloned:
            raise Broken(f"{vm} on {host}: {sets} instead of {sorted(wanted)}, cloned {cloned}")

    # -- what is there

    def _replicas(self, vm: str, host: str) -> list[str]:
        disks = self.named[self.homes[vm]].disks(self.uuids[vm])
        return [f"{REPLICAS}/{disk['uuid']}" for disk in disks]

    def _sets(self, vm: str, host: str) -> list[str]:
        """The sets of the first disk there that came from its home."""
        pools = [f"{self.guids[one] & 0xFFFFFFFF:08x}" for one in (host, self.homes[vm])]
        names = self.named[host].points(self._replicas(vm, host)[0])
        return [name for name in names if is_synced(name) and name.split("-")[2] in pools]

    def _cloned(self, vm: str, host: str) -> list[str]:
        origins = self.named[host].node.run(["zfs", "list", "-Ho", "origin", "-r", "zones"])[1].split()
        return [one for one in origins if one.split("@")[0] in self._replicas(vm, host)]

    def check(self, failures: list[str]) -> None:
        """No replica is older than its policy allows, and a run more, unless this run says so."""
        for entry in self.entries:
            name, host = entry["vm"], entry["host"]
            age = self.now - self.synced[name, host] if (name, host) in self.synced else None
            if (age is None or age > entry["every"] + TICK) and not any(name in text for text in failures):
                raise Broken(f"{name} on {host} is {age} s old, and nobody says so: {failures}")

    def check_contents(self) -> int:
        """Each set that is there has what the disks had. How many there are."""
        count = 0
        for (vm, host), history in self.history.items():
            if host in self.dead or self.homes[vm] in self.dead:
                continue
            for name in self._sets(vm, host):
                wanted = self.contents.get((vm, host, name))
                if wanted and name in dict(history):
                    has = [self._digest(host, one, name) for one in self._replicas(vm, host)]
                    if has != wanted:
                        raise Broken(f"{vm} on {host}: {name} has something else than the disks had")
                    count += 1
        return count

    def _digest(self, host: str, dataset: str, name: str) -> str:
        (snapshot,) = [one for one in self.named[host].node.pools.dataset(dataset).snapshots if one.name == name]
        return extents.digest(snapshot.extents, 0, snapshot.volsize)


def _vms(host: Any) -> list[dict[str, Any]]:
    configs: list[dict[str, Any]] = json.loads(host.ok("vmadm", "lookup", "-j"))
    return configs
