# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The vmadm driver on recorded answers: what it sends, what it makes of what comes back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import vmadm_read
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import DiskConfig

U = "cccccccc-0000-4000-8000-000000000001"
D0 = f"/dev/zvol/rdsk/zones/{U}/disk0"
D1 = f"/dev/zvol/rdsk/zones/{U}/disk1"
UUID = "9B5B50B6-a0c6-4007-b238-b942288d909e"
VM = {
    "zonename": U,
    "autoboot": False,
    "brand": "bhyve",
    "alias": "web0",
    "flexible_disk_size": 20480,
    "device": None,
    "disks": [
        {
            "path": D0,
            "boot": True,
            "model": "virtio",
            "media": "disk",
            "image_size": 10240,
            "image_uuid": "aaaaaaaa-0000-4000-8000-000000000001",
            "pci_slot": "0:4:0",
            "uuid": UUID,
            "zfs_filesystem": f"zones/{U}/disk0",
            "size": 10240,
        },
        {"path": D1, "boot": False, "model": "virtio", "pci_slot": "4:1", "missing": True},
        {"path": "/isos/x.iso", "boot": False, "model": "ahci", "media": "cdrom", "missing": True},
        {"path": "/files/x.img", "boot": False, "model": "ahci", "missing": True},
    ],
    "uuid": U,
    "zone_state": "installed",
    "platform_buildstamp": "20260113T000000Z",
    "state": "stopped",
    "tags": {"role": "web", "cns": True, "n": 1},
    "internal_metadata": {"cloudinit_nocloud_path": D1},
    "quota": 1,
    "zfs_filesystem": "zones/" + U,
    "zpool": "zones",
    "free_space": 8192,
}
TIMEOUT = f'first of 1 error: vminfod watchForChanges "VM.js update ({U})" timeout exceeded\n'


def vm(**changes):
    return {**VM, **changes}


class Recorded:
    """update answers as told, get shows the VMs in turn."""

    def __init__(self, *seen, rc=0, err="", **commands):
        self.seen, self.answer, self.commands = list(seen), Answer(rc, "", err), commands
        self.calls: list[tuple[list[str], str, float]] = []

    def __call__(self, argv, stdin="", timeout=300):
        self.calls.append((list(argv), stdin, timeout))
        if argv[1] == "get":
            shown = self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]
            return Answer(0, json.dumps(shown), "")
        result = self.commands.get(argv[1], self.answer)
        if isinstance(result, FlexdiskError):
            raise result
        return result

    def payload(self):
        return json.loads(next(stdin for argv, stdin, _timeout in self.calls if argv[1] == "update"))


# -- reading


def test_what_another_host_needs_of_the_disk_for_cloud_init():
    """Without the hash vmadm fills it again where it is made again."""
    metadata = {"cloudinit_datasource": "nocloud", "cloudinit_nocloud_path": D1}
    config = vm(internal_metadata={**metadata, "cloudinit_nocloud_hash": "0" * 32})
    assert Vmadm(Recorded(config)).description(U).options["internal_metadata"] == metadata


def test_a_vm():
    config = vmadm_read.parse_vm(VM)
    assert (config.uuid, config.alias, config.brand, config.state) == (U, "web0", "bhyve", "stopped")
    assert (config.pool, config.dataset, config.flexible_disk_size) == ("zones", "zones/" + U, 20480)
    assert (config.autoboot, config.indestructible, config.transition) == (False, False, "")
    assert (config.hidden_paths, config.tags) == ({D1}, {"role": "web", "cns": "true", "n": "1"})
    image = "aaaaaaaa-0000-4000-8000-000000000001"
    assert config.disks == (
        DiskConfig(D0, f"zones/{U}/disk0", True, "virtio", "disk", image, 10240, "0:4:0", UUID.lower()),
        DiskConfig(D1, f"zones/{U}/disk1", False, "virtio", "disk", "", 0, "4:1", ""),
        DiskConfig("/isos/x.iso", "", False, "ahci", "cdrom"),
        DiskConfig("/files/x.img", "", False, "ahci", "disk"),
    )


def test_what_is_absent_has_a_meaning():
    config = vmadm_read.parse_vm({"uuid": U, "disks": [{"boot": "true"}]})
    assert (config.flexible_disk_size, config.hidden_paths, config.state) == (None, frozenset(), "unknown")
    assert config.disks == (DiskConfig("", boot=True),)
    assert vmadm_read.parse_vm({"uuid": U, "flexible_disk_size": 0}).flexible_disk_size is None
    assert all(vmadm_read.parse_vm({"uuid": U, "tags": odd}).tags == {} for odd in (None, "x", [1], {}))


@pytest.mark.parametrize("text", ["", "x", "{}", "null", "[1]", '[{"alias": "x"}]', '[{"uuid": ""}]', "[[]]"])
def test_what_is_no_list_of_vms(text):
    with pytest.raises(FlexdiskError) as caught:
        vmadm_read.parse_lookup(text)
    assert caught.value.code == "UnexpectedOutput"


KEYS = st.sampled_from([*VM, "boot", "path", "image_size"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=8))
def test_any_json_is_read_or_refused(value):
    for text in (json.dumps(value), json.dumps([{**VM, **value}] if isinstance(value, dict) else [value])):
        try:
            vmadm_read.parse_lookup(text)
        except FlexdiskError as exc:
            code = exc.code
        else:
            code = "UnexpectedOutput"
        assert code in ("UnexpectedOutput", "PlatformTooOld")


@pytest.mark.parametrize("odd", [{"zpool": "-x"}, {"zfs_filesystem": "other/x"}, {"disks": ["x"]}])
def test_a_vm_described_in_an_unknown_way_does_not_keep_the_others_from_being_served(odd):
    one, other = vmadm_read.parse_lookup(json.dumps([vm(**odd), vm(uuid=UUID.lower())]))
    assert (one.uuid, one.pool, one.dataset, one.disks) == (U, "", "", ())
    assert (other.uuid, other.dataset) == (UUID.lower(), "zones/" + U)
    with pytest.raises(FlexdiskError):
        vmadm_read.parse_vm(vm(**odd))


def test_no_vms():
    assert vmadm_read.parse_lookup("[]") == []


@pytest.mark.parametrize(("stamp", "affected"), [("20181205T235959Z", True), ("20181206T000000Z", False), ("", False)])
def test_platforms_that_could_destroy_disk0(stamp, affected):
    text = json.dumps([vm(platform_buildstamp=stamp)])
    if not affected:
        assert len(vmadm_read.parse_lookup(text)) == 1
        return
    with pytest.raises(FlexdiskError, match=r"20181205.*before 20181206") as caught:
        vmadm_read.parse_lookup(text)
    assert caught.value.code == "PlatformTooOld"


@pytest.mark.parametrize(
    ("stderr", "code"),
    [
        (
            'updates to disks are only allowed when state is "stopped", currently: running (running)',
            "VmNotStopped",
        ),
        (
            'at least one specified update to disks is only allowed when state is "stopped", currently: running',
            "VmNotStopped",
        ),
        (f"VM {U} not found", "ResourceNotFound"),
        (f"zoneadm: {U}: No such zone configured", "ResourceNotFound"),
        (f"Unable to start VM {U}: bad statusCode: 404", "ResourceNotFound"),
        (
            "first of 1 error: Command failed: cannot set property for 'zones/U/disk1': "
            "size is greater than available space",
            "InsufficientSpace",
        ),
        ("cannot create 'zones/U/disk2': out of space", "InsufficientSpace"),
        (
            "first of 1 error: cannot set property for 'zones/U': size is less than current used or reserved space",
            "InUse",
        ),
        (
            "first of 1 error: cannot resize disk: new size must be greater than current size. (2048 > 1024)",
            "InvalidArgument",
        ),
        ("Invalid value(s) for: disks.*.size", "InvalidArgument"),
        ('pci_slot "0:6:0" invalid: PCI device 6 is reserved', "InvalidArgument"),
        ('VM has multiple disks in pci_slot "0:4:0": "a" and "b', "InvalidArgument"),
        ("duplicate disk uuid x", "InvalidArgument"),
        ('"scsi" is not a valid disk model for bhyve brand. Valid are: virtio,ahci,nvme', "InvalidArgument"),
        ("Missing required properties: add_disks.0.size", "InvalidArgument"),
        ("FATAL: cannot run because: permission denied", "NotPermitted"),
        ("something new", "VmadmFailed"),
    ],
)
def test_what_vmadm_says(stderr, code):
    error = vmadm_read.classify(("vmadm", "update", U), 1, stderr + "\n")
    assert error.code == code
    assert error.message.startswith(stderr.strip())
    assert error.message.endswith(f"(rc 1 of: vmadm update {U})")
    assert ("become" in error.message) == (code == "NotPermitted")


@pytest.mark.parametrize("status", [-6, 134, 133])
def test_a_crash_is_a_crash_whatever_it_printed(status):
    error = vmadm_read.classify(("vmadm", "update", U), status, "AssertionError: index (number) is required")
    assert error.code == "VmadmCrashed"
    assert "without a message" in vmadm_read.classify(("vmadm", "update", U), -6, "").message


# -- changing


def test_payloads_are_one_kind_of_change_in_json_numbers():
    seen = vm(flexible_disk_size=4096, autoboot=True, disks=[{"path": D0, "uuid": "u", "model": "nvme", "boot": True}])
    recorded = Recorded(seen)
    driver = Vmadm(recorded)
    sent = []

    def did(method, *args):
        recorded.calls.clear()
        getattr(driver, method)(U, *args)
        assert recorded.calls[0][0] == ["vmadm", "update", U]
        sent.append(recorded.payload())

    did("resize_disk", D0, 2048)
    did("resize_disk", D0, 1024, Dataset("zones/x", "volume"))
    did("set_flexible", 4096)
    did("set_quota", 3 << 30)
    did("edit_disks", [{"path": D0, "model": "nvme", "boot": True}])
    did("set_compression", D0, "lz4")
    did("attach_disk", {"path": D0, "size": 64, "uuid": "u"})
    did("set_autoboot", True)
    did("forget_disk", D1)
    assert sent == [
        {"update_disks": [{"path": D0, "size": 2048}]},
        {"update_disks": [{"path": D0, "size": 1024, "dangerous_allow_shrink": True}]},
        {"flexible_disk_size": 4096},
        {"quota": 3},
        {"update_disks": [{"path": D0, "model": "nvme", "boot": True}]},
        {"update_disks": [{"path": D0, "compression": "lz4"}]},
        {"add_disks": [{"path": D0, "size": 64, "uuid": "u", "nocreate": True, "media": "disk"}]},
        {"autoboot": True},
        {"remove_disks": [D1]},
    ]


CHANGES = [
    ("set_flexible", (4096,), vm(flexible_disk_size=4096)),
    ("edit_disks", ([{"path": D0, "pci_slot": "0:4:5"}],), vm(disks=[{"path": D0, "pci_slot": "0:4:5"}])),
    ("attach_disk", ({"path": D1, "size": 1, "uuid": "u"},), vm(disks=[{"path": D1, "uuid": "u"}])),
    ("forget_disk", (D1,), vm(disks=[])),
    ("set_autoboot", (True,), vm(autoboot=True)),
]
IDS = [c[0] for c in CHANGES]


@pytest.mark.parametrize(("method", "args", "after"), CHANGES, ids=IDS)
def test_exit_0_proves_nothing(method, args, after):
    """vmadm drops silently what it does not know."""
    getattr(Vmadm(Recorded(after)), method)(U, *args)
    with pytest.raises(FlexdiskError) as caught:
        getattr(Vmadm(Recorded(VM)), method)(U, *args)
    assert caught.value.code == "NotApplied"


@pytest.mark.parametrize(("method", "args", "after"), CHANGES, ids=IDS)
def test_a_time_out_of_vminfod_is_no_verdict(method, args, after):
    getattr(Vmadm(Recorded(after, rc=1, err=TIMEOUT)), method)(U, *args)
    with pytest.raises(FlexdiskError) as caught:
        getattr(Vmadm(Recorded(VM, rc=1, err=TIMEOUT)), method)(U, *args)
    assert caught.value.code == "NotApplied"
    assert "rc 1" in caught.value.message


@pytest.mark.parametrize(("method", "args", "after"), CHANGES, ids=IDS)
def test_other_failures_are_failures(method, args, after):
    with pytest.raises(FlexdiskError) as caught:
        getattr(Vmadm(Recorded(after, rc=1, err="out of space")), method)(U, *args)
    assert caught.value.code == "InsufficientSpace"


def test_a_vm_that_is_shown_as_something_else():
    recorded = Recorded(VM)
    recorded.commands["get"] = None

    def runner(argv, stdin="", timeout=300):
        return Answer(0, "not json", "") if argv[1] == "get" else Answer(0, "", "")

    with pytest.raises(FlexdiskError) as caught:
        Vmadm(runner).set_flexible(U, 1)
    assert caught.value.code == "UnexpectedOutput"


# -- power


def test_stopping():
    recorded = Recorded(VM)
    Vmadm(recorded).stop(U, 60, False)
    argv, _stdin, timeout = recorded.calls[0]
    assert (argv[:4], timeout) == (["vmadm", "stop", U, "-t"], 60)
    assert int(argv[4]) > 60, "vmadm must not halt the guest before we stop waiting"
    recorded = Recorded(VM)
    Vmadm(recorded).stop(U, 60, True)
    argv, _stdin, timeout = recorded.calls[0]
    assert (argv, timeout > 60) == (["vmadm", "stop", U, "-t", "60"], True)


def test_a_guest_that_does_not_shut_down():
    late = FlexdiskError("CommandTimeout", "late")
    with pytest.raises(FlexdiskError, match=r"stop_timeout=60 s.*allow_force_stop") as caught:
        Vmadm(Recorded(VM, stop=late)).stop(U, 60, False)
    assert caught.value.code == "VmNotStopped"
    other = FlexdiskError("CommandNotFound", "gone")
    with pytest.raises(FlexdiskError, match="gone"):
        Vmadm(Recorded(VM, stop=other)).stop(U, 60, False)


def test_states_are_read_back():
    """A stop of a VM that does not run, and a start of one that runs, end with 0 whatever the state is."""
    with pytest.raises(FlexdiskError, match="the VM is stopping") as caught:
        Vmadm(Recorded(vm(state="stopping"))).stop(U, 60, False)
    assert caught.value.code == "VmNotStopped"
    with pytest.raises(FlexdiskError, match="the VM is stopped") as caught:
        Vmadm(Recorded(VM)).start(U)
    assert caught.value.code == "VmNotStarted"
    Vmadm(Recorded(vm(state="running"))).start(U)


def test_one_process_for_all_vms():
    recorded = Recorded(VM, lookup=Answer(0, json.dumps([VM, vm(uuid=U[:-1] + "2")]), ""))
    assert len(Vmadm(recorded).vms()) == 2
    assert [argv for argv, _stdin, _timeout in recorded.calls] == [["vmadm", "lookup", "-j"]]


def test_not_root():
    denied = Answer(2, "", "FATAL: cannot run because: must be root\n")
    with pytest.raises(FlexdiskError) as caught:
        Vmadm(Recorded(VM, lookup=denied)).vms()
    assert caught.value.code == "NotPermitted"


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        ('[{"uuid": "a", "alias": "web", "nics": [{"mac": "2:8:20:AA:bb:1"}]}]', {"02:08:20:aa:bb:01": "web"}),
        ('[{"uuid": "a", "nics": [{"mac": "02:08:20:aa:bb:01"}, {"mac": 7}, 7]}, 7]', {"02:08:20:aa:bb:01": "a"}),
        ('[{"uuid": "own", "nics": [{"mac": "02:08:20:aa:bb:01"}]}, {"uuid": "b", "nics": 7}]', {}),
        ("7", {}),
        ("no JSON", {}),
    ],
)
def test_the_mac_addresses_of_other_vms(stdout, expected):
    """However they are written. What is malformed counts for nothing."""
    assert vmadm_read.taken_macs(stdout, "own") == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(0, "", ""), []),
        (Answer(1, "", "storage\n"), ["the network tag storage"]),
        (Answer(2, "", "storage\n"), []),
        (Answer(127, "", "nictagadm: not found\n"), []),
        (FlexdiskError("CommandNotFound", "nictagadm"), []),
    ],
)
def test_network_tags_that_the_host_lacks(answer, expected):
    """vmadm would refuse the VM. A host that does not tell lacks none; a text that is no tag never becomes a word."""
    asked = []

    def runner(argv, stdin="", timeout=0):
        if argv[0] == "vmadm":
            return Answer(0, "[]", "")
        asked.append(argv)
        if isinstance(answer, FlexdiskError):
            raise answer
        return answer

    nics = [
        {"mac": f"02:08:20:aa:bb:0{n}", "nic_tag": tag} for n, tag in enumerate(("storage", "admin", "-v", "o/7", 7))
    ]
    assert Vmadm(runner).lacks(U, {"options": {"nics": nics}}, []) == expected
    assert asked == [("nictagadm", "exists", "-l", "admin", "storage")]


@pytest.mark.parametrize(
    "printed",
    [
        *("", "[]", "null", "{}", '{"manifest": []}', '{"manifest": "x"}'),
        *('{"manifest": {"tags": []}}', '{"manifest": {"tags": null}}'),
    ],
)
def test_what_is_no_manifest_of_an_image(printed):
    with pytest.raises(FlexdiskError) as caught:
        vmadm_read.parse_manifest(printed)
    assert caught.value.code == "UnexpectedOutput"


@pytest.mark.parametrize("manifest", [{}, {"tags": {}}, {"tags": {"a": 1}, "image_size": 5}])
def test_the_manifest_of_an_image(manifest):
    assert vmadm_read.parse_manifest(json.dumps({"manifest": manifest})) == manifest
