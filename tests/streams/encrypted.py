# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts about raw streams of encrypted disks, on which their replicas are built.

Measured on OpenZFS 2.1.11, between two machines.
"""

from __future__ import annotations

from .pair import Done, Host, Pair

REPLICA = "-s -u -o readonly=on -o volmode=none -o test:role=replica -x refreservation"
PASSPHRASE, OTHER = "first passphrase", "second passphrase"
ENCRYPTED = ("-o", "encryption=on", "-o", "keyformat=passphrase", "-o", "mountpoint=none")


def root(host: Host, name: str, passphrase: str = PASSPHRASE) -> None:
    """A file system that is an encryption root."""
    done = host.run_with(passphrase + "\n", "zfs", "create", *ENCRYPTED, name)
    assert done.rc == 0, done


def secret(pair: Pair, name: str) -> str:
    """A volume with data and a snapshot, below an encryption root of the source. Its name."""
    root(pair.source, name)
    volume = f"{name}/disk"
    pair.source.zfs("create", "-V", "64M", volume)
    pair.source.write(volume, 0, 12, "first")
    pair.source.zfs("snapshot", f"{volume}@1")
    return volume


def more(pair: Pair, volume: str, short: str, mib: int = 4) -> None:
    pair.source.write(volume, 2, mib, short)
    pair.source.zfs("snapshot", f"{volume}@{short}")


def key(host: Host, command: str, name: str, passphrase: str = PASSPHRASE) -> str:
    """What load-key or change-key says; nothing if it succeeds."""
    done = host.run_with(f"{passphrase}\n" * 2, "zfs", *command.split(), name)
    assert (done.rc == 0) == (not done.stderr), done
    return done.stderr


def opened(host: Host, name: str, passphrase: str = PASSPHRASE) -> str:
    """The digest of a replica, whose key is loaded for that only."""
    assert key(host, "load-key", name, passphrase) == ""
    try:
        return host.digest(name)
    finally:
        host.zfs("unload-key", name)


def raw_replica(pair: Pair, here: str, there: str) -> None:
    """It is an encryption root of its own, of which nobody has loaded the key. All that a sync does needs none. A raw
    stream follows only the newest snapshot, even if nothing is in a newer one.
    """
    volume, target = secret(pair, here), pair.target
    pair.sent(f"-w {volume}@1", f"{REPLICA} {there}")
    assert target.get(there, "encryptionroot") == there
    facts = {prop: target.get(there, prop) for prop in ("keystatus", "keylocation", "keyformat", "volsize", "written")}
    expected = {"keystatus": "unavailable", "keylocation": "prompt", "keyformat": "passphrase"}
    assert facts == {**expected, "volsize": str(64 << 20), "written": "0"}
    assert (target.get(there, "readonly"), target.source(there, "test:role")) == ("on", "local")
    assert target.get(f"{there}@1", "guid") == pair.source.get(f"{volume}@1", "guid")
    target.zfs("set", "refreservation=auto", there)
    target.zfs("set", "test:role=other", there)
    target.zfs("hold", "tag", f"{there}@1")
    target.zfs("snapshot", f"{there}@others")
    more(pair, volume, "2")
    assert "has been modified" in pair.refused(f"-w -i @1 {volume}@2", f"-s -u {there}")
    target.zfs("destroy", f"{there}@others")
    pair.sent(f"-w -i @1 {volume}@2", f"-s -u {there}")
    target.zfs("rollback", f"{there}@2")
    target.zfs("release", "tag", f"{there}@1")
    target.zfs("destroy", f"{there}@1")
    target.zfs("rename", there, f"{there}-moved")
    assert target.get(f"{there}-moved", "written") == "0"
    assert opened(target, f"{there}-moved") == pair.source.digest(volume)


def raw_below_another_root(pair: Pair, here: str, there: str) -> None:
    """A replica below another encryption root is one of its own, too, and may leave it, locked or not."""
    volume, target = secret(pair, here), pair.target
    root(target, f"{there}-other", OTHER)
    pair.sent(f"-w {volume}@1", f"{REPLICA} {there}-other/disk")
    assert target.get(f"{there}-other/disk", "encryptionroot") == f"{there}-other/disk"
    target.zfs("rename", f"{there}-other/disk", f"{there}-disk")
    assert key(target, "load-key", f"{there}-disk") == ""
    target.zfs("rename", f"{there}-disk", f"{there}-other/disk")
    assert target.get(f"{there}-other/disk", "keystatus") == "available"
    assert target.digest(f"{there}-other/disk") == pair.source.digest(volume)


def raw_without_keys(pair: Pair, here: str, there: str) -> None:
    """Neither side needs a key, from a snapshot, from a bookmark, with all snapshots between, nor for the rest of a
    stream, whose token says that it is raw.
    """
    volume = secret(pair, here)
    pair.sent(f"-w {volume}@1", f"{REPLICA} {there}")
    pair.source.zfs("bookmark", f"{volume}@1", f"{volume}#1")
    for short in ("2", "3", "4", "5"):
        more(pair, volume, short, 9 if short == "5" else 2)
    before = pair.source.digest(volume)
    pair.source.zfs("destroy", f"{volume}@1")
    pair.source.zfs("unload-key", here)
    assert "key must be loaded" in pair.refused(f"{volume}@2", f"-u {there}-plain")
    pair.sent(f"-w -i #1 {volume}@2", f"-s -u {there}")
    pair.sent(f"-w -I @2 {volume}@4", f"-s -u {there}")
    assert "zfs send -t" in pair.refused(f"-w -i @4 {volume}@5", f"-s -u {there}", 3 << 20)
    pair.sent(f"-t {pair.target.token(there)}", f"-s -u {there}")
    assert pair.target.snapshots(there) == ["1", "2", "3", "4", "5"]
    assert opened(pair.target, there) == before


def raw_and_plain_do_not_mix(pair: Pair, here: str, there: str) -> None:
    """An unencrypted copy takes no raw stream. A locked replica takes no plain one. If its key is loaded it does, and
    then it takes no raw one any more.
    """
    volume = secret(pair, here)
    pair.sent(f"{volume}@1", f"-u {there}-plain")
    assert pair.target.get(f"{there}-plain", "encryption") == "off"
    pair.sent(f"-w {volume}@1", f"{REPLICA} {there}")
    more(pair, volume, "2")
    more(pair, volume, "3")
    assert "raw receive on top of existing unencrypted" in pair.refused(f"-w -i @1 {volume}@2", f"-u {there}-plain")
    assert "key must be loaded" in pair.refused(f"-i @1 {volume}@2", f"-s -u {there}")
    assert key(pair.target, "load-key", there) == ""
    pair.sent(f"-i @1 {volume}@2", f"-u {there}")
    assert "IV set guid mismatch" in pair.refused(f"-w -i @2 {volume}@3", f"-u {there}")


def wrong_and_changed_keys(pair: Pair, here: str, there: str) -> None:
    """Another passphrase opens nothing. One that is changed on the source comes with the next stream."""
    volume, target = secret(pair, here), pair.target
    pair.sent(f"-w {volume}@1", f"{REPLICA} {there}")
    assert "Incorrect key" in key(target, "load-key", there, OTHER)
    assert target.get(there, "keystatus") == "unavailable"
    assert key(target, "load-key -n", there) == ""
    assert target.get(there, "keystatus") == "unavailable"
    missing = target.run("zfs", "load-key", "-L", "file:///nowhere/key", there)
    assert "No such file" in missing.stderr
    more(pair, volume, "2")
    assert key(pair.source, "change-key", here, OTHER) == ""
    assert key(target, "load-key -n", there) == ""
    pair.sent(f"-w -i @1 {volume}@2", f"-s -u {there}")
    assert "Incorrect key" in key(target, "load-key -n", there)
    assert opened(target, there, OTHER) == pair.source.digest(volume)


def the_way_back(pair: Pair, here: str, there: str) -> None:
    """A replica that was opened and written to sends raw streams back to its former source: to a copy that is an
    encryption root of its own, whatever its key was changed to.
    """
    volume, target = secret(pair, here), pair.target
    pair.sent(f"-w {volume}@1", f"-s -u -o readonly=on {there}")
    back = Reverse(pair)
    back.sent(f"-w {there}@1", f"{REPLICA} {here}-copy")
    assert key(target, "load-key", there) == ""
    target.zfs("set", "readonly=off", there)
    target.write(there, 7, 3, "elsewhere")
    assert key(target, "change-key", there, OTHER) == ""
    target.zfs("snapshot", f"{there}@2")
    back.sent(f"-w -i @1 {there}@2", f"-s -u {here}-copy")
    assert opened(pair.source, f"{here}-copy", OTHER) == target.digest(there)


def a_raw_stream_below_a_foreign_key(pair: Pair, here: str, there: str) -> None:
    """ZFS receives a raw stream into a dataset that has the key of what is above it. The key that comes is another
    one: ZFS says that it is available, but neither reads nor sends the dataset any more. It sends it raw, and the
    passphrase of the source does not open what comes.
    """
    volume, target = secret(pair, here), pair.target
    root(target, f"{there}-other", OTHER)
    inside = f"{there}-other/disk"
    pair.sent(f"-w {volume}@1", f"-s -u -o readonly=on {inside}")
    assert key(target, "load-key", inside) == ""
    target.zfs("change-key", "-i", inside)
    assert target.get(inside, "encryptionroot") == f"{there}-other"
    more(pair, volume, "2")
    pair.sent(f"-w -i @1 {volume}@2", f"-s -u {inside}")
    target.zfs("unload-key", f"{there}-other")
    assert key(target, "load-key", f"{there}-other", OTHER) == ""
    assert target.get(inside, "keystatus") == "available"
    for short in ("1", "2"):
        assert "dataset key must be loaded" in target.refused("send", f"{inside}@{short}")
    Reverse(pair).sent(f"-w {inside}@2", f"{REPLICA} {here}-rescued")
    for passphrase in (PASSPHRASE, OTHER):
        assert "Incorrect key" in key(pair.source, "load-key", f"{here}-rescued", passphrase)


def below_a_locked_root(pair: Pair, here: str, there: str) -> None:
    """Nothing is made below an encryption root whose key is not loaded, and no plain stream begins there. Raw ones do,
    and what is there is renamed, rolled back and destroyed.
    """
    volume, target = secret(pair, here), pair.target
    root(target, there, OTHER)
    target.zfs("create", "-V", "64M", f"{there}/disk")
    target.zfs("snapshot", f"{there}/disk@1")
    target.zfs("snapshot", f"{there}/disk@2")
    target.zfs("unload-key", there)
    refusal = "encryption root's key is not loaded or provided"
    for words in (("-o", "mountpoint=none"), ("-V", "64M")):
        assert refusal in target.refused("create", *words, f"{there}/new")
    assert "inherited key must be loaded" in pair.refused(f"{volume}@1", f"-s -u {there}/new")
    pair.sent(f"-w {volume}@1", f"{REPLICA} {there}/new")
    target.zfs("rename", f"{there}/disk", f"{there}/renamed")
    target.zfs("rollback", "-r", f"{there}/renamed@1")
    target.zfs("snapshot", f"{there}/renamed@3")
    target.zfs("destroy", "-r", f"{there}/renamed")


class Reverse(Pair):
    """The same hosts in the other direction."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.source, self.target = pair.target, pair.source

    def pipe(self, send: list[str], receive: list[str], cut: int) -> Done:
        return self.pair.pipe_back(send, receive, cut)

    def pipe_back(self, send: list[str], receive: list[str], cut: int) -> Done:
        return self.pair.pipe(send, receive, cut)


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        raw_replica, raw_below_another_root, raw_without_keys, raw_and_plain_do_not_mix, wrong_and_changed_keys,
        the_way_back, a_raw_stream_below_a_foreign_key, below_a_locked_root,
    )
}  # fmt: skip
