# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two simulated nodes, on which the engine does a sync in this process: every command can be the last one."""

from __future__ import annotations

import copy
import json
import re
import shlex
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

from simnode import Node, PoolSpec, ssh
from simnode.zfs import stream as simulated_stream

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import lock
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.progress import Progress
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves.replica_last import (
    LastTransfer,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication.replica_info import (
    replica_info,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication.replica_receive import (
    Receiver,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication.replica_send import (
    Sender,
    SyncPolicy,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.peers import read_peer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.transfers import (
    VmTransfer,
    read_transfers,
    transfer_as_result,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.trust import Address
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer, changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

VM = "aaaaaaaa-0000-4000-8000-000000000202"
REPLICAS = "zones/flexdisk/replica"
DEVICES = "/dev/zvol/rdsk/"
PASSPHRASE, OTHER = "the passphrase of the home", "the passphrase of the peer"
Known = tuple[VmTransfer, list[str]]


class Killed(BaseException):
    """The run was killed."""


class Fuse:
    """Kills the run at a command, before it is run or after. counted: commands so far."""

    def __init__(self, at: int = 0, after: bool = False) -> None:
        self.at, self.after, self.counted = at, after, 0

    def blow(self, after: bool) -> None:
        self.counted += 0 if after else 1
        if self.counted == self.at and after is self.after:
            raise Killed


class Foreign:
    """Somebody takes snapshots of whole pools, on both hosts: at each of these commands, or whenever a run is killed.

    A pool whose datasets have no room for that together is taken dataset by dataset, as tools for backups do it.
    """

    def __init__(self, at: Container[int] = (), killed: bool = False) -> None:
        self.at, self.killed, self.taken = at, killed, 0

    def wants(self, number: int, after: bool, fuse: Fuse) -> bool:
        """Whether one is due before command number, or after it."""
        dies = self.killed and (number, after) == (fuse.at, fuse.after)
        return dies or (number in self.at and not after)

    def take(self, world: World) -> None:
        """Take the next one on both hosts."""
        self.taken += 1
        for host in (world.home, world.peer):
            self.of_pool(host, f"auto-{self.taken}")

    @staticmethod
    def of_pool(host: Host, name: str) -> None:
        """Take one of a whole pool."""
        if host.node.run(["zfs", "snapshot", "-r", f"zones@{name}"])[0]:
            listed = host.node.run(["zfs", "list", "-H", "-o", "name", "-t", "filesystem,volume", "-r", "zones"])[1]
            for dataset in listed.split():
                host.node.run(["zfs", "snapshot", f"{dataset}@{name}"])


class Host:
    """A node, and the runner of the engine on it."""

    stop = "vmadm stop"  # what messages call the command that stops a VM

    def __init__(self, node: Node, folder: Path, world: World) -> None:
        self.node, self.folder, self.world = node, folder, world
        self.inherited: tuple[int, ...] = ()

    def __call__(self, argv: Any, stdin: str = "", timeout: float = 300) -> Answer:
        del timeout
        self.world.acting(self)
        self.world.last_commands = [*self.world.last_commands[-2:], list(argv[:2])]
        self.world.blow(False)
        if argv[0] == "ssh-keygen":
            answer = Answer(ssh.main(self.folder, argv[0], list(argv[1:])), "", "")
        elif argv[0] == "ps":
            answer = Answer(1, "", "")
        elif argv[0] == "ssh":
            answer = Answer(*self.world.peer.node.run(self.opened(argv)))
        else:
            answer = Answer(*self.node.run(list(argv), stdin))
        self.world.watch()
        if changes(argv):
            self.world.guard()
        self.world.blow(True)
        return answer

    def carry(self, first: Any, second: Any, carried: Any) -> tuple[Answer, Answer]:
        """The forced command of the key receives what zfs send writes, or a part of it."""
        self.world.blow(False)
        rc, out, err = self.node.run(list(first))
        if self.world.cut:
            out = simulated_stream.cut(out, self.world.cut)
        answer = Answer(*self.world.peer.node.run(self.opened(second), out))
        carried(len(out))
        self.world.blow(True)
        return Answer(rc, "", err), answer

    def opened(self, arguments: Any) -> list[str]:
        """The command that the key of ssh opens on the peer."""
        key = Path(arguments[arguments.index("-i") + 1]).read_text().rpartition(" of ")[2].strip()
        lines = self.world.authorized.read_text().splitlines()
        (command,) = (re.search(r'command="([^"]*)"', line)[1] for line in lines if key in line)
        return shlex.split(command.rpartition(" && exec ")[2])

    def zfs(self) -> Zfs:
        return Zfs(self)

    def driver(self) -> Any:
        return Vmadm(self, lambda _seconds: None)

    def state(self) -> Any:
        """What restore() takes."""
        return copy.deepcopy(self.node)

    def restore(self, state: Any) -> None:
        self.node = copy.deepcopy(state)

    def disks(self, uuid: str) -> list[dict[str, Any]]:
        """The disks of a VM, each with uuid and dataset."""
        configs = json.loads(self.node.run(["vmadm", "lookup", "-j", f"uuid={uuid}"])[1])
        disks = [disk for vm in configs for disk in vm["disks"]]
        return [{"uuid": d["uuid"], "dataset": d["path"][len(DEVICES) :], "boot": d.get("boot", False)} for d in disks]

    def boots(self, uuid: str) -> list[str]:
        """The datasets that the VM can be started from."""
        return [disk["dataset"] for disk in self.disks(uuid) if disk["boot"]]

    def load(self, dataset: str, passphrase: str = PASSPHRASE) -> None:
        """Load the key of an encryption root."""
        assert self.node.run(["zfs", "load-key", dataset], passphrase) == (0, "", "")

    def is_locked(self, dataset: str) -> bool:
        """Whether the key of a dataset is not loaded."""
        return self.ok("zfs", "get", "-H", "-o", "value", "keystatus", dataset) == "unavailable"

    def hash(self, dataset: str) -> str:
        """The contents of a volume. A locked one is opened for that only."""
        if not self.is_locked(dataset):
            return self.ok("guest", "hash", dataset)
        self.load(dataset)
        try:
            return self.ok("guest", "hash", dataset)
        finally:
            self.ok("zfs", "unload-key", dataset)

    def has(self, dataset: str) -> bool:
        """Whether there is such a dataset: asked after every command of a run, and so without a command."""
        return dataset in self.node.pools.pools["zones"].datasets

    def config(self, uuid: str) -> dict[str, Any]:
        """What does not change when a VM moves."""
        (vm,) = json.loads(self.ok("vmadm", "lookup", "-j", f"uuid={uuid}"))
        volatile = ("last_modified", "create_timestamp", "boot_timestamp", "zonedid", "zoneid", "pid", "server_uuid")
        disks = [{k: v for k, v in disk.items() if k not in ("image_size",)} for disk in vm["disks"]]
        return {**{k: v for k, v in vm.items() if k not in volatile}, "disks": disks}

    def runs(self, uuid: str) -> bool:
        """Whether the VM runs."""
        return self.power(uuid) == "running"

    def power(self, uuid: str) -> str:
        configs = json.loads(self.node.run(["vmadm", "lookup", "-j", f"uuid={uuid}"])[1])
        return str(configs[0]["state"]) if configs else ""

    def power_on(self, uuid: str) -> None:
        """Somebody starts the VM by hand, past all that asks."""
        self.ok("vmadm", "start", uuid)

    def power_off(self, uuid: str) -> None:
        """The VM ends at once, by hand or because its host loses power."""
        self.ok("vmadm", "stop", uuid, "-F")

    def suspend(self, uuid: str) -> None:
        """Its host is shut down in order: the memory of its guest is saved, where that is possible."""
        self.power_off(uuid)

    def forget_memory(self, uuid: str) -> None:
        """Somebody gives the saved memory of the guest up, as messages say."""

    def reboot(self) -> None:
        """The host has booted. It has started nothing."""
        self.node.vmadm_state["boots"] = self.node.vmadm_state.get("boots", 0) + 1

    def autoboots(self, uuid: str) -> bool:
        """Whether the hypervisor starts the VM with the host."""
        return any(vm["autoboot"] for vm in json.loads(self.ok("vmadm", "lookup", "-j", f"uuid={uuid}")))

    def set_autoboot(self, uuid: str, autoboot: bool) -> None:
        self.node.run(["vmadm", "update", uuid], json.dumps({"autoboot": autoboot}))

    def rename(self, uuid: str, alias: str) -> None:
        """Somebody gives the VM another name."""
        self.node.run(["vmadm", "update", uuid], json.dumps({"alias": alias}))

    def annotate(self, uuid: str, text: str) -> None:
        """Somebody changes something in the configuration of the VM."""
        self.node.run(["vmadm", "update", uuid], json.dumps({"set_customer_metadata": {"root_pw": text}}))

    def create(self, payload: dict[str, Any]) -> None:
        """Somebody makes a VM, as vmadm has it."""
        assert self.node.run(["vmadm", "create"], json.dumps(payload))[0] == 0

    def delete(self, uuid: str) -> None:
        """Somebody deletes the VM, with its disks."""
        self.ok("vmadm", "delete", uuid)

    def stored(self) -> str:
        """All that its pools hold, to compare it."""
        return json.dumps(self.node.pools.to_json())

    def hashes(self, uuid: str) -> list[str]:
        """What is on the disks of the VM."""
        return [self.ok("guest", "hash", disk["dataset"]) for disk in self.disks(uuid)]

    def ok(self, *arguments: str) -> str:
        rc, out, err = self.node.run(list(arguments))
        assert rc == 0, (arguments, err)
        return out.strip()

    def points(self, dataset: str, kind: str = "snapshot") -> list[str]:
        result = self.ok("zfs", "list", "-H", "-o", "name", "-t", kind, "-s", "createtxg", "-d", "1", dataset)
        return [re.split("[@#]", line)[1] for line in result.split()]


class World:
    """A home with a VM, and a peer. cut: so many bytes of each stream arrive, 0 for all."""

    names: tuple[str, ...] = ("root", "data")
    allocatable = 0
    passphrases: tuple[str, ...] = ()
    """Of the pools of the hosts, in the order of their seeds; "" for one that is not encrypted."""
    listed: tuple[dict[str, Any], ...] = ()
    """Disks of the VM beside the first two, that each task lists."""
    cold: Mapping[str, str] = {"model": "nvme"}
    """A change of a disk that a running VM does not take."""
    choices: tuple[Mapping[str, str], Mapping[str, str]] = ({"model": "virtio"}, {"model": "nvme"})
    """What the second disk has, and cold changes it to."""
    scarce = 900
    """So many MiB of a pool have room for the replicas, and not for the VM."""

    def __init__(self, folder: Path, monkeypatch: Any) -> None:
        self.fuse, self.cut = Fuse(), 0
        self.home_name, self.peer_name = "hv01", "hv02"
        self.watch: Callable[[], None] = lambda: None  # called after each command
        self.guard: Callable[[], None] = lambda: None  # called after each one that may change something
        self.foreign: Foreign | None = None
        self.acting: Callable[[Host], None] = lambda _host: None  # called before each command
        self.transfers: list[VmTransfer] = []
        self.last_commands: list[list[str]] = []
        self.folder = folder
        self.named: dict[str, Host] = {}
        """All hosts by their names in the inventory, as far as a test has made them."""
        self.authorized = folder / "authorized_keys"
        monkeypatch.setattr(lock, "place", lambda: str(folder))
        (folder / "ssh_host_ed25519_key.pub").write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA root@peer\n")
        self.home, self.peer = (self.host(seed) for seed in (1, 2))
        self.serial = 0
        self.make()
        self.write(0, 9)
        self.write(1, 9)

    def host(self, seed: int) -> Host:
        made = self.named[f"hv{seed:02}"] = Host(self.node(seed), self.folder, self)
        return made

    def node(self, seed: int) -> Node:
        return Node.create(None, [PoolSpec(name="zones", passphrase=self.passphrase(seed))], seed)

    def passphrase(self, seed: int) -> str:
        return self.passphrases[seed - 1] if seed <= len(self.passphrases) else ""

    def make(self) -> None:
        """The VM on its home."""
        payload = {
            "uuid": VM,
            "alias": "db01",
            "brand": "bhyve",
            "ram": 256,
            "vcpus": 1,
            "quota": 1,
            "flexible_disk_size": 1024,
            "disks": [{"boot": True, "model": "virtio", "size": 128}, {"model": "virtio", "size": 64}],
        }
        assert self.home.node.run(["vmadm", "create"], json.dumps(payload))[0] == 0

    def saved(self) -> tuple[Any, Any]:
        """What restore() takes."""
        return self.home.state(), self.peer.state()

    def restore(self, saved: tuple[Any, Any]) -> None:
        for host, state in zip((self.home, self.peer), saved, strict=True):
            host.restore(state)
        self.authorized.unlink(missing_ok=True)

    def blow(self, after: bool) -> None:
        """A command is about to be run, or was: others take their snapshots, or the run is killed."""
        number = self.fuse.counted + (0 if after else 1)
        if self.foreign is not None and self.foreign.wants(number, after, self.fuse):
            self.foreign.take(self)
        self.fuse.blow(after)

    def write(self, disk: int, mib: int, start: int = 0) -> None:
        self.serial += 1
        self.home.ok("guest", "write", f"zones/{VM}/disk{disk}", str(start), str(mib), f"w{self.serial}")

    def disks(self) -> dict[str, str]:
        """The datasets of the disks by their uuids."""
        return {disk["uuid"]: disk["dataset"] for disk in self.home.disks(VM)}

    def hashes(self) -> list[str]:
        return [self.home.ok("guest", "hash", where) for where in self.disks().values()]

    def hashes_there(self) -> list[str]:
        return [self.peer.hash(f"{REPLICAS}/{uuid}") for uuid in self.disks()]

    # -- what the role does

    def sender(self) -> Sender:
        return Sender(self.home.zfs(), self.home.driver(), self.home, None)

    def receiver(self) -> Receiver:
        return Receiver(self.peer.zfs(), self.peer.driver(), self.peer, str(self.authorized))

    def planned(self, vms: list[str] | None = None, pool: str = "", fresh: bool = False) -> Any:
        there = json.loads(json.dumps(replica_info(Copies(self.peer), self.peer.driver())))
        return self.sender().plan(vms or ["db01"], read_peer(self.peer_name, pool, there), SyncPolicy(fresh))

    def send(self, transfers: list[VmTransfer], keys: list[str]) -> None:
        self.sender().send(transfers, Address("hv02"), keys, Progress())

    def announced(self) -> Known:
        """The last transfer of the VM, and the keys of the peer. The VM is still running."""
        planned = self.planned([VM], fresh=True)
        assert not planned.problems, planned.problems
        (vm,) = read_transfers(
            json.loads(json.dumps([transfer_as_result(vm) for vm in self.sender().announce(planned)]))
        )
        return vm, self.receiver().open([vm], [str(self.folder)])

    def last(self, announced: Known) -> VmTransfer:
        """What the VM has written last comes to the peer."""
        vm, keys = announced
        last = LastTransfer(self.sender())
        taken = last.take(vm)
        last.send(taken, Address("hv02"), keys, Progress(), self.home_name)
        return taken

    def sync(self) -> tuple[bool, bool]:
        """Whether a sync was to do something, and whether the replicas are complete afterwards."""
        planned = self.planned()
        assert not planned.problems, planned.problems
        sender, receiver = self.sender(), self.receiver()
        made, failures = sender.prepare(planned, self.peer_name)
        assert not failures
        told_ = [transfer_as_result(vm) for vm in made]
        transfers = self.transfers = read_transfers(json.loads(json.dumps(told_)))
        idle = all(one.idle for one in planned.syncs)
        if not idle:
            keys = receiver.open(transfers, [str(self.folder)])
            self.send(transfers, keys)
        stock = receiver.close(transfers, "2026-01-01T00:00:00Z")
        changed, failures = sender.finish(transfers, stock.complete, self.peer_name)
        assert not failures + stock.failures
        assert not (idle and (changed or stock.changed)), "what an idle plan does not tell is done"
        return not idle, stock.complete == [VM]


class SecretWorld(World):
    """The home has an encrypted pool, the peer has not."""

    passphrases = (PASSPHRASE,)


class TwoSecretsWorld(World):
    """Both have encrypted pools, each with a key of its own."""

    passphrases = (PASSPHRASE, OTHER)
