# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command lines that reach zfs, and what its complaints mean."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs import devices, read
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import BACK_OFF, Zfs
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.errors import ZfsError, classify


class Recorded:
    """Answers in turn, the last one for ever; remembers what was run."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers) or [Answer(0, "", "")]
        self.calls: list[list[str]] = []
        self.waits: list[float] = []
        self.names: Iterator[str] = iter(())

    def __call__(self, argv, stdin="", timeout=300):
        self.calls.append(list(argv))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def zfs(self) -> Zfs:
        return Zfs(self, self.waits.append, lambda volume: next(self.names, ""))


BUSY = Answer(1, "", "cannot destroy 'zones/d': dataset is busy\n")
FINE = Answer(0, "", "")


@pytest.mark.parametrize(
    ("stderr", "code"),
    [
        ("cannot create 'zones/U/disk2': out of space", "InsufficientSpace"),
        ("cannot set property for 'zones/d': size is greater than available space", "InsufficientSpace"),
        ("cannot set property for 'zones/U': size is less than current used or reserved space", "InUse"),
        ("cannot open 'zones/x': dataset does not exist", "ResourceNotFound"),
        ("cannot open 'tank': no such pool", "ResourceNotFound"),
        ("could not find any snapshots to destroy; check snapshot names.", "ResourceNotFound"),
        (
            "cannot release hold from snapshot 'zones/d@s': no such tag on this dataset",
            "ResourceNotFound",
        ),
        ("cannot create 'zones/x': dataset already exists", "AlreadyExists"),
        ("cannot hold snapshot 'zones/d@s': tag already exists on this dataset", "AlreadyExists"),
        ("cannot destroy 'zones/d': dataset is busy", "Busy"),
        (
            "cannot destroy snapshot zones/d@s: it's being held. Run 'zfs holds -r zones/d@s' to see holders.\n"
            "cannot destroy 'zones/d': dataset already exists",
            "Held",
        ),
        (
            "cannot destroy 'zones/d': volume has dependent clones\nuse '-R' to destroy:\nzones/c",
            "HasClones",
        ),
        ("cannot destroy 'zones/d': volume has children\nuse '-r' to destroy", "HasChildren"),
        ("cannot rename 'zones/d': cannot move encrypted child outside of its encryption root", "EncryptionRoot"),
        ("cannot set property for 'zones/d': permission denied", "NotPermitted"),
        ("internal error: Operation not permitted", "NotPermitted"),
        ("cannot set property for 'zones/d': pool is read-only", "ReadOnly"),
        ("cannot open 'zones': pool I/O is currently suspended", "Suspended"),
        ("cannot open 'zones': pool is unavailable", "Suspended"),
        ("cannot iterate filesystems: I/O error", "Suspended"),
        ("'volsize' must be a multiple of volume block size (16K)", "InvalidArgument"),
        ("something new", "ZfsFailed"),
        ("", "ZfsFailed"),
    ],
)
def test_what_zfs_says(stderr, code):
    error = classify(("zfs", "set", "a=b", "zones/d"), 1, stderr + "\n")
    assert error.code == code
    assert error.message.endswith(" (rc 1 of: zfs set a=b zones/d)")
    assert error.message.startswith(stderr.strip() or "the command failed without a message")


@pytest.mark.parametrize("status", [1, 2, 255, -9])
def test_any_other_exit_status_is_a_failure(status):
    with pytest.raises(ZfsError):
        Recorded(Answer(status, "", "dataset does not exist")).zfs().set("zones/d", quota=1)


@pytest.mark.parametrize(("status", "code"), [(-9, "ZfsCrashed"), (137, "ZfsCrashed"), (255, "Busy"), (1, "Busy")])
def test_ended_by_a_signal(status, code):
    assert classify(("zfs", "set"), status, "dataset is busy").code == code


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"quota": 0, "reservation": 0}, "quota=none reservation=0"),  # zfs set takes no 0 as a limit
        ({"refquota": 0, "refreservation": 0}, "refquota=none refreservation=0"),
        ({"volsize": 5, "refreservation": 6}, "volsize=5 refreservation=6"),
        ({"quota": 7}, "quota=7"),
    ],
)
def test_a_limit_of_nothing_is_none(properties, message):
    recorded = Recorded(FINE)
    recorded.zfs().set("zones/d", **properties)
    assert recorded.calls == [["zfs", "set", *message.split(), "zones/d"]]


def test_a_set_that_was_half_applied_says_what_stuck():
    failed = Answer(1, "", "cannot set property for 'zones/U': out of space")
    recorded = Recorded(failed, Answer(0, "quota\t5\nreservation\t3\n", ""))
    with pytest.raises(
        ZfsError, match=r"out of space \(rc 1 of: zfs set quota=5 reservation=5 zones/U\); now quota=5, reservation=3$"
    ) as caught:
        recorded.zfs().set("zones/U", quota=5, reservation=5)
    assert caught.value.code == "InsufficientSpace"
    assert recorded.calls[1] == ["zfs", "get", "-Hpo", "property,value", "quota,reservation", "zones/U"]
    with pytest.raises(ZfsError, match=r"out of space \(rc 1 of: [^()]*\)$"):
        Recorded(failed).zfs().set("zones/U", quota=5, reservation=5)
    single = Recorded(failed)
    with pytest.raises(ZfsError, match=r"out of space \(rc 1 of: [^()]*\)$"):
        single.zfs().set("zones/U", quota=5)
    assert len(single.calls) == 1


def test_only_what_is_set_here_is_a_local_fact():
    rows = [("a", "1", "local"), ("b", "2", "received"), ("c", "3", "inherited from zones"), ("d", "-", "-")]
    text = "".join(f"zones/flexdisk\tflexdisk:{name}\t{value}\t{source}\n" for name, value, source in rows)
    recorded = Recorded(Answer(0, text, ""))
    assert recorded.zfs().local_facts("zones/flexdisk", list("abcd")) == {"a": "1"}
    columns = "name,property,value,source"
    assert recorded.calls == [
        ["zfs", "get", "-Hp", "-o", columns, "flexdisk:a,flexdisk:b,flexdisk:c,flexdisk:d", "zones/flexdisk"]
    ]
    for cut in ("", text[:-1], "".join(text.splitlines(True)[1:])):
        with pytest.raises(FlexdiskError, match="not whole"):
            Recorded(Answer(0, cut, "")).zfs().local_facts("zones/flexdisk", list("abcd"))


@pytest.mark.parametrize(
    ("out", "value"),
    [("1\tlocal\n", "1"), ("-\t-\n", ""), ("1\treceived\n", ""), ("1\tinherited from zones\n", ""),
     ("a\tb\nzones\tlocal\tlocal\n", "a\tb\nzones\tlocal")],
)  # fmt: skip
def test_one_local_fact_is_read_whole(out, value):
    recorded = Recorded(Answer(0, out, ""))
    assert recorded.zfs().local_fact("zones/flexdisk", "a") == value
    assert recorded.calls == [["zfs", "get", "-Hp", "-o", "value,source", "flexdisk:a", "zones/flexdisk"]]


def test_busy_is_tried_again_for_seconds():
    recorded = Recorded(BUSY, BUSY, FINE)
    recorded.zfs().destroy("zones/d")
    assert len(recorded.calls) == 3
    assert recorded.waits == list(BACK_OFF[:2])


def test_busy_for_ever_is_an_error():
    recorded = Recorded(BUSY)
    with pytest.raises(ZfsError) as caught:
        recorded.zfs().rename("zones/a", "zones/b")
    assert caught.value.code == "Busy"
    assert recorded.waits == list(BACK_OFF)


def detached(monkeypatch, *partitions: int) -> Recorded:
    """The calls of moving out a volume on whose device so many partitions are found, the last number for ever."""
    datasets = list(partitions)
    monkeypatch.setattr(devices, "partitions", lambda _device: datasets.pop(0) if len(datasets) > 1 else datasets[0])
    recorded = Recorded()
    recorded.zfs().move_out("zones/u/disk1", "zones/flexdisk/d")
    assert recorded.calls.pop(0) == ["zfs", "rename", "zones/u/disk1", "zones/flexdisk/d"]
    assert recorded.calls.pop(0) == ["zfs", "get", "-Ho", "value", "guid", "zones/flexdisk/d"]
    return recorded


def test_partitions_of_a_detached_volume_go_as_soon_as_nobody_has_it_open(monkeypatch):
    recorded = detached(monkeypatch, 2, 2, 0)
    assert recorded.calls == [["zfs", "set", "volmode=dev", "zones/flexdisk"]] * 2
    assert recorded.waits == list(BACK_OFF[:2])


def test_a_volume_without_partitions_is_only_renamed(monkeypatch):
    recorded = detached(monkeypatch, 0)
    assert (recorded.calls, recorded.waits) == ([], [])


def test_partitions_that_stay_are_no_failure(monkeypatch):
    assert len(detached(monkeypatch, 1).calls) == len(BACK_OFF)


def test_partitions_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "ZVOL", f"{tmp_path}/")
    for name in ("zd16", "zd16p1", "zd16p12", "zd160", "zd160p1"):
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("zd16")
    assert devices.partitions(devices.path("link")) == 2
    assert devices.partitions(devices.path("gone")) == 0


def test_other_errors_are_not_waited_for():
    recorded = Recorded(Answer(1, "", "dataset does not exist"))
    with pytest.raises(ZfsError):
        recorded.zfs().destroy("zones/d")
    assert recorded.waits == []


def test_command_lines():
    recorded = Recorded()
    zfs = recorded.zfs()
    zfs.set("zones/u", quota=5, reservation=5)
    zfs.set_facts("zones/d", {"name": "a b", "description": "-x %", "boot": "", "tags": ""})
    zfs.create_volume("zones/d", 64, {"volblocksize": "8192"}, {"uuid": "u", "tags": ""})
    zfs.clone("zones/i@final", "zones/d", {"compression": "lz4"}, {"uuid": "u"})
    zfs.create_container("zones/flexdisk")
    zfs.create_container("tank/flexdisk", volmode="dev")
    zfs.rename("zones/a", "zones/b")
    zfs.destroy("zones/b")
    zfs.destroy("zones/b@r", "s")
    zfs.rollback("zones/b@s")
    zfs.snapshot("zones/b@s")
    zfs.hold("t", "zones/b@s")
    zfs.release("t", "zones/b@s")
    assert [" ".join(call) for call in recorded.calls] == [
        "zfs set quota=5 reservation=5 zones/u",
        "zfs set flexdisk:name=a b flexdisk:description=-x % zones/d",
        "zfs inherit flexdisk:boot zones/d",
        "zfs inherit flexdisk:tags zones/d",
        "zfs create -o volblocksize=8192 -o flexdisk:uuid=u -V 64 zones/d",
        "zfs clone -o compression=lz4 -o flexdisk:uuid=u zones/i@final zones/d",
        "zfs create -o mountpoint=none -o canmount=off zones/flexdisk",
        "zfs create -o mountpoint=none -o canmount=off -o volmode=dev tank/flexdisk",
        "zfs rename zones/a zones/b",
        "zfs get -Ho value guid zones/b",
        "zfs destroy zones/b",
        "zfs destroy zones/b@r,s",
        "zfs rollback zones/b@s",
        "zfs snapshot zones/b@s",
        "zfs hold t zones/b@s",
        "zfs release t zones/b@s",
    ]


def test_no_facts_no_process():
    recorded = Recorded()
    recorded.zfs().set_facts("zones/d", {})
    assert recorded.calls == []


def test_the_forecast():
    out = "create\tzones/u/forecast\nproperty\tvolblocksize\t8192\nproperty\trefreservation\t70254592\n"
    recorded = Recorded(Answer(0, out, "warning: volblocksize (8192) is less than the default minimum"))
    assert recorded.zfs().forecast_reservation("zones/u", 67108864, 8192) == 70254592
    assert recorded.calls == [["zfs", "create", "-nP", "-o", "volblocksize=8192", "-V", "67108864", "zones/u/forecast"]]
    with pytest.raises(ZfsError, match="no refreservation"):
        Recorded(Answer(0, "create\tx\n", "")).zfs().forecast_reservation("zones/u", 1, 8192)
    with pytest.raises(ZfsError, match="no refreservation"):
        Recorded(Answer(0, "property\trefreservation\t-\n", "")).zfs().forecast_reservation("zones/u", 1, 8192)


def test_one_read_of_everything():
    values = dict.fromkeys(read.PROPERTIES, "-")
    text = "".join(
        f"{n}\t{p}\t{v}\t-\n" for n in ("tank", "zones") for p, v in {**values, "type": "filesystem"}.items()
    )
    recorded = Recorded(Answer(0, text, ""))
    assert [d.name for d in recorded.zfs().datasets("zones", "tank")] == ["tank", "zones"]
    recorded.zfs().datasets("zones", snapshots=False)
    whole, lean = recorded.calls
    assert whole[:7] == ["zfs", "get", "-Hpr", "-t", "filesystem,volume,snapshot", "-o", "name,property,value,source"]
    assert whole[-2:] == ["zones", "tank"]
    assert lean[4] == "filesystem,volume"
    assert "flexdisk:uuid" in whole[7].split(",")


def test_those_that_exist():
    recorded = Recorded(Answer(1, "zones/a\n", "cannot open 'zones/b': dataset does not exist"))
    assert recorded.zfs().existing(["zones/a", "zones/b", "-r", "zones/a@s"]) == ["zones/a"]
    assert recorded.calls == [["zfs", "list", "-Ho", "name", "-t", "filesystem,volume", "zones/a", "zones/b"]]
    assert recorded.zfs().existing([]) == []


def test_a_property_of_which_nothing_is_said():
    with pytest.raises(ZfsError, match="flexdisk:lease of zones") as caught:
        Recorded(Answer(0, "", "")).zfs().local_fact("zones", "lease")
    assert caught.value.code == "UnexpectedOutput"


def test_what_is_there():
    assert Recorded(Answer(0, "1\n", "")).zfs().exists("zones/d")
    assert not Recorded(Answer(1, "", "cannot open 'zones/d': dataset does not exist")).zfs().exists("zones/d")
    with pytest.raises(ZfsError):
        Recorded(Answer(1, "", "permission denied")).zfs().exists("zones/d")


def test_a_rename_waits_until_no_device_has_the_old_name():
    recorded = Recorded()
    recorded.names = iter(["zones/a", "zones/a", "zones/b"])
    recorded.zfs().rename("zones/a", "zones/b")
    assert [" ".join(call) for call in recorded.calls] == [
        "zfs rename zones/a zones/b",
        "zfs get -Ho value guid zones/b",
    ]
    assert recorded.waits == list(BACK_OFF[:2])


def test_a_rename_that_was_not_done_is_an_error():
    recorded = Recorded(FINE, Answer(1, "", "cannot open 'zones/b': dataset does not exist"))
    with pytest.raises(ZfsError, match="zones/a was not renamed to zones/b, although zfs reported no error") as caught:
        recorded.zfs().rename("zones/a", "zones/b")
    assert caught.value.code == "NotApplied"


def test_a_device_that_keeps_its_old_name_is_an_error():
    recorded = Recorded()
    recorded.names = itertools.repeat("zones/a")
    with pytest.raises(
        ZfsError, match=r"zones/a was renamed to zones/b, but its device still has the old name after 56 s"
    ):
        recorded.zfs().rename("zones/a", "zones/b")


# -- copies

SEND, RECEIVE = ["zfs", "send", "tank/a@s"], ["zfs", "receive", "-o", "flexdisk:uuid=u", "tank/b@t"]


def copied(first, second):
    asked = []

    def pipe(*both):
        asked.extend(map(list, both))
        return first, second

    Zfs(Recorded(), pipe=pipe).copy("tank/a@s", "tank/b@t", {"uuid": "u", "name": ""})
    return asked


def test_a_copy_has_its_identity_from_the_first_moment():
    assert copied(FINE, FINE) == [SEND, RECEIVE]


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (
            Answer(1, "", "warning: cannot send 'tank/a@s': Broken pipe\n"),
            Answer(1, "", "out of space"),
            "InsufficientSpace",
        ),
        (Answer(1, "", "cannot open 'tank/a@s': dataset does not exist"), FINE, "ResourceNotFound"),
    ],
)
def test_a_copy_fails_of_the_one_that_failed_first(first, second, code):
    with pytest.raises(ZfsError) as caught:
        copied(first, second)
    assert caught.value.code == code


def test_holds_are_read_by_their_tags():
    out = "tank/a@s\tbackup\tSun Nov 22 18:19 2026\ntank/a@s\tmy tag\tSun Nov 22 18:20 2026\n"
    assert Recorded(Answer(0, out, "")).zfs().holds("tank/a@s") == ["backup", "my tag"]
