# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input: one clear error each, naming VM, disk, value and limit, and not a bit of the node changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_disks import converge
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from ..conftest import IMAGE, VM, Simulated

OTHER = "cccccccc-0000-4000-8000-000000000002"
ZONE = "dddddddd-0000-4000-8000-000000000001"
NOBODY = "eeeeeeee-0000-4000-8000-00000000000e"
ROOT = {"name": "root"}
DATA = {"name": "data"}


def adopted(sim: Simulated, **more: Any) -> None:
    """web01: root 10 GiB at 0:4:0, data 2 GiB at 0:4:1, both adopted; F 30 GiB."""
    sim.create(**more)
    done = sim.converge(
        {"vm": "web01", "disks": [{"name": "root", "boot": True}, {"name": "data", "size": 2048}]}, allow_restart=True
    )
    assert done.failure is None
    assert not done.problems


def two(sim: Simulated) -> None:
    adopted(sim)
    sim.create(uuid=OTHER, alias="web02")


def same_alias(sim: Simulated) -> None:
    sim.create()
    sim.create(uuid=OTHER)


def zone(sim: Simulated) -> None:
    image = "aaaaaaaa-0000-4000-8000-000000000009"
    sim.admin("image-import", image, "0", "type=zone-dataset")
    payload = {"uuid": ZONE, "brand": "joyent-minimal", "image_uuid": image, "alias": "zone01", "quota": 5}
    sim.run("vmadm", "create", stdin=json.dumps(payload))


def running(sim: Simulated) -> None:
    adopted(sim, autoboot=True)
    assert sim.get()["state"] == "running"


def eight_disks(sim: Simulated) -> None:
    sim.create(sizes=(64,) * 7)
    done = sim.converge({"vm": "web01", "disks": [{"name": "d%d" % d.index, "uuid": d.uuid} for d in sim.vm().disks]})
    assert not done.problems


def snapshots(sim: Simulated) -> None:
    adopted(sim)
    volume = f"zones/{VM}/disk1"
    sim.write(volume, 1, 0, 100)
    sim.run("zfs", "snapshot", volume + "@one")
    sim.write(volume, 2, 0, 100)
    sim.run("zfs", "snapshot", volume + "@two")


def held(sim: Simulated) -> None:
    snapshots(sim)
    sim.run("zfs", "hold", "keep", f"zones/{VM}/disk1@two")


def cloned(sim: Simulated) -> None:
    snapshots(sim)
    sim.run("zfs", "clone", f"zones/{VM}/disk1@one", "zones/child")


def pinned(sim: Simulated) -> None:
    """Snapshots pin 1 GiB, so that 17 of 18 GiB are allocatable."""
    adopted(sim)
    sim.write(f"zones/{VM}/disk1", 1, 0, 1024)
    sim.run("zfs", "snapshot", f"zones/{VM}/disk1@one")


def transitional(sim: Simulated) -> None:
    adopted(sim)
    sim.admin("vm-state", VM, "stopping")
    assert sim.get()["state"] == "stopping"


def full_root(sim: Simulated) -> None:
    adopted(sim, quota=3)
    sim.run("guest", "write", f"zones/{VM}", "0", "2048", "1")


def small_pool(sim: Simulated) -> None:
    """A pool with about 1 GiB left beside the VM."""
    adopted(sim)
    left = int(sim.run("zfs", "get", "-Hpo", "value", "available", "zones"))
    sim.run("zfs", "create", "-o", f"reservation={left - (1 << 30)}", "zones/ballast")


def encrypted_container(sim: Simulated) -> None:
    """A detached disk of the VM inside an encryption root of its own."""
    adopted(sim)
    secret = ("-o", "encryption=on", "-o", "keyformat=passphrase", "-o", "keylocation=file:///k")
    sim.run("zfs", "destroy", "zones/flexdisk")
    sim.run("zfs", "create", *secret, "zones/flexdisk")
    facts = ("-o", f"flexdisk:uuid={NOBODY}", "-o", "flexdisk:name=vault", "-o", f"flexdisk:vm={VM}")
    sim.run("zfs", "create", *facts, "-V", "64M", f"zones/flexdisk/{NOBODY}")


def encrypted_vm(sim: Simulated) -> None:
    adopted(sim)
    root = sim.node.pools.dataset(f"zones/{VM}")
    for below in root.walk():
        below.cryptroot = root.guid


def disowned(sim: Simulated) -> None:
    adopted(sim)
    sim.run("zfs", "set", f"flexdisk:uuid={NOBODY}", f"zones/{VM}/disk1")


def twins(sim: Simulated) -> None:
    two(sim)
    uuid = sim.vm().disks[1].uuid
    sim.run("zfs", "create", "-o", f"flexdisk:uuid={uuid}", "-V", "64M", f"zones/flexdisk/{uuid}")


def detached_twice(sim: Simulated) -> None:
    """Two detached disks of the VM named old."""
    adopted(sim)
    for digit in "12":
        uuid = NOBODY[:-1] + digit
        facts = ("-o", f"flexdisk:uuid={uuid}", "-o", "flexdisk:name=old", "-o", f"flexdisk:vm={VM}")
        sim.run("zfs", "create", *facts, "-V", "64M", f"zones/flexdisk/{uuid}")


def unnamed_alike(sim: Simulated) -> None:
    sim.create(sizes=(2048, 2048))


def inflexible(sim: Simulated) -> None:
    adopted(sim, flexible=None)


@dataclass
class Case:
    """What is declared for web01 (or vms), on which node, and what must be said; words are searched in the message."""

    name: str
    code: str
    words: tuple[str, ...]
    disks: list[dict[str, Any]] | None = None
    vms: list[dict[str, Any]] | None = None
    node: Callable[[Simulated], None] = adopted
    disk: str = ""
    vm: str = "web01"
    vm_keys: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)

    def declaration(self) -> list[dict[str, Any]]:
        if self.vms is not None:
            return self.vms
        entry: dict[str, Any] = {"vm": "web01", **self.vm_keys}
        return [entry if self.disks is None else {**entry, "disks": self.disks}]


def data(**changes: Any) -> list[dict[str, Any]]:
    """The list that changes nothing, with other wishes for data."""
    return [ROOT, {**DATA, **changes}]


def more(**new: Any) -> list[dict[str, Any]]:
    return [ROOT, DATA, {"name": "new", **new}]


INVALID = "InvalidArgument"
CASES = [
    # VMs
    Case("unknown VM", "ResourceNotFound", ("no VM",), vms=[{"vm": "web99"}], vm="web99"),
    Case("short prefix", "ResourceNotFound", ("no VM",), vms=[{"vm": "ccc"}], vm="ccc"),
    Case("VM listed twice", INVALID, ("listed twice", "web01"), vms=[{"vm": "web01"}, {"vm": VM}], vm=VM),
    Case("ambiguous alias", "Ambiguous", (VM, OTHER), vms=[{"vm": "web01"}], node=same_alias),
    Case("ambiguous prefix", "Ambiguous", (VM, OTHER), vms=[{"vm": "cccccccc"}], node=two, vm="cccccccc"),
    Case("another brand", "BrandNotSupported", ("joyent-minimal",), vms=[{"vm": "zone01"}], node=zone, vm="zone01"),
    Case("no VM named", INVALID, ("uuid", "alias"), vms=[{"vm": ""}], vm=""),
    # identity
    Case("unknown uuid", "ResourceNotFound", (NOBODY,), [ROOT, DATA, {"uuid": NOBODY, "size": 64}], disk=NOBODY),
    Case("bad uuid", INVALID, ("zzz",), [ROOT, DATA, {"uuid": "zzz"}], disk="zzz"),
    Case("neither name nor uuid", INVALID, ("name or a uuid",), [ROOT, DATA, {"size": 64}], disk="disks[2]"),
    Case("bad name", INVALID, ("a/b", "64"), [ROOT, DATA, {"name": "a/b", "size": 64}], disk="a/b"),
    Case("name twice", INVALID, ("two disks", "data"), [ROOT, DATA, DATA], disk="data"),
    Case("uuid twice", INVALID, ("two disks", NOBODY), [ROOT, DATA, {"uuid": NOBODY}, {"uuid": NOBODY}], disk=NOBODY),
    Case(
        "another volume has the uuid",
        "IdentityMismatch",
        (NOBODY, "disk1"),
        [ROOT, {**DATA, "state": "absent"}],
        node=disowned,
        disk="data",
    ),
    Case(
        "uuid on two volumes",
        "Ambiguous",
        ("several volumes", "disk1", "zones/flexdisk/"),
        data(),
        node=twins,
        disk="data",
    ),
    Case(
        "two detached candidates",
        "Ambiguous",
        (NOBODY[:-1] + "1", NOBODY[:-1] + "2"),
        [ROOT, DATA, {"name": "old"}],
        node=detached_twice,
        disk="old",
    ),
    Case(
        "which is which",
        "Ambiguous",
        ("more than one", "{uuid: "),
        [{"name": "root", "boot": True}, {"name": "a", "size": 2048}, {"name": "b", "size": 2048}],
        node=unnamed_alike,
    ),
    Case(
        "no size fits",
        "Ambiguous",
        ("do not tell", "2 GiB", "{uuid: "),
        [{"name": "root", "boot": True}, {"name": "a", "size": 1024}, {"name": "b", "size": 2048}],
        node=unnamed_alike,
    ),
    # sizes
    Case(
        "two remaining", INVALID, ("remaining", "a, b"), [ROOT, DATA, *({"name": n, "size": "remaining"} for n in "ab")]
    ),
    Case("zero", INVALID, ('"0"', "1 MiB"), data(size=0), disk="data"),
    Case("negative", INVALID, ("-5",), data(size=-5), disk="data"),
    Case("fraction of a MiB", INVALID, ("1.0001G", "whole"), data(size="1.0001G"), disk="data"),
    Case("junk size", INVALID, ("much",), data(size="much"), disk="data"),
    Case("bool size", INVALID, ("True",), data(size=True), disk="data"),
    Case("8 EiB", INVALID, ("8 EiB",), data(size="9000000T"), disk="data"),
    Case("new disk without size", "MissingParameter", ("size or an image",), more(), disk="new"),
    Case(
        "shrink without its flag", INVALID, ("2 GiB -> 1 GiB", "dangerous_allow_shrink"), data(size=1024), disk="data"
    ),
    Case(
        "shrink below what the guest needs",
        "TooSmallForGuest",
        ("1 GiB would", "min_size_from_guest is 1.5 GiB, and the disk has 2 GiB"),
        data(size=1024, min_size_from_guest="1.5GiB", dangerous_allow_shrink=True),
        disk="data",
    ),
    Case(
        "boot disk below its image",
        INVALID,
        ("10 GiB -> 9 GiB", f"cannot be smaller than its image {IMAGE}, which has 10 GiB"),
        [{**ROOT, "size": "9G", "dangerous_allow_shrink": True}, DATA],
        disk="root",
    ),
    Case(
        "new disk below its image",
        INVALID,
        (f"size 9 GiB is too small: image {IMAGE} has 10 GiB",),
        more(image=IMAGE, size="9G"),
        disk="new",
    ),
    Case("no such image", "ResourceNotFound", (NOBODY,), more(image=NOBODY), disk="new"),
    Case("bad image", INVALID, ("debian",), more(image="debian"), disk="new"),
    Case(
        "grow beyond what is allocatable",
        "InsufficientSpace",
        ("30720 MiB", "1 MiB too small", "data 2 GiB -> 20.0 GiB", "30721 MiB"),
        data(size=20481),
        disk="data",
    ),
    Case(
        "grow into what snapshots pin",
        "InsufficientSpace",
        ("30 GiB", "31757 MiB"),
        data(size=20481),
        node=pinned,
        disk="data",
    ),
    Case(
        "figures that round to the same",
        "InsufficientSpace",
        ("flexible_disk_size 12289 MiB is 8 MiB too small", "need 12297 MiB"),
        vms=[{"vm": "web01", "flexible_disk_size": "12289MiB", "disks": data(size=2057)}],
        disk="data",
    ),
    Case("new disk too big", "InsufficientSpace", ("new 18.0 GiB new", "30721 MiB"), more(size=18433), disk="new"),
    Case(
        "nothing remains",
        "InsufficientSpace",
        ("0 MiB", "30 GiB"),
        [ROOT, {**DATA, "size": 20480}, {"name": "r", "size": "remaining"}],
        disk="r",
    ),
    # flexible_disk_size and quota
    Case(
        "F below use",
        "InsufficientSpace",
        ("11.9 GiB", "smallest that fits is 12 GiB"),
        vm_keys={"flexible_disk_size": 12287},
    ),
    Case(
        "F below what snapshots pin",
        "InsufficientSpace",
        ("13324 MiB",),
        vm_keys={"flexible_disk_size": 13323},
        node=pinned,
    ),
    Case(
        "F above the pool",
        "InsufficientSpace",
        ("pool zones", "970 GiB", "left"),
        vm_keys={"flexible_disk_size": "1000GiB"},
    ),
    Case("junk F", INVALID, ("flexible_disk_size", "lots"), vm_keys={"flexible_disk_size": "lots"}),
    Case("quota without unit", INVALID, ("quota", "unit"), vm_keys={"quota": "10"}),
    Case("quota of half a GiB", INVALID, ("512 MiB", "1 GiB"), vm_keys={"quota": "512MiB"}),
    Case(
        "quota below the root", "InUse", ("1 GiB", "2.0 GiB", f"zones/{VM}"), vm_keys={"quota": "1GiB"}, node=full_root
    ),
    Case("grow without F", "VmWithoutFlexibleDiskSize", ("growing",), data(size=4096), node=inflexible, disk="data"),
    Case("add without F", "VmWithoutFlexibleDiskSize", ("adding",), more(size=64), node=inflexible, disk="new"),
    Case(
        "remaining without F",
        "VmWithoutFlexibleDiskSize",
        ("remaining",),
        data(size="remaining"),
        node=inflexible,
        disk="data",
    ),
    Case(
        "conversion below use",
        "InsufficientSpace",
        ("smallest that fits is 12 GiB",),
        vm_keys={"flexible_disk_size": 12000},
        node=inflexible,
    ),
    # the pool
    Case(
        "no room to detach",
        "InsufficientSpace",
        ("pool zones has 1 GiB left", "2 GiB"),
        [ROOT],
        node=small_pool,
        vm_keys={"unlisted": "detach"},
    ),
    # slots
    Case("slot syntax", INVALID, ("4:9", "function"), data(pci_slot="4:9"), disk="data"),
    Case("slot of another base", INVALID, ("0:1f:0",), data(pci_slot="0:1f:0"), disk="data"),
    Case("reserved slot", INVALID, ("0:6:0", "network"), data(pci_slot="0:6:0"), disk="data"),
    Case(
        "slot asked for twice",
        INVALID,
        ("0:4:3", "a and b"),
        [ROOT, DATA, *({"name": n, "size": 64, "pci_slot": s} for n, s in (("a", "4:3"), ("b", "0:4:3")))],
    ),
    Case("slot taken", INVALID, ("0:4:0", "disk0"), data(pci_slot="4:0"), disk="data"),
    Case(
        "slot of an unlisted disk",
        INVALID,
        ("0:4:1", "disk1"),
        [ROOT, {"name": "new", "size": 64, "pci_slot": "0:4:1"}],
        vm_keys={"unlisted": "keep"},
        disk="new",
    ),
    Case(
        "ninth disk without a slot",
        INVALID,
        ("all 8", "0:4:0 to 0:4:7", "pci_slot"),
        [{"name": "new", "size": 64}],
        node=eight_disks,
        vm_keys={"unlisted": "keep"},
        disk="new",
    ),
    # what is fixed at birth, what a disk can be
    Case("block size", "FixedAtBirth", ("8192", "4096", "recreate"), data(block_size=4096), disk="data"),
    Case("image", "FixedAtBirth", ("none", IMAGE, "recreate"), data(image=IMAGE), disk="data"),
    Case("odd block size", INVALID, ("3000", "power of two"), more(size=64, block_size=3000), disk="new"),
    Case("block size with image", INVALID, ("exclude",), more(image=IMAGE, block_size=4096), disk="new"),
    Case("model", INVALID, ("scsi", "virtio, ahci, nvme"), data(model="scsi"), disk="data"),
    Case("compression", INVALID, ("fast", "lz4"), data(compression="fast"), disk="data"),
    Case("two boot disks", INVALID, ("several boot disks", "root", "data"), data(boot=True), disk=""),
    Case("two boot entries", INVALID, ("boot: true", "root, data"), [{**ROOT, "boot": True}, {**DATA, "boot": True}]),
    Case("no boot disk", INVALID, ("no boot disk",), [{**ROOT, "boot": False}, DATA]),
    Case(
        "name of a disk that stays",
        "NameConflict",
        ("data", "disk1"),
        [{**ROOT, "name": "data", "uuid": "ROOT"}],
        vm_keys={"unlisted": "keep"},
        disk="data",
    ),
    # loss
    Case("boot disk removed", INVALID, ("boot disk",), [{**ROOT, "state": "absent"}, DATA], disk="root"),
    Case("unlisted", "UnlistedDisk", ("disk1", "2 GiB", "unlisted=keep"), [ROOT], disk="data"),
    Case(
        "unlisted destroy of a stranger",
        INVALID,
        ("disk1", "2 GiB", "identity"),
        [{"name": "root", "boot": True}],
        vm_keys={"unlisted": "destroy"},
        node=Simulated.create,
        disk="disk1",
    ),
    Case(
        "destroy with snapshots",
        "HasSnapshots",
        ("2 snapshots", "202.3 MiB", "destroy_snapshots"),
        data(state="absent"),
        node=snapshots,
        disk="data",
    ),
    Case(
        "destroy with a hold",
        "Held",
        ("disk1@two",),
        data(state="absent", destroy_snapshots=True),
        node=held,
        disk="data",
    ),
    Case(
        "destroy with a clone",
        "HasClones",
        ("zones/child",),
        data(state="absent", destroy_snapshots=True),
        node=cloned,
        disk="data",
    ),
    Case(
        "detach across encryption roots",
        "EncryptionRoot",
        (f"zones/{VM}", "zones/flexdisk"),
        [ROOT],
        vm_keys={"unlisted": "detach"},
        node=encrypted_vm,
        disk="data",
    ),
    Case(
        "attach across encryption roots",
        "EncryptionRoot",
        ("zones/flexdisk", f"zones/{VM}"),
        [ROOT, DATA, {"name": "vault"}],
        node=encrypted_container,
        disk="vault",
    ),
    # power
    Case("needs a stop", "VmNotStopped", ("data 2 GiB -> 4 GiB", "allow_restart"), data(size=4096), node=running),
    Case("transitional", "VmInTransition", ("stopping",), data(size=4096), node=transitional),
    # properties
    Case("long description", INVALID, ("description", "8192", "8191"), data(description="x" * 8192), disk="data"),
    Case("long tags", INVALID, ("tags", "8191"), data(tags={"k": "\u20ac" * 1000}), disk="data"),
]


@pytest.mark.parametrize("check", [True, False], ids=["check", "real"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_refused(case: Case, check: bool) -> None:
    sim = Simulated()
    case.node(sim)
    declared = json.loads(json.dumps(case.declaration()).replace('"ROOT"', json.dumps(first_uuid(sim))))
    before = sim.fingerprint()
    refused = sim.converge(*declared, check=check, **case.policy)
    assert sim.fingerprint() == before
    assert [p.code for p in refused.problems] == [case.code], refused.problems
    problem = refused.problems[0]
    assert (problem.vm, problem.disk) == (case.vm, case.disk)
    for word in case.words:
        assert word in problem.message
    assert (refused.changed, refused.vms, refused.diff) == (False, [], "")


def first_uuid(sim: Simulated) -> str:
    try:
        return sim.vm().disks[0].uuid
    except StopIteration:
        return NOBODY


def test_all_problems_of_a_task_together(sim: Simulated) -> None:
    two(sim)
    before = sim.fingerprint()
    refused = sim.converge(
        {"vm": "web99"},
        {"vm": "web01", "quota": "3", "disks": [{**ROOT, "size": 0}, {**DATA, "pci_slot": "0:31:0"}]},
        {
            "vm": "web02",
            "flexible_disk_size": "1GiB",
            "disks": [
                {"name": "root", "boot": True, "block_size": 512},
                {"name": "data", "size": 2048, "model": "scsi"},
            ],
        },
    )
    assert [(p.vm, p.disk, p.code) for p in refused.problems] == [
        ("web99", "", "ResourceNotFound"),
        ("web01", "", INVALID),
        ("web01", "root", INVALID),
        ("web01", "data", INVALID),
        ("web02", "root", "FixedAtBirth"),
        ("web02", "data", INVALID),
        ("web02", "", "InsufficientSpace"),
    ]
    assert sim.fingerprint() == before


def test_one_refusal_stops_every_vm(sim: Simulated) -> None:
    two(sim)
    before = sim.fingerprint()
    good = {"vm": "web02", "flexible_disk_size": "40GiB"}
    assert [p.vm for p in sim.converge(good, {"vm": "web01", "disks": [ROOT]}).problems] == ["web01"]
    assert sim.fingerprint() == before


def test_on_refusal_continue_changes_the_others_and_still_fails(sim: Simulated) -> None:
    two(sim)
    good, bad = {"vm": "web02", "flexible_disk_size": "40GiB"}, {"vm": "web01", "disks": [ROOT]}
    predicted = sim.converge(bad, good, check=True, continue_on_refusal=True)
    done = sim.converge(bad, good, continue_on_refusal=True)
    for outcome in (predicted, done):
        assert [p.vm for p in outcome.problems] == ["web01"]
        assert [v["alias"] for v in outcome.vms] == ["web02"]
        assert outcome.changed
    assert sim.get(OTHER)["flexible_disk_size"] == 40960
    assert sim.get()["flexible_disk_size"] == 30720


def test_on_refusal_continue_leaves_out_whom_the_pool_has_no_room_for(sim: Simulated) -> None:
    two(sim)
    big, good = {"vm": "web01", "flexible_disk_size": "1000GiB"}, {"vm": "web02", "flexible_disk_size": "40GiB"}
    predicted = sim.converge(big, good, check=True, continue_on_refusal=True)
    done = sim.converge(big, good, continue_on_refusal=True)
    for outcome in (predicted, done):
        assert [(p.vm, p.code) for p in outcome.problems] == [("web01", "InsufficientSpace")]
        assert [v["alias"] for v in outcome.vms] == ["web02"]
    assert (sim.get()["flexible_disk_size"], sim.get(OTHER)["flexible_disk_size"]) == (30720, 40960)


def test_on_refusal_continue_leaves_out_all_that_claim_one_disk(sim: Simulated) -> None:
    two(sim)
    third = "dddddddd-0000-4000-8000-000000000003"
    sim.create(uuid=third, alias="web03")
    disks = [{"name": "root", "boot": True}, {"name": "data", "size": 2048}]
    sim.converge({"vm": "web03", "disks": disks})
    detached = next(d.uuid for d in sim.vm(third).disks if d.name == "data")
    sim.converge({"vm": "web03", "unlisted": "detach", "disks": disks[:1]})
    claims = [{"vm": name, "unlisted": "keep", "disks": [{"uuid": detached}]} for name in ("web02", "web03")]
    done = sim.converge(*claims, {"vm": "web01", "flexible_disk_size": "40GiB"}, continue_on_refusal=True)
    assert [(p.vm, p.code) for p in done.problems] == [("web02", "Ambiguous"), ("web03", "Ambiguous")]
    assert [v["alias"] for v in done.vms] == ["web01"]
    assert sim.get()["flexible_disk_size"] == 40960


def test_no_such_pool(sim: Simulated) -> None:
    sim.create()
    with pytest.raises(FlexdiskError, match="no such pool: tank") as caught:
        converge(Zfs(sim.runner), Vmadm(sim.runner), [{"vm": "web01"}], Policy(), "tank", False)
    assert caught.value.code == "ResourceNotFound"
