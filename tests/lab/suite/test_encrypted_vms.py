# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM in an encrypted pool moves and fails over to one with another key, on real ZFS and SSH."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from harness import Lab
from pair import Both
from paired_vm import SIZES, VM, digest, hashes, lawful, lose_power, paired_vm, play, uuids, vmadm, volumes, write

pytestmark = pytest.mark.full
PASSPHRASE, OTHER = "the passphrase of the first", "the passphrase of the second"
REPLICAS = "zones/flexdisk/replica"
OF_VM = ("-e", "flexdisk_vm=db01")


@pytest.fixture
def both(lab: Lab, peer: Lab) -> Iterator[Both]:
    """A running VM whose disks have their key from the pool. The other pool has another one."""
    yield from paired_vm(lab, peer, (PASSPHRASE, OTHER))


def to(target: Lab) -> tuple[str, ...]:
    return (*OF_VM, "-e", f"flexdisk_target={target.name}")


def load(lab: Lab, dataset: str, passphrase: str = PASSPHRASE) -> str:
    """Load a key. What ZFS says if it does not fit."""
    done = lab.run(["zfs", "load-key", dataset], stdin=f"{passphrase}\n", check=False)
    assert (done.returncode == 0) == (not done.stderr), done
    return done.stderr


def refused(both: Both, playbook: str, *words: str, because: Sequence[str]) -> None:
    """The playbook gives these reasons."""
    printed = play(both, playbook, *words, status=2)
    assert [reason for reason in because if reason not in printed] == [], printed


def stored(lab: Lab) -> list[str]:
    """All that is in the pool, to compare it."""
    facts = "name,guid,written,encryptionroot,readonly,refreservation,flexdisk:replica,flexdisk:move"
    return lab.zfs("list", "-Hp", "-t", "all", "-o", facts).splitlines()


def roots(lab: Lab) -> list[str]:
    """The encryption roots of the VM's disks."""
    return [lab.get(f"zones/{VM}/disk{number}", "encryptionroot")["encryptionroot"] for number in range(len(SIZES))]


def test_a_move_to_another_key_and_back(lab: Lab, peer: Lab, both: Both) -> None:
    """Without the keys, with wrong ones, and with the right ones: only then the VM is stopped. What stays on the first
    machine has its key from above, and takes no raw stream. So it is given up and made again before the way back.
    """
    before, disks = vmadm(lab), uuids(lab)
    assert roots(lab) == ["zones"] * len(SIZES)
    play(both, "replicate")
    replicas = [f"{REPLICAS}/{uuid}" for uuid in disks]
    there = stored(peer)
    locked = [f"the key of {replica} is not loaded; zfs load-key {replica} loads it" for replica in replicas]
    refused(both, "move_vm", *to(peer), "--check", because=locked)
    assert "Incorrect key" in load(peer, replicas[0], OTHER)
    refused(both, "move_vm", *to(peer), because=locked)
    assert (vmadm(lab), stored(peer)) == (before, there)
    for replica in replicas:
        assert load(peer, replica) == ""
    write(lab, 0, 3, 20)
    contents = hashes(lab)
    play(both, "move_vm", *to(peer))
    assert (vmadm(lab), hashes(peer)) == ({}, contents)
    assert roots(peer) == [f"zones/{VM}/disk{number}" for number in range(len(SIZES))]
    after = vmadm(peer)
    for key in ("state", "autoboot", "customer_metadata", "flexible_disk_size"):
        assert after[key] == before[key], key
    lawful(peer)

    refused(both, "move_vm", *to(lab), because=["has its key from zones, which does not open what"])
    replicate = (*OF_VM, "-e", f"flexdisk_replica_host={lab.name}")
    play(both, "replicate", *replicate, "-e", "flexdisk_replica_state=absent")
    play(both, "replicate", *replicate)
    for replica in replicas:
        assert load(lab, replica) == ""
    write(peer, 1, 3, 9)
    contents = hashes(peer)
    play(both, "move_vm", *to(lab))
    assert (vmadm(peer), hashes(lab)) == ({}, contents)


def test_a_takeover_without_and_with_the_keys(lab: Lab, peer: Lab, both: Both) -> None:
    """Without them nothing is touched. The old home boots without its own key, and gives the VM up when it has it."""
    play(both, "replicate", "-e", "flexdisk_failover=true")
    contents, disks = hashes(lab), uuids(lab)
    write(lab, 1, 40, 9)
    lost = hashes(lab)[1]
    lose_power(lab)
    assert lab.get("zones", "keystatus") == {"keystatus": "unavailable"}
    both.hide(lab.name)
    takeover = (*to(peer), "-e", "flexdisk_fenced=true", "-e", "flexdisk_max_data_loss=3600")
    there = stored(peer)
    locked = [f"zfs load-key {REPLICAS}/{uuid} loads it" for uuid in disks]
    refused(both, "failover_vm", *takeover, "--check", because=locked)
    refused(both, "failover_vm", *takeover, because=locked)
    assert (vmadm(peer), stored(peer)) == ({}, there)
    for uuid in disks:
        assert load(peer, f"{REPLICAS}/{uuid}") == ""
    play(both, "failover_vm", *takeover)
    assert (vmadm(peer)["state"], hashes(peer)) == ("running", contents)
    lawful(peer)

    both.hide("")
    assert f"{peer.name} has taken it over" in play(both, "start_host", "--limit", lab.name)
    returned = (*OF_VM, "-e", "flexdisk_failover_state=returned")
    refused(both, "failover_vm", *returned, because=["the key of zones is not loaded; zfs load-key zones loads it"])
    assert vmadm(lab)["state"] == "stopped"
    assert load(lab, "zones") == ""
    play(both, "failover_vm", *returned)
    assert vmadm(lab) == {}
    assert digest(lab, f"zones/flexdisk/diverged/{disks[1]}") == lost
    play(both, "failover_vm", *OF_VM, "-e", "flexdisk_failover_state=given_up")
    assert sorted(volumes(lab)) == sorted(f"{REPLICAS}/{uuid}" for uuid in disks)
