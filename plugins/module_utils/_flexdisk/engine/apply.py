# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Does the steps of a plan. Every step starts from what the one before left, ends under the law, and is read back."""

from __future__ import annotations

import contextlib
import time
import typing as t
import uuid
from dataclasses import replace

from ..hypervisor.protocol import Hypervisor
from ..model.dataset import RECORD, Dataset
from ..model.desired import Policy
from ..model.errors import FlexdiskError
from ..model.sizes import MIB, render_apart
from ..model.vm import FILE, SPARSE, THICK, Disk, Vm
from ..plan import predict
from ..plan.steps import Step, VmPlan
from ..rules import identity, released_identity
from ..rules.differences import put_aside, since_read
from ..rules.inventory import completed
from ..rules.layout import container, image_of, is_half
from ..rules.reservation import PoolGeometry, automatic_reservation, is_automatic
from ..rules.space import expected_quota
from ..zfs import exact
from ..zfs.commands import Zfs
from ..zfs.errors import ZfsError
from ..zfs.guard import Guard, lift
from . import file_disks
from .journal import Journal
from .observe import observe

_Properties = t.Dict[str, t.Union[int, str]]
# Seconds between the attempts to start a VM again.
RESTART_PAUSES = (1.0, 2.0, 4.0, 8.0)
RESERVATION: t.Dict[str, _Properties] = {THICK: {"refreservation": "auto"}, SPARSE: {"refreservation": "none"}}


_Verb = t.Callable[..., None]


class Restart(t.NamedTuple):
    """Whether a VM runs again, how often that was tried, in how many seconds of waiting, and what went wrong last."""

    running: bool
    attempts: int = 0
    seconds: float = 0
    error: str = ""

    @property
    def tried(self) -> str:
        """For a message; "" where the first attempt was enough, or none was made."""
        if not self.attempts or (self.running and self.attempts == 1):
            return ""
        count = "%d attempt%s in %d s" % (self.attempts, "" if self.attempts == 1 else "s", self.seconds)
        return "%s to start it, the last error: %s" % (count, self.error)


class StepFailed(Exception):
    """A step did not end as planned; done counts the steps before it, restart says what became of a VM that was down,
    begun whether a step was begun at all.

    Where all steps were done, the intent could not be cleared.
    """

    def __init__(
        self, error: FlexdiskError, done: int, restart: t.Optional[Restart] = None, begun: bool = True
    ) -> None:
        super().__init__(error.message)
        self.begun = begun
        self.error = error
        self.done = done
        self.restart = restart


class Applier:
    """Applies plans on one host. guards collects what protected the disks that were taken out of VMs, destroyers what
    destroyed volumes.

    Without intents none is written: for plans whose steps can be found out again from the state alone. verbs are those
    that only some modules need.
    """

    def __init__(
        self,
        zfs: Zfs,
        hypervisor: Hypervisor,
        policy: Policy,
        containers: t.Set[str],
        library: t.Any = None,
        intents: t.Optional[Journal] = None,
        verbs: t.Optional[t.Mapping[str, _Verb]] = None,
    ) -> None:
        self._verbs = {**_VERBS, **(verbs or {})}
        self.zfs = zfs
        self.hypervisor = hypervisor
        self.storage = hypervisor.storage
        self._capabilities = hypervisor.capabilities
        self._policy = policy
        self._containers = containers
        self._library = library
        self._intents = intents
        self.guards: t.Set[str] = set()
        self.destroyers: t.Set[str] = set()

    def run(self, plan: VmPlan, geometry: PoolGeometry) -> None:
        """All steps. Raises StepFailed; the VM is started again if we had stopped it, or an interrupted run had."""
        try:
            self._confirm_unchanged(plan)
            self._confirm_forecasts(plan, geometry)
        except FlexdiskError as exc:
            raise StepFailed(exc, 0, begun=False) from exc
        vm, down, begun = plan.before, plan.before.halted, False
        for number, step in enumerate(plan.steps):
            after = predict.apply(vm, step, geometry)
            down = down or step.kind == "stop"
            try:
                self._note(plan, number)
                begun = True
                self._verbs[step.kind](self, vm, after, step, geometry)
            except FlexdiskError as exc:
                if step.kind == "rollback" or step.args.get("aside") or any(put_aside(vm, d) for d in vm.parked):
                    # Disks of different times, or one of them aside: the VM stays down, and the intent says so.
                    raise StepFailed(exc, number, Restart(False), begun) from exc
                restart = self._restart(plan) if down else None
                told = self._tells(plan, step)
                if told and ((restart and restart.running) or not _stops(plan, number)):
                    self._give_up(plan)
                raise StepFailed(exc, number, restart, begun) from exc
            down = down and step.kind != "start"
            vm = after
        try:
            self._clear(plan)
        except FlexdiskError as exc:
            raise StepFailed(exc, len(plan.steps)) from exc

    def _note(self, plan: VmPlan, number: int) -> None:
        """The intent, before the first step; again before a stop, so that a VM that others stop is not started."""
        if self._intents is None or not plan.changed or not plan.vm:
            return
        if number and plan.steps[number].kind != "stop":
            return
        try:
            self.make_container(plan.before.root.pool)
        except ZfsError as exc:
            if exc.code != "InsufficientSpace" or any(step.kind == "stop" for step in plan.steps):
                raise
            # This run may be what makes room, and without a stop the state tells everything.
            return
        self._intents.write(plan, _stops(plan, number))

    def _tells(self, plan: VmPlan, step: Step) -> bool:
        """Whether the state alone tells what a failed step has left."""
        if step.kind == "create_vm":
            with contextlib.suppress(FlexdiskError):
                return not self.zfs.exists(plan.before.root.name)
            return False
        return self.storage is not None or step.kind != "grow"

    def _give_up(self, plan: VmPlan) -> None:
        """After a failure, power as before: the state tells the rest, but not the room that an inflexible VM had."""
        with contextlib.suppress(FlexdiskError):
            if plan.before.flexible or not (plan.before.there and plan.vm):
                self._clear(plan)
            elif self._intents is not None and plan.changed:
                self._intents.write(plan, False)

    def _clear(self, plan: VmPlan) -> None:
        if self._intents is not None:
            self._intents.clear(plan)

    def make_container(self, pool: str) -> None:
        place = container(pool)
        if place not in self._containers:
            # Devices of what no guest has, without partitions; illumos, which has no such property, looks for none.
            hidden = {} if self._capabilities.platform == "illumos" else {"volmode": "dev"}
            self.zfs.create_container(place, **hidden)
            self._containers.add(place)

    def _restart(self, plan: VmPlan) -> Restart:
        """After a failure: the VM as it ran before, if it can run.

        The hypervisor's tool may be what failed, and just be coming back: so this, and nothing else, is tried again.
        """
        waited, error = 0.0, ""
        for number, seconds in enumerate((0.0, *RESTART_PAUSES), 1):
            if seconds:
                self.hypervisor.pause(seconds)
                waited += seconds
            try:
                problem = self._start_again(plan)
                return Restart(not problem, number, waited, problem or error)
            except FlexdiskError as exc:
                error = exc.message
        return Restart(False, number, waited, error)

    def _start_again(self, plan: VmPlan) -> str:
        """Why it cannot run. Even a stop that failed has turned autoboot off."""
        host = observe(self.zfs, self.hypervisor, plan.before.config.pool, snapshots=False)
        vm = next((v for v in host.vms if v.config.uuid == plan.vm), None)
        if vm is None:
            return "it is not there"
        for path in vm.ghosts:
            self.hypervisor.forget_disk(plan.vm, path)
        missing = sorted({*vm.missing} - {*vm.ghosts, *plan.before.missing})
        if missing:
            return "its configuration has disks that do not exist: %s" % ", ".join(missing)
        if vm.config.state != "running":
            self.hypervisor.start(plan.vm)
        self.hypervisor.set_autoboot(plan.vm, plan.before.autoboot_before)
        return ""

    def _confirm_unchanged(self, plan: VmPlan) -> None:
        """Our lock keeps only our own tasks out. Steps on detached disks look at each disk themselves."""
        if not plan.vm:
            return
        if not plan.before.there:
            self._confirm_absent(plan)
            return
        try:
            root = plan.before.root
            datasets = self.zfs.datasets(root.name, snapshots=False) if root.kind else []
            config = completed(self.hypervisor.vm(plan.vm), {d.name: d for d in datasets})
            if not root.kind and not config.pool:
                config = replace(config, pool=root.pool, dataset=root.name)
            words = since_read(plan.before, config, datasets)
        except FlexdiskError as exc:
            if exc.code != "ResourceNotFound":
                raise
            words = [exc.message]
        if words:
            raise FlexdiskError("Changed", "the VM changed since it was read: %s; nothing was done" % "; ".join(words))

    def _confirm_forecasts(self, plan: VmPlan, geometry: PoolGeometry) -> None:
        """Ask ZFS itself what it would reserve, once for each kind of volume the plan makes."""
        for volsize, block in sorted(_kinds(plan.after) - _kinds(plan.before)):
            ours = automatic_reservation(volsize, block, geometry)
            parent = plan.before.root.name if plan.before.root.kind else plan.before.root.pool
            theirs = self.zfs.forecast_reservation(parent, volsize, block)
            if not is_automatic(theirs, volsize, block, geometry):
                raise FlexdiskError(
                    "ForecastMismatch",
                    "ZFS would reserve %s for a volume of %s, not %s as forecast; nothing was changed"
                    % (*render_apart(theirs, volsize, ours),),
                )

    def _confirm_absent(self, plan: VmPlan) -> None:
        """What is about to be made is not there, but for what is cleared first."""
        root, cleared = plan.before.root.name, any(step.kind == "clear" for step in plan.steps)
        if any(config.uuid == plan.vm for config in self.hypervisor.vms()):
            raise FlexdiskError("Changed", "the host changed since it was read: VM %s now exists" % plan.vm)
        if not cleared and self.zfs.exists(root):
            raise FlexdiskError("Changed", "the host changed since it was read: %s now exists" % root)

    def recover(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        """The steps after this one do it; our own intent has taken the place of the found one. Only a guest that was
        not told of its disks' sizes is seen nowhere.
        """
        if self.storage is None and vm.config.state == "running":
            for disk in (d for d in vm.disks if d.size % MIB == 0):
                self.hypervisor.resize_disk(vm.config.uuid, disk.path, disk.size_mib, False)

    def adopt(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        """Each volume carries where it was until the configuration names where it is."""
        if not vm.root.kind and not self.zfs.exists(vm.root.name):
            self.zfs.create_container(vm.root.name)
        for entry, disk in step.args["disks"]:
            if not self.zfs.exists(disk.volume.name):
                self.read(entry.volume, disk.volume.guid)
                self.zfs.set_facts(entry.volume, {"from": entry.volume})
                self.zfs.rename(entry.volume, disk.volume.name)
        moved = [{"path": entry.path, "volume": disk.volume.name} for entry, disk in step.args["disks"]]
        if moved:
            self.hypervisor.edit_disks(vm.config.uuid, moved)
        for _entry, disk in step.args["disks"]:
            self.zfs.set_facts(disk.volume.name, {"from": ""})

    # -- the VM's dataset

    def _settle(self, after: Vm) -> None:
        self.zfs.set(after.root.name, quota=after.root.quota, reservation=after.root.reservation)

    def law(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        # A recursive snapshot can take more than the quota; then ZFS refuses to set the same quota again.
        figures = {"quota": after.root.quota, "reservation": after.root.reservation}
        changed = {key: figure for key, figure in figures.items() if figure != getattr(vm.root, key)}
        if changed:
            self.zfs.set(after.root.name, **changed)
        if vm.root.refreservation != after.root.refreservation:
            self.zfs.set(after.root.name, refreservation=after.root.refreservation)

    def normalise(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        # Room first: a volume that is under-reserved takes more than its old overhead.
        self._settle(after)
        then = {volume.name: volume for volume in after.volumes}
        for volume in step.args["volumes"]:
            figure = then[volume].refreservation if then[volume].kind == "filesystem" else "auto"
            self.zfs.set(volume, refreservation=figure)

    def flexible(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        if self.storage is not None:
            self.storage.set_flexible(vm.config.uuid, step.args["stored"])
        else:
            self.zfs.set_facts(after.root.name, {identity.FLEXIBLE: str(step.args["stored"])})
            self._rebase(vm, after)

    def quota(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        if self.storage is not None:
            self.storage.set_quota(vm.config.uuid, step.args["quota"])
        else:
            self._rebase(vm, after)

    def _rebase(self, vm: Vm, after: Vm) -> None:
        """The VM's own quota and the law's, in the order that ZFS takes: none ever below what is reserved in it."""
        now, then = vm.root, after.root
        if then.quota >= now.quota:
            self._settle(after)
        if then.refreservation < now.refreservation:
            self.zfs.set(then.name, refreservation=then.refreservation)
        if then.refquota != now.refquota:
            self.zfs.set(then.name, refquota=then.refquota)
        if then.refreservation > now.refreservation:
            self.zfs.set(then.name, refreservation=then.refreservation)
        if then.quota < now.quota:
            self._settle(after)

    # -- power

    def stop(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        self.hypervisor.stop(vm.config.uuid, self._policy.stop_timeout, self._policy.allow_force_stop)

    def start(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        self.hypervisor.start(vm.config.uuid)

    def autoboot(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        self.hypervisor.set_autoboot(vm.config.uuid, step.args["autoboot"])

    # -- disks that stay

    def read(self, name: str, guid: int = 0) -> Dataset:
        """The dataset as it is now; another one under its name is no longer what was planned."""
        now = next((d for d in self.zfs.datasets(name) if d.name == name), None)
        if now is None:
            raise FlexdiskError("UnexpectedOutput", "zfs get reports nothing about %s" % name)
        if guid and now.guid != guid:
            raise FlexdiskError("Changed", "%s changed since it was read: guid %d, not %d" % (name, now.guid, guid))
        return now

    def resize(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        args = step.args
        now = self.read(args["volume"], args["guid"])
        if self.storage is None and after.root.quota > vm.root.quota:
            self._settle(after)
        if args["type"] == FILE:
            file_disks.resize(self.zfs, now, args["size"] * MIB, geometry)
        elif self.storage is None:
            self.zfs.set(args["volume"], volsize=args["size"] * MIB, **reservation(args["type"]))
        self.hypervisor.resize_disk(vm.config.uuid, args["path"], args["size"], step.kind == "shrink")
        now = self.read(args["volume"], args["guid"])
        if now.volsize != args["size"] * MIB:
            raise FlexdiskError(
                "NotApplied",
                "%s should have %s and has %s" % (now.name, *render_apart(args["size"] * MIB, now.volsize)),
            )
        off = args["type"] == THICK and not _automatic(now, geometry)
        if off:
            self.zfs.set(now.name, refreservation="auto")
        # The hypervisor moves quota and reservation by what the overhead changes, from wherever they are.
        if off or self.storage is None or (vm.flexible and vm.root.quota != expected_quota(vm, geometry)):
            self._settle(after)
        self.zfs.set_facts(now.name, stamp(now.user))

    def convert(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        """Sparse is written down before a reservation goes, and until there is one again."""
        args = step.args
        now = self.read(args["volume"], args["guid"])
        if "half" in args:
            self.make_container(now.pool)
            file_disks.copy(self.zfs, now, args, stamp(now.user), geometry)
            self._confirm_snapshots(now.name, args["snapshots"])
            self._gone(now.name, step)
            file_disks.take_place(self.zfs, args["half"], now)
            return
        fact = {"type": "" if args["type"] == THICK else args["type"]}
        if args["type"] == SPARSE:
            self.zfs.set_facts(now.name, fact)
        self.zfs.set(now.name, **RESERVATION[args["type"]])
        self.zfs.set_facts(now.name, {**fact, **stamp(now.user)})

    def _confirm_snapshots(self, volume: str, planned: t.Collection[str]) -> None:
        """A copy takes long enough for others to make some, and these nobody has given up."""
        names = {d.name.split("@", 1)[1] for d in self.zfs.datasets(volume) if d.kind == "snapshot"}
        changed = sorted(names ^ {*planned})
        if changed:
            words = "%s changed since it was read: snapshots %s were added or removed; it is not destroyed"
            raise FlexdiskError("Changed", words % (volume, ", ".join(changed)))

    def discard(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        half, whole = self.read(step.args["half"]), self.read(step.args["volume"], step.args["guid"])
        if not is_half(whole, half):
            raise FlexdiskError(
                "Changed", "%s changed since it was read: it is not a copy of %s" % (half.name, whole.name)
            )
        file_disks.discard(self.zfs, half)

    def edit(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        entries = [dict(entry, path=step.args["paths"][volume]) for volume, entry in step.args["entries"].items()]
        self.hypervisor.edit_disks(vm.config.uuid, entries)
        for volume in (v for v in vm.volumes if v.name in step.args["entries"] and released_identity.registered(v)):
            self.zfs.set_facts(volume.name, stamp(volume.user))

    def compression(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        name, path = step.args["volume"], step.args["path"]
        if self.storage is not None and path:
            self.storage.set_compression(vm.config.uuid, path, step.args["value"])
        else:
            self.zfs.set(name, compression=step.args["value"])
        self.zfs.set_facts(name, stamp(self.read(name).user))

    def identity(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        name = step.args["volume"]
        known = next((d.volume for d in vm.disks + vm.orphans + vm.parked if d.volume.name == name), None)
        volume = known or self.read(name)
        self.zfs.set_facts(name, {**stamp(volume.user), **step.args["facts"]})

    def copy(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        self.zfs.set_facts(step.args["volume"], step.args["facts"])

    # -- disks that go

    def _take_out(self, vm: Vm, step: Step) -> None:
        """Move the volume out of the VM and let the configuration forget it; what might be destroyed by that, first."""
        args, root = step.args, vm.root
        self.make_container(root.pool)
        self.read(args["volume"], args["guid"])
        if not self._capabilities.removal_destroys:
            if args["path"]:
                self.hypervisor.forget_disk(vm.config.uuid, args["path"])
            used = self.read(args["volume"], args["guid"]).used
            self.zfs.set(root.name, reservation=max(0, root.reservation - used))
            self.zfs.park(args["volume"], args["target"])
            return
        with Guard(self.zfs, self._library) as guard:
            guard.protect(args["volume"], args["newest"])
            self.guards.add(guard.backend)
            used = self.read(args["volume"], args["guid"]).used
            self.zfs.set(root.name, reservation=max(0, root.reservation - used))
            guard.moving(args["target"])
            self.zfs.rename(args["volume"], args["target"])
            if args["path"]:
                self.hypervisor.forget_disk(vm.config.uuid, args["path"])

    def detach(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        args = step.args
        disk = next(d for d in vm.disks + vm.orphans if d.volume.name == args["volume"])
        facts = {**args["facts"], **stamp(disk.volume.user)}
        nameless = not facts.get("name", "-")
        if nameless:
            # An attached disk without its name is matched by nothing, should this be interrupted.
            del facts["name"]
        self.zfs.set_facts(args["volume"], facts)
        for old, new in args["renames"]:
            self.zfs.rename("%s@%s" % (args["volume"], old), "%s@%s" % (args["volume"], new))
        self._take_out(vm, step)
        if nameless:
            self.zfs.set_facts(args["target"], {"name": ""})
        self._settle(after)

    def destroy(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        # Interrupted from here on, the disk is found by its identity and destroyed if that is still asked for.
        self.zfs.set_facts(step.args["volume"], step.args["facts"])
        self._take_out(vm, step)
        self._gone(step.args["target"], step)
        self._settle(after)

    def forget(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        if self.zfs.exists(step.args["volume"]):
            raise FlexdiskError("Changed", "%s exists again since the host was read" % step.args["volume"])
        self.hypervisor.forget_disk(vm.config.uuid, step.args["path"])

    def ports(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        self.hypervisor.add_ports(vm.config.uuid, step.args["ports"])

    def unguard(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        lift(self.zfs, step.args["volume"])

    def destroy_parked(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        self._gone(step.args["volume"], step)
        if after.orphans != vm.orphans:
            self._settle(after)

    def _gone(self, volume: str, step: Step) -> None:
        for snapshot in step.args.get("held", ()):
            for tag in self.zfs.holds(snapshot):
                self.zfs.release(tag, snapshot)
        now = self.read(volume, step.args["guid"])
        snapshots = ["%s@%s" % (volume, short) for short in step.args["snapshots"]]
        # A channel program cannot unmount a file system.
        library = self._library if now.kind == "volume" else None
        self.destroyers.add(exact.destroy(self.zfs, library, now, snapshots))
        file_disks.removed(self.zfs, now)

    # -- disks that come

    def attach(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        args, disk = step.args, t.cast(Disk, step.args["disk"])
        now = self.read(args["source"], args["guid"])
        volume, size = disk.volume, args["size"] * MIB
        if args["type"] == FILE:
            early, late = self._fit_file(args, size, geometry)
        else:
            early, late = _fitted(volume, size, args["type"], geometry)
        if early:
            self.zfs.set(args["source"], **early)
        self.zfs.set(vm.root.name, quota=after.root.quota)
        if args["source"] != args["volume"]:
            self.zfs.rename(args["source"], args["volume"])
        if late:
            self.zfs.set(args["volume"], **late)
        if args["compression"] != volume.compression:
            self.zfs.set(args["volume"], compression=args["compression"])
        if args["type"] == FILE:
            self._fit_file(args, size, geometry, last=True)
        marks = {key: "" for key in file_disks.MARKS if now.user.get(key, identity.MAKING) != identity.MAKING}
        self.zfs.set_facts(args["volume"], {**args["facts"], **stamp(volume.user)})
        self._configure(vm, after, args["config"], volume.origin, disk.image_size)
        # Until the VM has it, they say what it was there.
        self.zfs.set_facts(args["volume"], marks)

    def _fit_file(
        self, args: t.Mapping[str, t.Any], size: int, geometry: PoolGeometry, last: bool = False
    ) -> t.Tuple[_Properties, _Properties]:
        """A smaller file outside the VM, a larger one inside: there is the room."""
        now = self.read(args["volume"] if last else args["source"])
        file_disks.ensure(self.zfs, now, size)
        if last or size < now.volsize or now.refreservation > automatic_reservation(size, RECORD, geometry):
            file_disks.resize(self.zfs, now, size, geometry)
        return {}, {}

    def make_disk(self, args: t.Mapping[str, t.Any], facts: t.Mapping[str, str], geometry: PoolGeometry) -> None:
        if args["type"] == FILE:
            size = args["size"] * MIB
            file_disks.make(self.zfs, args["volume"], size, args["own_compression"], facts, geometry)
            file_disks.ensure(self.zfs, self.read(args["volume"]), size)
        else:
            self._make_volume(args, facts)

    def _make_volume(self, args: t.Mapping[str, t.Any], facts: t.Mapping[str, str]) -> None:
        options = {"compression": args["own_compression"]} if args["own_compression"] else {}
        if args["origin"]:
            self.zfs.clone(args["origin"], args["volume"], options, facts)
            self.zfs.set(args["volume"], volsize=args["size"] * MIB, **reservation(args["type"]))
        else:
            options["volblocksize"] = str(args["block_size"])
            self.zfs.create_volume(args["volume"], args["size"] * MIB, options, facts, args["type"] == SPARSE)

    def create(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        args = step.args
        identity = args["config"]["uuid"] or str(uuid.uuid4())
        self.zfs.set(vm.root.name, quota=after.root.quota)
        self.make_disk(args, {**args["facts"], **stamp({}), "uuid": identity}, geometry)
        self._configure(vm, after, {**args["config"], "uuid": identity}, args["origin"], args["image_size"])

    def _configure(self, vm: Vm, after: Vm, config: t.Mapping[str, t.Any], origin: str, image_size: int) -> None:
        image = image_of(origin)
        if image and image_size:
            config = dict(config, image_uuid=image, image_size=image_size)
        self.hypervisor.attach_disk(vm.config.uuid, config)
        self._settle(after)


def _fitted(volume: Dataset, size: int, wanted: str, geometry: PoolGeometry) -> t.Tuple[_Properties, _Properties]:
    """What a disk must be set to before it is moved into a VM, and after it.

    What it gives back comes first, for the VM has no room for that; what it takes is the VM's own reservation, so only
    then. A volsize that stays is not set: even that moves blocks to the snapshots alone.
    """
    resized: _Properties = {} if size == volume.volsize else {"volsize": size}
    if wanted == SPARSE:
        return {**resized, **(RESERVATION[SPARSE] if volume.refreservation else {})}, {}
    if not resized and _automatic(volume, geometry):
        return {}, {}
    automatic = RESERVATION[THICK]
    if volume.refreservation > automatic_reservation(size, volume.volblocksize, geometry):
        return {**resized, **automatic}, {}
    if size < volume.volsize:
        return resized, automatic
    return {}, {**resized, **automatic}


def _automatic(volume: Dataset, geometry: PoolGeometry) -> bool:
    return is_automatic(volume.refreservation, volume.volsize, volume.volblocksize, geometry)


def reservation(wanted: str) -> _Properties:
    """What goes with a volsize. One that has no reservation gets none by that."""
    return RESERVATION[THICK] if wanted == THICK else {}


def _kinds(vm: Vm) -> t.Set[t.Tuple[int, int]]:
    """Size and block size of every volume that the plan knows."""
    every = (*vm.volumes, *(disk.volume for disk in vm.parked))
    return {(v.volsize, v.volblocksize) for v in every if v.kind == "volume"}


def _stops(plan: VmPlan, number: int) -> bool:
    """Whether the VM has been stopped, or is about to be, when the step has its turn."""
    left = plan.before.interrupted
    return bool(left and left.stops) or any(step.kind == "stop" for step in plan.steps[: number + 1])


def stamp(user: t.Mapping[str, str]) -> t.Dict[str, str]:
    """mtime and serial_no of a disk that changes, ctime of one that has none."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    stamp = {"mtime": now, "serial_no": identity.next_serial(user.get("serial_no", ""))}
    return stamp if user.get("ctime") else dict(stamp, ctime=now)


_VERBS: t.Dict[str, _Verb] = {
    "recover": Applier.recover,
    "adopt": Applier.adopt,
    "law": Applier.law,
    "normalise": Applier.normalise,
    "flexible": Applier.flexible,
    "quota": Applier.quota,
    "stop": Applier.stop,
    "start": Applier.start,
    "autoboot": Applier.autoboot,
    "shrink": Applier.resize,
    "grow": Applier.resize,
    "convert": Applier.convert,
    "discard": Applier.discard,
    "edit": Applier.edit,
    "compression": Applier.compression,
    "identity": Applier.identity,
    "copy": Applier.copy,
    "detach": Applier.detach,
    "park": Applier.detach,
    "destroy": Applier.destroy,
    "forget": Applier.forget,
    "ports": Applier.ports,
    "unguard": Applier.unguard,
    "destroy_parked": Applier.destroy_parked,
    "attach": Applier.attach,
    "create": Applier.create,
}
