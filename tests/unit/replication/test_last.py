# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The last transfer of a VM that moves: what is made ready, what is asked, and when the VM does not leave."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import lock
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves import vm_move
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves.replica_last import (
    LastTransfer,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves.vm_departure import MoveSource
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records, trust
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module_run import Call
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import last, room
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.streams import Full
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.transfers import (
    transfer_as_result,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import moves
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs import copies

from .test_move import begun, gone, guid, hosts, look, move, smartos, startable
from .world import REPLICAS, VM


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    return smartos(tmp_path, monkeypatch)


def stays(world, before):
    """The VM gets back what it had, and nothing of the move is left but replicas."""
    source, target = hosts(world)
    source.stay(VM)
    target.cancel(VM)
    assert (world.home.power(VM), world.hashes(), look(world)["move"]) == ("running", before, None)
    assert opened(world) == []


def opened(world):
    """The marks of the keys that may come in."""
    return [line.split()[-1] for line in world.authorized.read_text().splitlines()]


def test_what_is_let_in(world):
    """A key for each disk and one for the question, which can change nothing. After the move, none is left."""
    assert world.sync()[1]
    seen = look(world)
    hosts(world)[1].expect(seen["record"], "zones")
    announced, _keys = world.announced()
    assert not any(point.startswith("zones") for point in world.home.points(next(iter(world.disks().values()))))
    marks = {f"flexdisk-receive-{uuid}" for uuid in (VM, *world.disks())}
    assert set(opened(world)) == marks
    (asking,) = (line for line in world.authorized.read_text().splitlines() if line.endswith(VM))
    (command,) = re.findall(r'^restrict,expiry-time="\d{14}",command="([^"]*)"', asking)
    assert re.match(r"\S*zfs get -Hp -d 1 ", command)
    assert command.endswith(f" zones/flexdisk/move/{VM}")
    assert len({disk.key for disk in announced.disks} | {announced.asks}) == 3
    gone(world, seen)
    assert hosts(world)[1].arrive(VM, world.home_name)
    assert opened(world) == []
    assert not list(world.folder.glob(f"transfer-{VM}/*"))


def test_the_target_does_not_expect_the_vm_any_more(world):
    before = world.hashes()
    announced, _said = begun(world)
    hosts(world)[1].cancel(VM)
    world.authorized.write_text("")
    (vm, keys) = announced
    world.receiver().open([vm], [str(world.folder)])
    with pytest.raises(FlexdiskError, match=r"cannot report what it has: .*does not exist") as caught:
        world.last((vm, keys))
    assert caught.value.code == "TransferFailed"
    assert startable(world.home)
    hosts(world)[0].stay(VM)
    assert (world.home.power(VM), world.hashes()) == ("running", before)


def test_a_stream_that_breaks(world):
    """The VM stays. The next run goes on."""
    before = world.hashes()
    announced, _said = begun(world)
    world.cut = 100
    with pytest.raises(FlexdiskError) as caught:
        world.last(announced)
    assert caught.value.code == "TransferFailed"
    assert startable(world.home)
    world.cut = 0
    stays(world, before)
    assert move(world)
    assert not startable(world.home)


def test_keys_are_of_no_use_after_the_transfer(world):
    announced, _said = begun(world)
    world.last(announced)
    with pytest.raises(FlexdiskError):
        world.last(announced)
    assert not list(world.folder.glob(f"transfer-{VM}/*"))


def test_more_was_written_than_there_was_room_for(world, monkeypatch):
    """The room for the last set is that of the moment at which it is taken."""
    monkeypatch.setattr(room, "_SLACK", 1 << 20)
    assert world.sync()[1]
    seen = look(world)
    hosts(world)[1].expect(seen["record"], "zones")
    announced, _keys = world.announced()
    world.write(0, 99, 10)
    hosts(world)[0].leave(VM, world.home_name, world.peer_name, guid(world.peer), seen["digest"])
    with monkeypatch.context() as without:
        without.setattr(LastTransfer, "_make_room", lambda *_any: False)
        with pytest.raises(FlexdiskError, match="out of space"):
            LastTransfer(world.sender()).take(announced)
    taken = LastTransfer(world.sender()).take(announced)
    assert all(stream.to.guid for disk in taken.disks for stream in disk.sent)


def test_a_replica_that_is_not_what_the_sync_has_left(world):
    """Without the base there is a bookmark, from which no snapshots of users travel. The VM is not stopped."""
    assert world.sync()[1]
    dataset = next(iter(world.disks().values()))
    (base,) = world.home.points(dataset)
    world.home.ok("zfs", "destroy", f"{dataset}@{base}")
    with pytest.raises(FlexdiskError, match="is not what the sync has left; run the move again") as caught:
        world.announced()
    assert caught.value.code == "Changed"
    assert not list(world.folder.glob(f"transfer-{VM}/*"))


def test_what_goes_quickly(world):
    """One increment of each disk, from a snapshot to the set: from a bookmark no snapshots of users would travel."""
    vm, _asked = answers(world)
    last.check(vm)
    (stream,) = vm.disks[0].sent
    for streams in (
        (stream, stream),
        (),
        (replace(stream, base=stream.base._replace(bookmark=True)),),
        (replace(stream, to=stream.to._replace(name="other")),),
        (Full(stream.to),),
    ):
        with pytest.raises(FlexdiskError, match="is not what the sync has left") as caught:
            last.check(replace(vm, disks=(replace(vm.disks[0], streams=streams), *vm.disks[1:])))
        assert caught.value.code == "Changed"


def test_older_sets_go(world):
    """Where the VM was, one set is left of each disk, by which it can come back."""
    assert move(world)
    for uuid in (disk["uuid"] for disk in world.peer.disks(VM)):
        assert len(world.home.points(f"{REPLICAS}/{uuid}")) == 1
    for disk in world.peer.disks(VM):
        assert world.peer.points(disk["dataset"]) == []
        assert len(world.peer.points(disk["dataset"], "bookmark")) == 1
    assert not hosts(world)[0].tidy(VM)


def answers(world):
    """A last transfer that has come whole, and what the other host tells of it."""
    announced, _said = begun(world)
    asked = {}
    real = last.lacking

    def lacking(vm, reported, here):
        asked.update(vm=vm, told=reported)
        return real(vm, reported, here)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(last, "lacking", lacking)
        world.last(announced)
    return asked["vm"], asked["told"]


def test_what_the_other_host_must_tell(world):
    """Each thing that it does not tell keeps the VM here."""
    vm, reported = answers(world)
    assert last.lacking(vm, reported, "hv01") == ""
    assert last.lacking(vm, reported, "hv03") == "it does not expect the VM"
    assert last.lacking(replace(vm, home=vm.home + 1), reported, "hv01") == "it does not expect the VM"
    assert last.lacking(vm, {}, "hv01") == "it does not expect the VM"
    place, root = f"zones/flexdisk/move/{VM}", f"{REPLICAS}/{vm.disks[0].uuid}"
    move = moves.decode_at(place, reported[place]["flexdisk:move"][0])
    for other in (move._replace(phase="moved"), move._replace(back_to="flexdisk-sync-00000001-1")):
        changed = {**reported, place: {"flexdisk:move": (moves.encode(other), "local")}}
        assert last.lacking(vm, changed, "hv01") == "it does not expect the VM"
    inherited = {**reported, place: {"flexdisk:move": (moves.encode(move), "inherited from zones")}}
    assert last.lacking(vm, inherited, "hv01") == "it does not expect the VM"
    for name, prop, cell in (
        (root, "written", ("8192", "-")),
        (root, "receive_resume_token", ("1-abc-d-e", "-")),
        (root, "flexdisk:replica", (vm.disks[0].uuid, "received")),
        (root, "flexdisk:replica", (vm.disks[1].uuid, "local")),
        (f"{root}@{vm.set}", "guid", ("1", "-")),
    ):
        changed = {**reported, name: {**reported[name], prop: cell}}
        assert last.lacking(vm, changed, "hv01") == "it does not have everything of root", (name, prop)
        assert last.lacking(vm, {k: v for k, v in reported.items() if k != name}, "hv01"), name


@pytest.mark.parametrize("text", ["a\tb\n", "a\tguid\t1\t-\na\tguid\t1\t-\n"])
def test_an_answer_that_is_none(text):
    with pytest.raises(FlexdiskError) as caught:
        copies.rows(text)
    assert caught.value.code == "UnexpectedOutput"


def test_a_key_for_the_question_is_kept_with_those_of_the_disks(world):
    """So whoever gives the move up removes them all."""
    begun(world)
    assert len(list(world.folder.glob(f"transfer-{VM}/*"))) == 6
    trust.forget_keys(VM)
    assert not list(world.folder.glob(f"transfer-{VM}"))


def arguments(world, announced, **other):
    """Those of the step that leaves."""
    given = {
        "step": "leave", "vm": VM, "name": "hv01", "peer_name": "hv02", "digest": look(world)["digest"],
        "target_pool": None, "record": None, "variables": None, "transfer": transfer_as_result(announced),
        "address": "hv02", "port": 22, "host_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA"], "bandwidth_limit": None,
        "authorized_keys": "", "stop_timeout": 9, "allow_force_stop": True, "lock_timeout": 0,
        "incoming_allowed": [], "suspends": False, "allow_memory_loss": False, "memory": None,
    }  # fmt: skip
    return {**given, **other}


def ready(world):
    """A move that has come to the moment before the stop."""
    assert world.sync()[1]
    hosts(world)[1].expect(look(world)["record"], "zones")
    return world.announced()[0]


def test_others_do_not_wait_for_the_last_stream(world, monkeypatch):
    """While it is under way, only this VM is not replicated, and its host is not locked."""
    transfer = ready(world)
    world.folder.chmod(0o700)
    tried = []
    real = LastTransfer.send

    def send(self, *command):
        with lock.exclusive(type(world.home)(None, world.folder, world), None, 0, "another task"):
            tried.append("host")
        again = lock.transfers(world.home, [VM], "a sync")
        with pytest.raises(FlexdiskError, match="are being replicated by the move to hv02"), again:
            pass
        real(self, *command)

    monkeypatch.setattr(LastTransfer, "send", send)
    given, problems = vm_move.parse(arguments(world, transfer))
    assert not problems
    call = Call(world.home.zfs(), world.home.driver(), None, False, world.home)
    answer = vm_move.run(call, print, given)
    assert answer.result == {"changed": True, "msg": "the VM has left"}
    assert tried == ["host"]
    assert not startable(world.home)
    assert not world.home.inherited


def run(world, given):
    """What the module tells."""
    arguments_, problems = vm_move.parse(given)
    assert not problems
    return vm_move.run(Call(world.home.zfs(), world.home.driver(), None, False, world.home), print, arguments_)


def test_a_module_that_had_to_wait_does_not_stop_a_vm_whose_move_was_given_up(world):
    """Whoever has called it may have gone, so nobody would start the VM again."""
    transfer = ready(world)
    world.folder.chmod(0o700)
    given, states = arguments(world, transfer), []
    told_ = run(world, {**given, "step": "stay"}).result
    assert told_["changed"]
    assert told_["stayed"] > 0
    world.watch = lambda: states.append(world.home.power(VM))
    with pytest.raises(FlexdiskError, match="its move was given up") as caught:
        run(world, given)
    assert (caught.value.code, set(states)) == ("Changed", {"running"})


@pytest.mark.parametrize("how", ["keys", "stream", "room", "go"])
def test_a_last_transfer_that_fails_does_not_leave_the_vm_down(world, monkeypatch, how):
    """The module starts it itself: whoever has called it may have gone."""
    before, transfer, power = world.hashes(), ready(world), []
    world.folder.chmod(0o700)
    if how == "keys":
        trust.forget_keys(VM)
    if how in ("room", "go"):

        def full(*_any):
            raise FlexdiskError("InsufficientSpace", "no room")

        monkeypatch.setattr(*((LastTransfer, "take") if how == "room" else (MoveSource, "go")), full)
    world.cut = 100 if how == "stream" else 0
    world.watch = lambda: power.append(world.home.power(VM))
    with pytest.raises(FlexdiskError) as caught:
        run(world, arguments(world, transfer))
    assert caught.value.code == ("InsufficientSpace" if how in ("room", "go") else "TransferFailed")
    assert "stopped" in power
    world.watch, world.cut = lambda: None, 0
    assert (world.home.power(VM), world.hashes(), look(world)["move"]) == ("running", before, None)


class Taken:
    """The lock of a host that another task holds."""

    def __enter__(self):
        raise FlexdiskError("Locked", "another task of this host is running")

    def __exit__(self, *_any):
        pass


def test_a_vm_that_cannot_be_started_again_is_said_to_be_down(world, monkeypatch):
    """Another task of the host holds it, and goes on doing so."""
    transfer, took = ready(world), []
    world.folder.chmod(0o700)
    real = vm_move.module_locked

    def taken(*given):
        took.append(given)
        return real(*given) if len(took) == 1 else Taken()

    monkeypatch.setattr(vm_move, "module_locked", taken)
    with pytest.raises(FlexdiskError, match="could not be started again, and is down: another task") as caught:
        run(world, arguments(world, transfer))
    assert (caught.value.code, world.home.power(VM)) == ("Locked", "stopped")
    assert "flexdisk_move_state=stays" in caught.value.message
    monkeypatch.setattr(vm_move, "module_locked", real)
    assert run(world, {**arguments(world, transfer), "step": "stay"}).result["changed"]
    assert world.home.power(VM) == "running"


def test_what_is_no_last_transfer(world):
    transfer = ready(world)
    for other, text in (
        ({"vm": "db01"}, "is not a UUID"),
        ({"vm": "b" + VM[1:]}, "transfer is none that was announced for VM b"),
        ({"transfer": transfer_as_result(replace(transfer, asks=""))}, "transfer is none that was announced"),
        ({"host_keys": ["x"]}, "host_keys are not public keys"),
        ({"address": "-x"}, "address '-x' is neither"),
        ({"bandwidth_limit": "x"}, "bandwidth_limit"),
    ):
        _given, problems = vm_move.parse(arguments(world, transfer, **other))
        assert any(text in problem.message for problem in problems), (other, problems)
    streamless = replace(transfer, disks=tuple(replace(disk, streams=()) for disk in transfer.disks))
    with pytest.raises(FlexdiskError, match="is not what the sync has left"):
        vm_move.parse(arguments(world, streamless))
