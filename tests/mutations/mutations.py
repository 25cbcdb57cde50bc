# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deliberate bugs. Each is one textual change of a file below plugins/module_utils/_flexdisk/, and must be found."""

from __future__ import annotations

from typing import NamedTuple

STATEFUL = "tests/unit/stateful/test_stateful.py"
VMS = "tests/unit/engine/test_vm.py"
SNAPSHOTS = "tests/unit/engine/test_vm_snapshot.py"
DISKS = "tests/unit/registry/test_disks.py"
APPROVALS = "tests/unit/plan/test_approval.py"


class Mutation(NamedTuple):
    """A bug: in `file` the one occurrence of `old` becomes `new`. tests are what must fail then."""

    name: str
    file: str
    old: str
    new: str
    tests: str = STATEFUL


MUTATIONS = (
    Mutation(
        "overhead left out of the quota law",
        "rules/space.py",
        "base + flexible + sum(overhead(v.volsize, v.volblocksize, geometry) for v in volumes)",
        "base + flexible",
    ),
    Mutation(
        "law not applied after a removal",
        "plan/predict.py",
        "return _lawful(vm, geometry) if vm.flexible else vm",
        "return vm",
    ),
    Mutation(
        "unlisted: detach destroys",
        "plan/resolve.py",
        "resolved.leavers.append(Leaver(disk, False))",
        "resolved.leavers.append(Leaver(disk, True))",
    ),
    Mutation(
        "preserve ignored under unlisted: destroy",
        "plan/resolve.py",
        '(spec.unlisted == "destroy" and disk.preserve)',
        "False",
        "tests/unit/engine/test_detach_attach.py",
    ),
    Mutation(
        "unlisted: destroy destroys what is not attached",
        "plan/resolve.py",
        "Leaver(disk, False, nameless=disk.name in names)",
        'Leaver(disk, spec.unlisted == "destroy", True)',
        "tests/unit/engine/test_unattached.py",
    ),
    Mutation(
        "an overdrawn VM may grow",
        "plan/checks.py",
        "return not (asked or resized or resolved.leavers",
        "return not (asked or resolved.leavers",
        "tests/unit/engine/test_overdrawn.py",
    ),
    Mutation(
        "shrink without its flag",
        "plan/checks.py",
        "if not check_guest(target, disk, problems) and not target.spec.dangerous_allow_shrink:",
        "if False:",
    ),
    Mutation(
        "shrink below what the guest needs",
        "plan/checks.py",
        "if least is None or not target.bytes < min(disk.size, least * MIB):",
        "if True:",
    ),
    Mutation(
        "snapshots go without their flag",
        "plan/checks.py",
        "if disk.snapshots and not leaver.snapshots:",
        "if False:",
    ),
    Mutation(
        "snapshots of the VM not renamed on detach",
        "plan/departures.py",
        "if short.startswith(snapshots.PREFIX)",
        "if False",
    ),
    Mutation(
        "slot forgotten on re-attach",
        "plan/resolve.py",
        "    if remembered:\n",
        "    if False:\n",
    ),
    Mutation(
        "slot of another disk given away",
        "plan/resolve.py",
        "if owner is not None and owner != _key(target):",
        "if False:",
    ),
    Mutation(
        "slot taken from a disk that stays",
        "rules/differences.py",
        "if spec.model is not None and spec.model != disk.model:",
        'if disk.pci_slot == "0:4:2":\n        found["pci_slot"] = (disk.pci_slot, "0:4:7")\n'
        "    if spec.model is not None and spec.model != disk.model:",
    ),
    Mutation(
        "one slot of another bus for every new disk",
        "plan/resolve.py",
        "return slots.allocate(set(taken), slots.preferred(pci), whole=capabilities.functions_per_slot == 1)",
        'return slots.parse_slot("1:0:1")',
    ),
    Mutation(
        "uuid made anew on re-attach",
        "plan/arrivals.py",
        "uuid = disk.uuid if disk else target.uuid",
        "uuid = identity.uuid_of(disk.volume.guid) if disk else target.uuid",
    ),
    Mutation(
        "identity written to another volume",
        "engine/apply_disks.py",
        "tools.zfs.set_facts(step.volume, {**stamp(volume.user), **step.facts})",
        "tools.zfs.set_facts(vm.disks[0].volume.name, {**stamp(volume.user), **step.facts})",
    ),
    Mutation(
        "allocatable ignores what snapshots pin",
        "rules/space.py",
        "sum(v.volsize + v.pinned for v in vm.volumes)",
        "sum(v.volsize for v in vm.volumes)",
    ),
    Mutation(
        "free_space ignores snapshots",
        "rules/space.py",
        "sum(d.volume.volsize + d.volume.usedbysnapshots for d in disks)",
        "sum(d.volume.volsize for d in disks)",
    ),
    Mutation(
        "what remains computed anew after a snapshot",
        "plan/resolve.py",
        "settled = disk is not None and",
        "settled = False and",
        "tests/unit/engine/test_remaining.py",
    ),
    Mutation(
        "facts written in every run",
        "plan/changes.py",
        'return {key: value for key, value in facts.items() if disk.volume.user.get(key, "") != value}',
        "return dict(facts)",
    ),
    Mutation(
        "check mode does not predict the reservation",
        "engine/report.py",
        '"after": after.root.reservation}',
        '"after": after.root.reservation if volatile else plan.before.root.reservation}',
    ),
    Mutation(
        "check mode makes a container",
        "engine/run.py",
        "        if not self.check_mode:\n",
        """        if self.check_mode:
            self.zfs.create_container("zones/flexdisk-checked-%d" % len(host.datasets))
        if not self.check_mode:
""",
    ),
    Mutation(
        "description never written",
        "rules/disk_properties.py",
        "if value != now[name]}",
        'if value != now[name] and name != "description"}',
    ),
    Mutation(
        "VM not started again",
        "plan/ordering.py",
        "    wrapped.add(recovery.start(capabilities))\n",
        "",
    ),
    Mutation(
        "interrupted detach not finished",
        "plan/ordering.py",
        "= [*departures.forget(resolved.vm)]",
        "= []",
    ),
    Mutation(
        "interrupted creation not continued",
        "rules/matching.py",
        "[d for d in vm.orphans if d.adopted and d.uuid]",
        "[]",
    ),
    Mutation(
        "guid not compared before a change",
        "engine/perform.py",
        "if guid and now.guid != guid:",
        "if False:",
        "tests/unit/engine/test_failures.py",
    ),
    Mutation(
        "inherited properties believed",
        "zfs/read.py",
        '_OWN_SOURCES = ("local", "received")',
        '_OWN_SOURCES = ("local", "received", "inherited from zones")',
        "tests/unit/fuzz",
    ),
    Mutation(
        "any disk name accepted",
        "rules/disk_values.py",
        "if name and not identity.DISK_NAME.match(name):",
        "if False:",
        "tests/unit/fuzz",
    ),
    Mutation(
        "disk name with a newline accepted",
        "rules/identity.py",
        r'DISK_NAME = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")',
        r'DISK_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")',
        "tests/unit/spec",
    ),
    Mutation(
        "description not encoded",
        "rules/disk_properties.py",
        "encode=encode_text,",
        "encode=str,",
        "tests/unit/fuzz",
    ),
    Mutation(
        "snapshot without the room for it",
        "plan/vm_snapshot.py",
        "    if short > 0:\n",
        "    if False:\n",
        SNAPSHOTS,
    ),
    Mutation(
        "snapshot: newer ones destroyed unasked",
        "plan/vm_snapshot.py",
        "lost = [] if spec.newer is None else",
        "lost = [] if True else",
        SNAPSHOTS,
    ),
    Mutation(
        "snapshot: another VM's past brought back",
        "rules/snapshots.py",
        "if part.createtxg != self.createtxg and",
        "if False and",
        SNAPSHOTS,
    ),
    Mutation(
        "snapshot: no law after a rollback",
        "plan/vm_snapshot.py",
        "seq.add(_rollback(vm, snapshot, capabilities))\n    seq.extend(ordering.repairs(seq.vm, geometry, False))",
        "seq.add(_rollback(vm, snapshot, capabilities))",
        SNAPSHOTS,
    ),
    Mutation(
        "snapshot: half rolled back and started",
        "plan/vm_steps.py",
        '"""Always: after a failure, the VM\'s disks may be of different times."""\n        return True',
        '"""Always: after a failure, the VM\'s disks may be of different times."""\n        return False',
        SNAPSHOTS,
    ),
    Mutation(
        "vm: preserved disks deleted with it",
        "plan/vm.py",
        "Leaver(d, not d.preserve, declared.destroy_snapshots)",
        "Leaver(d, True, declared.destroy_snapshots)",
        VMS,
    ),
    Mutation(
        "vm: what nobody named deleted with it",
        "plan/vm.py",
        "    if strange:\n",
        "    if False:\n",
        VMS,
    ),
    Mutation(
        "vm: data disks destroyed unasked",
        "plan/vm.py",
        "if data and not declared.destroy_disks:",
        "if False:",
        VMS,
    ),
    Mutation(
        "vm: snapshots destroyed unasked",
        "plan/vm.py",
        "if own and not declared.destroy_snapshots:",
        "if False:",
        VMS,
    ),
    Mutation(
        "vm: no last look before a deletion",
        "engine/apply_vm.py",
        "    if below != volumes:\n",
        "    if False:\n",
        VMS,
    ),
    Mutation(
        "vm: disks of a protected VM unprotected",
        "plan/checks.py",
        "if vm.config.indestructible and not disk.detached:",
        "if False:",
        VMS,
    ),
    Mutation(
        "vm: an interrupted creation forgotten",
        "engine/journal.py",
        "return plan.before.config.alias",
        'return ""',
        VMS,
    ),
    Mutation(
        "vm: a new disk has a detached one's uuid",
        "plan/creation.py",
        "uuid = uuid_of_new(new.uuid, number, taken)",
        "uuid = uuid_of_new(new.uuid, number, ())",
        VMS,
    ),
    Mutation(
        "vm: what is in use taken for an interrupted creation's",
        "rules/journal.py",
        'if d.kind == "snapshot" or not unwritten(d, empty)',
        "if False",
        VMS,
    ),
    Mutation(
        "vm: a half imported image used",
        "engine/apply_vm.py",
        """    tools.hypervisor.import_image(step.file, volume)
    tools.zfs.set(volume, refreservation="none")
    tools.zfs.snapshot(last)
""",
        """    tools.zfs.snapshot(last)
    tools.hypervisor.import_image(step.file, volume)
    tools.zfs.set(volume, refreservation="none")
""",
        "tests/unit/domains/test_vm.py",
    ),
    Mutation(
        "disk: taken without a word",
        "plan/disk.py",
        "elif not declared.take:",
        "elif False:",
        DISKS,
    ),
    Mutation(
        "disk: serial_no is no lock",
        "plan/disk.py",
        "if now != job.declared.serial and",
        "if False and",
        DISKS,
    ),
    Mutation(
        "disk: clones go unasked",
        "plan/checks.py",
        " if c not in leaver.clones]",
        " if False]",
        DISKS,
    ),
    Mutation(
        "disk: an index is given twice",
        "plan/disk.py",
        "            if index in used:",
        "            if False:",
        DISKS,
    ),
    Mutation(
        "disk: a name is given twice",
        "plan/disk.py",
        "        if taken is not None:",
        "        if False:",
        DISKS,
    ),
    Mutation(
        "disk: a copy where there is no room",
        "plan/detached.py",
        "    if pins > room:",
        "    if False:",
        DISKS,
    ),
    Mutation(
        "disk: the VM that it left stays half done",
        "plan/disk.py",
        "if vm is None or not (vm.interrupted",
        "if True or not (vm.interrupted",
        "tests/unit/registry/test_killed.py",
    ),
    Mutation(
        "disk: an unfinished copy looks whole",
        "engine/apply_detached.py",
        '_copy(tools, step.copy_of, step.volume, {**facts, "from": identity.IMPORTING})',
        "_copy(tools, step.copy_of, step.volume, facts)",
        "tests/unit/registry/test_killed.py",
    ),
    Mutation(
        "disk: another volume is destroyed",
        "zfs/exact.py",
        '_DIFFERS = ("guid", "uuid", "snapshots")',
        "_DIFFERS = ()",
        "tests/unit/zfs/test_exact.py",
    ),
    Mutation(
        "a release takes the name away first, so that the released identity does not count yet",
        "rules/released_identity.py",
        """    "serial_no",
    "uuid",
    "name",
    "vm",
""",
        """    "name",
    "vm",
    "uuid",
    "serial_no",
""",
        "tests/unit/engine/test_disk_adopt.py",
    ),
    Mutation(
        "a release takes facts away and keeps no identity",
        "plan/disk_adopt.py",
        'facts[released_identity.KEY] = kept or ""',
        'facts[released_identity.KEY] = ""',
        "tests/unit/engine/test_disk_adopt.py",
    ),
    Mutation(
        "a released identity that names another disk is used",
        "plan/disk_adopt.py",
        "user and (kept is None or (kept.uuid and not agrees(entry, kept.uuid))):",
        "user and kept is None:",
        "tests/unit/engine/test_disk_adopt.py",
    ),
    Mutation(
        "a plan that nobody has approved is carried out",
        "engine/outcome.py",
        "expected.digest == self.plan_digest",
        "self.plan_digest",
        "tests/unit/engine/test_approval.py",
    ),
    Mutation(
        "a plan that loses other snapshots counts as approved",
        "plan/approval.py",
        '"lost": _lost(plan),',
        '"lost": [],',
        APPROVALS,
    ),
    Mutation(
        "a rollback to another moment counts as approved",
        "plan/approval.py",
        '"back": _back(plan),',
        '"back": [],',
        APPROVALS,
    ),
    Mutation(
        "a digest depends on the order of the declaration",
        "plan/approval.py",
        "for plan in in_order(plans) if plan.changed",
        "for plan in plans if plan.changed",
        APPROVALS,
    ),
    Mutation(
        "a number counts as the name that it may have been",
        "spec/answers.py",
        'raise Unclear(_lost(path, "number", str(value), _spellings(value)))',
        "return str(value)",
        "tests/unit/spec/test_answers.py",
    ),
)
