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
from ..model.dataset import Dataset
from ..model.desired import Policy
from ..model.errors import FlexdiskError
from ..model.sizes import MIB
from ..model.vm import Disk, Vm
from ..plan import predict
from ..plan.creation import IMPORTING
from ..plan.steps import Step, VmPlan
from ..rules import identity
from ..rules.change import since_read
from ..rules.linking import completed, container, image_of
from ..rules.reservation import PoolGeometry, automatic_reservation, is_automatic
from ..rules.space import expected_quota
from ..zfs.commands import Zfs
from ..zfs.errors import ZfsError
from ..zfs.guard import Guard, lift
from .intent import Intents
from .observe import observe

_Properties = t.Dict[str, t.Union[int, str]]


class StepFailed(Exception):
    """A step did not end as planned; done counts the steps before it, restarted says whether the VM runs again.

    Where all steps were done, the intent could not be cleared.
    """

    def __init__(self, error: FlexdiskError, done: int, restarted: t.Optional[bool]) -> None:
        super().__init__(error.message)
        self.error = error
        self.done = done
        self.restarted = restarted


class Applier:
    """Applies plans on one host. guards collects what protected the disks that were taken out of VMs.

    Without intents none is written: for plans whose steps can be found out again from the state alone.
    """

    def __init__(
        self,
        zfs: Zfs,
        hypervisor: Hypervisor,
        policy: Policy,
        containers: t.Set[str],
        library: t.Any = None,
        intents: t.Optional[Intents] = None,
    ) -> None:
        self._zfs = zfs
        self._hypervisor = hypervisor
        self._storage = hypervisor.storage
        self._capabilities = hypervisor.capabilities
        self._policy = policy
        self._containers = containers
        self._library = library
        self._intents = intents
        self.guards: t.Set[str] = set()

    def run(self, plan: VmPlan, geometry: PoolGeometry) -> None:
        """All steps. Raises StepFailed; the VM is started again if we had stopped it, or an interrupted run had."""
        try:
            self._confirm_unchanged(plan)
            self._confirm_forecasts(plan, geometry)
        except FlexdiskError as exc:
            raise StepFailed(exc, 0, None) from exc
        vm, down = plan.before, plan.before.halted
        for number, step in enumerate(plan.steps):
            after = predict.apply(vm, step, geometry)
            down = down or step.kind == "stop"
            try:
                self._note(plan, number)
                _VERBS[step.kind](self, vm, after, step, geometry)
            except FlexdiskError as exc:
                if step.kind == "rollback":
                    # Disks of different times: the VM stays down, and the intent says so.
                    raise StepFailed(exc, number, False) from exc
                restarted = self._restart(plan) if down else None
                told = step.kind != "create_vm" and (self._storage is not None or step.kind != "grow")
                if told and (restarted or not _stops(plan, number)):
                    self._give_up(plan)
                raise StepFailed(exc, number, restarted) from exc
            down = down and step.kind != "start"
            vm = after
        try:
            self._clear(plan)
        except FlexdiskError as exc:
            raise StepFailed(exc, len(plan.steps), None) from exc

    def _note(self, plan: VmPlan, number: int) -> None:
        """The intent, before the first step; again before a stop, so that a VM that others stop is not started."""
        if self._intents is None or not plan.changed:
            return
        if number and plan.steps[number].kind != "stop":
            return
        try:
            self._make_container(plan.before.root.pool)
        except ZfsError as exc:
            if exc.code != "InsufficientSpace" or any(step.kind == "stop" for step in plan.steps):
                raise
            # This run may be what makes room, and without a stop the state tells everything.
            return
        self._intents.write(plan, _stops(plan, number))

    def _give_up(self, plan: VmPlan) -> None:
        """After a failure, power as before: the state tells the rest, but not the room that an inflexible VM had."""
        with contextlib.suppress(FlexdiskError):
            if plan.before.flexible:
                self._clear(plan)
            elif self._intents is not None and plan.changed:
                self._intents.write(plan, False)

    def _clear(self, plan: VmPlan) -> None:
        if self._intents is not None:
            self._intents.clear(plan)

    def _make_container(self, pool: str) -> None:
        place = container(pool)
        if place not in self._containers:
            self._zfs.create_container(place)
            self._containers.add(place)

    def _restart(self, plan: VmPlan) -> bool:
        """After a failure: the VM as it ran before, if it can run. Even a stop that failed has turned autoboot off."""
        try:
            if not self._mended(plan):
                return False
            self._hypervisor.start(plan.vm)
            self._hypervisor.set_autoboot(plan.vm, plan.before.autoboot_before)
        except FlexdiskError:
            return False
        return True

    def _mended(self, plan: VmPlan) -> bool:
        """Whether the configuration is whole, with what was being detached taken out of it."""
        host = observe(self._zfs, self._hypervisor, plan.before.config.pool, snapshots=False)
        vm = next((v for v in host.vms if v.config.uuid == plan.vm), None)
        if vm is None:
            return False
        for path in vm.ghosts:
            self._hypervisor.forget_disk(plan.vm, path)
        return set(vm.missing) <= {*vm.ghosts, *plan.before.missing}

    def _confirm_unchanged(self, plan: VmPlan) -> None:
        """Our lock keeps only our own tasks out."""
        if not plan.before.there:
            self._confirm_absent(plan)
            return
        try:
            root = plan.before.root
            datasets = self._zfs.datasets(root.name, snapshots=False) if root.kind else []
            config = completed(self._hypervisor.vm(plan.vm), {d.name: d for d in datasets})
            if not root.kind and not config.pool:
                config = replace(config, pool=root.pool, dataset=root.name)
            words = since_read(plan.before, config, datasets)
        except FlexdiskError as exc:
            if exc.code != "ResourceNotFound":
                raise
            words = [exc.message]
        if words:
            raise FlexdiskError("Changed", "changed since it was read: %s; nothing was done" % "; ".join(words))

    def _confirm_forecasts(self, plan: VmPlan, geometry: PoolGeometry) -> None:
        """Ask ZFS itself what it would reserve, once for each kind of volume the plan makes."""
        known = {(v.volsize, v.volblocksize) for v in plan.before.volumes}
        for volsize, block in sorted({(v.volsize, v.volblocksize) for v in plan.after.volumes} - known):
            ours = automatic_reservation(volsize, block, geometry)
            parent = plan.before.root.name if plan.before.root.kind else plan.before.root.pool
            theirs = self._zfs.forecast_reservation(parent, volsize, block)
            if not is_automatic(theirs, volsize, block, geometry):
                raise FlexdiskError(
                    "ForecastMismatch",
                    "for %d bytes in blocks of %d ZFS would reserve %d, the forecast is %d; nothing was changed"
                    % (volsize, block, theirs, ours),
                )

    def _confirm_absent(self, plan: VmPlan) -> None:
        """What is about to be made is not there, but for what is cleared first."""
        root, cleared = plan.before.root.name, any(step.kind == "clear" for step in plan.steps)
        if any(config.uuid == plan.vm for config in self._hypervisor.vms()):
            raise FlexdiskError("Changed", "changed since it was read: there is a VM %s now" % plan.vm)
        if not cleared and self._zfs.exists(root):
            raise FlexdiskError("Changed", "changed since it was read: there is a %s now" % root)

    def recover(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        """The steps after this one do it; our own intent has taken the place of the found one. Only a guest that was
        not told of its disks' sizes is seen nowhere.
        """
        if self._storage is None and vm.config.state == "running":
            for disk in (d for d in vm.disks if d.size % MIB == 0):
                self._hypervisor.resize_disk(vm.config.uuid, disk.path, disk.size_mib, False)

    def adopt(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        """Each volume carries where it was until the configuration names where it is."""
        if not vm.root.kind and not self._zfs.exists(vm.root.name):
            self._zfs.create_container(vm.root.name)
        for entry, disk in step.args["disks"]:
            if not self._zfs.exists(disk.volume.name):
                self._read(entry.volume, disk.volume.guid)
                self._zfs.set_facts(entry.volume, {"from": entry.volume})
                self._zfs.rename(entry.volume, disk.volume.name)
        moved = [{"path": entry.path, "volume": disk.volume.name} for entry, disk in step.args["disks"]]
        if moved:
            self._hypervisor.edit_disks(vm.config.uuid, moved)
        for _entry, disk in step.args["disks"]:
            self._zfs.set_facts(disk.volume.name, {"from": ""})

    # -- whole VMs

    def create_vm(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        args = step.args
        if self._storage is None:
            self._make_storage(after, args)
        self._hypervisor.create_vm(args["new"], [_entry(disk) for disk in args["disks"]], args["indestructible"])
        if self._storage is not None:
            if any(args["facts"].values()):
                self._zfs.set_facts(after.root.name, {k: v for k, v in args["facts"].items() if v})
            for disk in args["disks"]:
                self._zfs.set_facts(disk["volume"], {**disk["facts"], **_stamp({})})

    def _make_storage(self, after: Vm, args: t.Mapping[str, t.Any]) -> None:
        """The configuration comes last: a VM that is there has all its disks."""
        root = after.root
        figures = ("quota", "reservation", "refquota", "refreservation")
        options = {key: str(getattr(root, key)) for key in figures if getattr(root, key)}
        self._zfs.create_filesystem(root.name, {"mountpoint": "none", "canmount": "off", **options}, args["facts"])
        for disk in args["disks"]:
            self._make_volume(disk, {**disk["facts"], **_stamp({})})

    def _make_volume(self, args: t.Mapping[str, t.Any], facts: t.Mapping[str, str]) -> None:
        options = {"compression": args["own_compression"]} if args["own_compression"] else {}
        if args["origin"]:
            self._zfs.clone(args["origin"], args["volume"], options, facts)
            self._zfs.set(args["volume"], volsize=args["size"] * MIB, refreservation="auto")
        else:
            options["volblocksize"] = str(args["block_size"])
            self._zfs.create_volume(args["volume"], args["size"] * MIB, options, facts)

    def import_image(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        """Marked until it is whole; thick until then, so that it does not run out of room on the way."""
        args = step.args
        volume, final = args["volume"], args["volume"] + "@final"
        if self._zfs.exists(final):
            return  # another VM of this task has had it imported
        if self._zfs.exists(volume):
            if self._read(volume).user.get("from") != IMPORTING:
                raise FlexdiskError("Changed", "changed since it was read: there is a %s now" % volume)
            self._zfs.destroy(volume)
        options = {"volblocksize": str(args["block_size"])}
        self._zfs.create_volume(volume, args["size"], options, {"from": IMPORTING})
        self._hypervisor.import_image(args["file"], volume)
        self._zfs.set(volume, refreservation="none")
        self._zfs.snapshot(final)
        self._zfs.set_facts(volume, {"from": ""})

    def clear(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        """Exactly what was read, and no VM has come to it since."""
        left = step.args["left"]
        there = {d.name for d in self._zfs.datasets(step.args["root"], snapshots=False)}
        if there != set(left):
            raise FlexdiskError("Changed", "changed since it was read: below %s there is another set" % left[0])
        self._zfs.destroy(step.args["root"], True)

    def delete_vm(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        volumes = dict(step.args["volumes"])
        if vm.root.kind:
            self._only_these(vm, volumes)
        if self._storage is None:
            for name, guid in volumes.items():
                self._read(name, guid)
                self._zfs.destroy(name, True)
            if vm.root.kind:
                self._zfs.destroy(vm.root.name, True)
        self._hypervisor.delete_vm(vm.config.uuid)
        if vm.root.kind and self._zfs.exists(vm.root.name):
            raise FlexdiskError("NotApplied", "the VM is deleted, and %s is there still" % vm.root.name)

    def _only_these(self, vm: Vm, volumes: t.Mapping[str, int]) -> None:
        """Whatever is below the VM's dataset goes with it: the last look before that."""
        below = {d.name: d.guid for d in self._zfs.datasets(vm.root.name, snapshots=False) if d.name != vm.root.name}
        if below != volumes:
            wrong = sorted({name for name, _guid in {*below.items()} ^ {*volumes.items()}})
            raise FlexdiskError("Changed", "changed since it was read: %s; the VM is not deleted" % ", ".join(wrong))

    def properties(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        changes = dict(step.args["changes"])
        protected, package = changes.pop("indestructible", None), changes.pop("package", None)
        if changes:
            self._hypervisor.set_machine(vm.config.uuid, changes)
        if protected is not None and self._storage is not None:
            self._storage.set_indestructible(vm.config.uuid, protected)
        elif protected is not None:
            self._zfs.set_facts(vm.root.name, {"indestructible": "true" if protected else ""})
        if package is not None:
            self._zfs.set_facts(vm.root.name, {"package": package})

    # -- the VM's dataset

    def _settle(self, after: Vm) -> None:
        self._zfs.set(after.root.name, quota=after.root.quota, reservation=after.root.reservation)

    def law(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        # A recursive snapshot can take more than the quota; then ZFS refuses to set the same quota again.
        figures = {"quota": after.root.quota, "reservation": after.root.reservation}
        changed = {key: figure for key, figure in figures.items() if figure != getattr(vm.root, key)}
        if changed:
            self._zfs.set(after.root.name, **changed)
        if vm.root.refreservation != after.root.refreservation:
            self._zfs.set(after.root.name, refreservation=after.root.refreservation)

    def normalise(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        # Room first: a volume that is under-reserved takes more than its old overhead.
        self._settle(after)
        for volume in step.args["volumes"]:
            self._zfs.set(volume, refreservation="auto")

    def flexible(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        if self._storage is not None:
            self._storage.set_flexible(vm.config.uuid, step.args["stored"])
        else:
            self._zfs.set_facts(after.root.name, {identity.FLEXIBLE: str(step.args["stored"])})
            self._rebase(vm, after)

    def quota(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        if self._storage is not None:
            self._storage.set_quota(vm.config.uuid, step.args["quota"])
        else:
            self._rebase(vm, after)

    def _rebase(self, vm: Vm, after: Vm) -> None:
        """The VM's own quota and the law's, in the order that ZFS takes: none ever below what is reserved in it."""
        now, then = vm.root, after.root
        if then.quota >= now.quota:
            self._settle(after)
        if then.refreservation < now.refreservation:
            self._zfs.set(then.name, refreservation=then.refreservation)
        if then.refquota != now.refquota:
            self._zfs.set(then.name, refquota=then.refquota)
        if then.refreservation > now.refreservation:
            self._zfs.set(then.name, refreservation=then.refreservation)
        if then.quota < now.quota:
            self._settle(after)

    # -- power

    def stop(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        self._hypervisor.stop(vm.config.uuid, self._policy.stop_timeout, self._policy.allow_force_stop)

    def start(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        self._hypervisor.start(vm.config.uuid)

    def autoboot(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        self._hypervisor.set_autoboot(vm.config.uuid, step.args["autoboot"])

    # -- snapshots of the VM

    def snapshot(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        if self._storage is not None:
            self._storage.create_snapshot(vm.config.uuid, step.args["name"])
        else:
            self._zfs.snapshot("%s@%s" % (vm.root.name, step.args["full_name"]), recursive=True)

    def delete_snapshot(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        args = step.args
        if self._storage is not None and args["whole"]:
            self._storage.delete_snapshot(vm.config.uuid, args["name"])
        else:
            for part in args["parts"]:
                self._zfs.destroy(part)

    def rollback(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        if self._storage is not None:
            self._storage.roll_back(vm.config.uuid, step.args["name"])
        else:
            for part in step.args["parts"]:
                self._zfs.rollback(part)

    # -- disks that stay

    def _read(self, name: str, guid: int = 0) -> Dataset:
        """The dataset as it is now; another one under its name is no longer what was planned."""
        now = next((d for d in self._zfs.datasets(name) if d.name == name), None)
        if now is None:
            raise FlexdiskError("UnexpectedOutput", "zfs get says nothing of %s" % name)
        if guid and now.guid != guid:
            raise FlexdiskError("Changed", "%s changed since it was read: guid %d, not %d" % (name, now.guid, guid))
        return now

    def resize(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        args = step.args
        self._read(args["volume"], args["guid"])
        if self._storage is None:
            if after.root.quota > vm.root.quota:
                self._settle(after)
            self._zfs.set(args["volume"], volsize=args["size"] * MIB, refreservation="auto")
        self._hypervisor.resize_disk(vm.config.uuid, args["path"], args["size"], step.kind == "shrink")
        now = self._read(args["volume"], args["guid"])
        if now.volsize != args["size"] * MIB:
            raise FlexdiskError(
                "NotApplied", "%s should have %d bytes and has %d" % (now.name, args["size"] * MIB, now.volsize)
            )
        off = not is_automatic(now.refreservation, now.volsize, now.volblocksize, geometry)
        if off:
            self._zfs.set(now.name, refreservation="auto")
        # The hypervisor moves quota and reservation by what the overhead changes, from wherever they are.
        if off or self._storage is None or (vm.flexible and vm.root.quota != expected_quota(vm, geometry)):
            self._settle(after)
        self._zfs.set_facts(now.name, _stamp(now.user))

    def edit(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        entries = [dict(entry, path=step.args["paths"][volume]) for volume, entry in step.args["entries"].items()]
        self._hypervisor.edit_disks(vm.config.uuid, entries)

    def compression(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        if self._storage is not None:
            self._storage.set_compression(vm.config.uuid, step.args["path"], step.args["value"])
        else:
            self._zfs.set(step.args["volume"], compression=step.args["value"])

    def identity(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        name = step.args["volume"]
        known = next((d.volume for d in vm.disks + vm.orphans + vm.parked if d.volume.name == name), None)
        volume = known or self._read(name)
        self._zfs.set_facts(name, {**step.args["facts"], **_stamp(volume.user)})

    def copy(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        self._zfs.set_facts(step.args["volume"], step.args["facts"])

    # -- disks that go

    def _take_out(self, vm: Vm, step: Step) -> None:
        """Move the volume out of the VM and let the configuration forget it; what might be destroyed by that, first."""
        args, root = step.args, vm.root
        self._make_container(root.pool)
        self._read(args["volume"], args["guid"])
        if not self._capabilities.removal_destroys:
            if args["path"]:
                self._hypervisor.forget_disk(vm.config.uuid, args["path"])
            used = self._read(args["volume"], args["guid"]).used
            self._zfs.set(root.name, reservation=max(0, root.reservation - used))
            self._zfs.rename(args["volume"], args["target"])
            return
        with Guard(self._zfs, self._library) as guard:
            guard.protect(args["volume"], args["newest"])
            self.guards.add(guard.backend)
            used = self._read(args["volume"], args["guid"]).used
            self._zfs.set(root.name, reservation=max(0, root.reservation - used))
            guard.moving(args["target"])
            self._zfs.rename(args["volume"], args["target"])
            if args["path"]:
                self._hypervisor.forget_disk(vm.config.uuid, args["path"])

    def detach(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        args = step.args
        disk = next(d for d in vm.disks + vm.orphans if d.volume.name == args["volume"])
        facts = {**args["facts"], **_stamp(disk.volume.user)}
        nameless = not facts.get("name", "-")
        if nameless:
            # An attached disk without its name is matched by nothing, should this be interrupted.
            del facts["name"]
        self._zfs.set_facts(args["volume"], facts)
        for old, new in args["renames"]:
            self._zfs.rename("%s@%s" % (args["volume"], old), "%s@%s" % (args["volume"], new))
        self._take_out(vm, step)
        if nameless:
            self._zfs.set_facts(args["target"], {"name": ""})
        self._settle(after)

    def destroy(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        # Interrupted from here on, the disk is found by its identity and destroyed if that is still asked for.
        self._zfs.set_facts(step.args["volume"], step.args["facts"])
        self._take_out(vm, step)
        self._gone(step.args["target"], step)
        self._settle(after)

    def forget(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        if self._zfs.exists(step.args["volume"]):
            raise FlexdiskError("Changed", "%s is there again since it was read" % step.args["volume"])
        self._hypervisor.forget_disk(vm.config.uuid, step.args["path"])

    def unguard(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        lift(self._zfs, step.args["volume"])

    def destroy_parked(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        self._gone(step.args["volume"], step)
        if after.orphans != vm.orphans:
            self._settle(after)

    def _gone(self, volume: str, step: Step) -> None:
        self._read(volume, step.args["guid"])
        self._zfs.destroy(volume, step.args["snapshots"])

    # -- disks that come

    def attach(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        args, disk = step.args, t.cast(Disk, step.args["disk"])
        self._read(args["source"], args["guid"])
        volume, size = disk.volume, args["size"] * MIB
        early, late = _fitted(volume, size, geometry)
        if early:
            self._zfs.set(args["source"], **early)
        self._zfs.set(vm.root.name, quota=after.root.quota)
        if args["source"] != args["volume"]:
            self._zfs.rename(args["source"], args["volume"])
        if late:
            self._zfs.set(args["volume"], **late)
        if args["compression"] != volume.compression:
            self._zfs.set(args["volume"], compression=args["compression"])
        self._zfs.set_facts(args["volume"], {**args["facts"], **_stamp(volume.user)})
        self._configure(vm, after, args["config"], volume.origin, disk.image_size)

    def create(self, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
        args = step.args
        identity = str(uuid.uuid4())
        self._zfs.set(vm.root.name, quota=after.root.quota)
        self._make_volume(args, {**args["facts"], **_stamp({}), "uuid": identity})
        self._configure(vm, after, {**args["config"], "uuid": identity}, args["origin"], args["image_size"])

    def _configure(self, vm: Vm, after: Vm, config: t.Mapping[str, t.Any], origin: str, image_size: int) -> None:
        image = image_of(origin)
        if image and image_size:
            config = dict(config, image_uuid=image, image_size=image_size)
        self._hypervisor.attach_disk(vm.config.uuid, config)
        self._settle(after)


def _entry(disk: t.Mapping[str, t.Any]) -> t.Dict[str, t.Any]:
    """A new VM's disk for the driver; what has an image has its block size, too."""
    made = {"image_uuid": image_of(disk["origin"])} if disk["origin"] else {"block_size": disk["block_size"]}
    return {**disk["config"], **made, "compression": disk["own_compression"]}


def _fitted(volume: Dataset, size: int, geometry: PoolGeometry) -> t.Tuple[_Properties, _Properties]:
    """What a disk must be set to before it is moved into a VM, and after it.

    What it gives back comes first, for the VM has no room for that; what it takes is the VM's own reservation, so only
    then. A volsize that stays is not set: even that moves blocks to the snapshots alone.
    """
    if size == volume.volsize and is_automatic(volume.refreservation, size, volume.volblocksize, geometry):
        return {}, {}
    resized: _Properties = {} if size == volume.volsize else {"volsize": size}
    automatic: _Properties = {"refreservation": "auto"}
    if volume.refreservation > automatic_reservation(size, volume.volblocksize, geometry):
        return {**resized, **automatic}, {}
    if size < volume.volsize:
        return resized, automatic
    return {}, {**resized, **automatic}


def _stops(plan: VmPlan, number: int) -> bool:
    """Whether the VM has been stopped, or is about to be, when the step has its turn."""
    left = plan.before.interrupted
    return bool(left and left.stops) or any(step.kind == "stop" for step in plan.steps[: number + 1])


def _stamp(user: t.Mapping[str, str]) -> t.Dict[str, str]:
    """mtime and serial_no of a disk that changes, ctime of one that has none."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    stamp = {"mtime": now, "serial_no": identity.next_serial(user.get("serial_no", ""))}
    return stamp if user.get("ctime") else dict(stamp, ctime=now)


_Verb = t.Callable[[Applier, Vm, Vm, Step, PoolGeometry], None]
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
    "edit": Applier.edit,
    "compression": Applier.compression,
    "identity": Applier.identity,
    "copy": Applier.copy,
    "detach": Applier.detach,
    "park": Applier.detach,
    "destroy": Applier.destroy,
    "forget": Applier.forget,
    "unguard": Applier.unguard,
    "destroy_parked": Applier.destroy_parked,
    "attach": Applier.attach,
    "create": Applier.create,
    "snapshot": Applier.snapshot,
    "delete_snapshot": Applier.delete_snapshot,
    "rollback": Applier.rollback,
    "create_vm": Applier.create_vm,
    "clear": Applier.clear,
    "import_image": Applier.import_image,
    "delete_vm": Applier.delete_vm,
    "properties": Applier.properties,
}
