# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The zfs and zpool command lines: all reads and changes of the storage. One change per call, only argv lists."""

from __future__ import annotations

import re
import time
import typing as t

from ..model.command import Pipe, Runner
from ..model.dataset import Dataset
from ..model.errors import FlexdiskError
from ..rules.identity import PREFIX
from ..rules.reservation import PoolGeometry
from . import devices, errors, read
from .files import Files

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.: -]*(/[A-Za-z0-9_.:-][A-Za-z0-9_.: -]*)*")
_QUOTAS = ("quota", "refquota")
BACK_OFF = (0.2, 0.4, 0.8, 1.6, 3.2)
DEVICES_LAG = (*BACK_OFF, *[5.0] * 10)


class Zfs:
    """The storage of one host. Every method raises ZfsError with the command and its message."""

    def __init__(
        self,
        runner: Runner,
        pause: t.Callable[[float], None] = time.sleep,
        called: t.Callable[[str], str] = devices.called,
        files: t.Optional[Files] = None,
        pipe: t.Optional[Pipe] = None,
    ) -> None:
        self.files = files or Files()
        self._runner = runner
        self._pipe = pipe
        self._pause = pause
        self._called = called

    def _run(self, *argv: str) -> str:
        answer = self._runner(argv)
        if answer.rc != 0:
            raise errors.classify(argv, answer.rc, answer.stderr)
        return answer.stdout

    def _patiently(self, *argv: str) -> None:
        """Run a command that fails while udev or LVM has a volume open, and repeat it. They close it within seconds."""
        for seconds in BACK_OFF:
            try:
                self._run(*argv)
                return
            except errors.ZfsError as exc:
                if exc.code != "Busy":
                    raise
            self._pause(seconds)
        self._run(*argv)

    def datasets(self, *names: str, snapshots: bool = True) -> t.List[Dataset]:
        """Return everything at and below the named datasets, by one process."""
        out = self._run(
            "zfs",
            "get",
            "-Hpr",
            "-t",
            "filesystem,volume,snapshot" if snapshots else "filesystem,volume",
            "-o",
            "name,property,value,source",
            ",".join(read.PROPERTIES),
            *names,
        )
        read.check_whole(out, names, read.PROPERTIES)
        return read.parse_get(out)

    def existing(self, names: t.Sequence[str]) -> t.List[str]:
        """Return those of the names that exist. One process, none without names."""
        names = [name for name in names if _NAME.fullmatch(name)]
        out = self._runner(("zfs", "list", "-Ho", "name", "-t", "filesystem,volume", *names)).stdout if names else ""
        return [line for line in out.split("\n") if line in names]

    def local_facts(self, name: str, facts: t.Sequence[str] = ()) -> t.Mapping[str, str]:
        """Return our properties that each dataset has itself, not inherited nor received; all of them without names."""
        names = [PREFIX + fact for fact in dict.fromkeys(facts)]
        columns = ("-o", "name,property,value,source")
        if not names:
            datasets = read.parse_get(self._run("zfs", "get", "-Hp", "-s", "local", *columns, "all", name))
            return datasets[0].user if datasets else {}
        # Without -s each is printed, set or not: one that was cut off is not one that is not there.
        out = self._run("zfs", "get", "-Hp", *columns, ",".join(names), name)
        read.check_whole(out, [name], names)
        (dataset,) = read.parse_get(out)
        return {fact: value for fact, value in dataset.user.items() if fact not in dataset.received}

    def local_fact(self, name: str, fact: str) -> str:
        """Return one of our properties of this dataset itself, "" for none. It may contain tabs and newlines."""
        out = self._run("zfs", "get", "-Hp", "-o", "value,source", PREFIX + fact, name)
        value, _tab, source = out.rpartition("\t")
        if source[-1:] != "\n":
            raise errors.ZfsError("UnexpectedOutput", f"zfs get printed {out!r:.100} of {PREFIX}{fact} of {name}")
        return value if source.rstrip("\n") == "local" else ""

    def properties(self, *names: str) -> t.Dict[str, t.Dict[str, t.Tuple[str, str]]]:
        """Return value and source of every property of these datasets, by name; user properties too."""
        result: t.Dict[str, t.Dict[str, t.Tuple[str, str]]] = {name: {} for name in names}
        out = self._run("zfs", "get", "-Hp", "-o", "name,property,value,source", "all", *names)
        try:
            for name, prop, value, source in read.cells(out):
                if prop in result[name]:
                    raise KeyError(prop)
                result[name][prop] = (value, source)
        except (FlexdiskError, KeyError) as exc:
            text = f"a property of {' or '.join(names)} holds a tab or a newline, so what is there cannot be told"
            raise errors.ZfsError("UnexpectedOutput", f"{text}: {exc}") from exc
        return result

    def tops(self) -> t.List[str]:
        """Return the names of all pools, and of the file systems right below them."""
        return [dataset.name for dataset in self._tops("type")]

    def top_guids(self) -> t.Dict[str, int]:
        """Return the guids of all pools, and of the file systems right below them, by their names."""
        return {dataset.name: dataset.guid for dataset in self._tops("type,guid")}

    def top_keys(self) -> t.Dict[str, Dataset]:
        """Return all pools, and the file systems right below them, by their names, with what is known of their keys."""
        return {dataset.name: dataset for dataset in self._tops("type,encryptionroot,keystatus,keylocation")}

    def _tops(self, properties: str) -> t.List[Dataset]:
        options = ("-Hp", "-d", "1", "-t", "filesystem", "-o", "name,property,value,source")
        out = self._run("zfs", "get", *options, properties)
        read.check_whole(out, (), tuple(properties.split(",")))
        return read.parse_get(out)

    def exists(self, name: str) -> bool:
        """Whether there is a dataset of this name."""
        try:
            self._run("zfs", "get", "-Ho", "value", "guid", name)
        except errors.ZfsError as exc:
            if exc.code != "ResourceNotFound":
                raise
            return False
        return True

    def geometries(self, pools: t.Sequence[str], datasets: t.Sequence[Dataset]) -> t.Dict[str, PoolGeometry]:
        """Return the layout of the pools. One process, and one for each pool whose sizes depend on its sectors."""
        vdevs_of = read.parse_status(self._run("zpool", "status", *pools))
        result = {}
        for pool in pools:
            vdevs = vdevs_of.get(pool, ())
            if read.needs_ashift(vdevs):
                vdevs = read.with_ashift(vdevs, self._run("zdb", "-C", pool))
            result[pool] = read.geometry(vdevs, (d for d in datasets if d.pool == pool))
        return result

    def forecast_reservation(self, parent: str, volsize: int, volblocksize: int) -> int:
        """Return what ZFS itself would reserve for a new volume, by C(zfs create -nPV), which changes nothing."""
        out = self._run(
            "zfs", "create", "-nP", "-o", f"volblocksize={volblocksize}", "-V", str(volsize), parent + "/forecast"
        )
        for line in out.splitlines():
            fields = line.split("\t")
            if fields[:2] == ["property", "refreservation"] and re.fullmatch("[0-9]{1,20}", fields[-1]):
                return int(fields[-1])
        raise errors.ZfsError("UnexpectedOutput", f"zfs create -nPV printed no refreservation: {out!r}")

    def set(self, name: str, *more: str, **properties: t.Union[int, str]) -> None:
        """Set native properties. Only volsize with refreservation, or quota with reservation, may share a call.

        more: further datasets. A quota of 0 means none, as zfs get shows it; zfs set accepts only the word none.
        """
        pairs = [f"{key}={'none' if key in _QUOTAS and not value else value}" for key, value in properties.items()]
        try:
            self._run("zfs", "set", *pairs, name, *more)
        except errors.ZfsError as exc:
            if len(properties) > 1:
                exc = errors.ZfsError(exc.code, exc.message + self._stuck(name, properties))
            raise exc from None

    def _stuck(self, name: str, properties: t.Iterable[str]) -> str:
        """Return what a failed C(zfs set) of several properties has changed, because it is not atomic."""
        try:
            out = self._run("zfs", "get", "-Hpo", "property,value", ",".join(properties), name)
        except errors.ZfsError:
            return ""
        return "; now %s" % ", ".join(line.replace("\t", "=") for line in out.splitlines())

    def set_facts(self, names: t.Union[str, t.Sequence[str]], facts: t.Mapping[str, str]) -> None:
        """Set our own properties of datasets or snapshots in one call. An empty value removes the property."""
        names = [names] if isinstance(names, str) else names
        present = [f"{PREFIX}{key}={value}" for key, value in facts.items() if value]
        if present and names:
            self._run("zfs", "set", *present, *names)
        for key, value in facts.items():
            if not value and names:
                self._run("zfs", "inherit", PREFIX + key, *names)

    def inherit(self, names: t.Union[str, t.Sequence[str]], *properties: str) -> None:
        """Set native properties back to those of the datasets above."""
        names = [names] if isinstance(names, str) else names
        for prop in properties if names else ():
            self._run("zfs", "inherit", prop, *names)

    def create_volume(
        self,
        name: str,
        volsize: int,
        options: t.Mapping[str, str],
        facts: t.Mapping[str, str],
        sparse: bool = False,
    ) -> None:
        """Create a volume together with its identity. options are native properties; sparse: without a reservation."""
        flags = ["-s"] if sparse else []
        self._run("zfs", "create", *flags, *_options(options, facts), "-V", str(volsize), name)

    def clone(self, snapshot: str, name: str, options: t.Mapping[str, str], facts: t.Mapping[str, str]) -> None:
        """Create a clone without a reservation. Another call sets its size, as a failed clone is not removed."""
        self._run("zfs", "clone", *_options(options, facts), snapshot, name)

    def create_filesystem(self, name: str, options: t.Mapping[str, str], facts: t.Mapping[str, str]) -> None:
        """Create the dataset of a VM together with its quotas and our properties."""
        self._run("zfs", "create", *_options(options, facts), name)

    def create_container(self, name: str, **properties: str) -> None:
        """Create a file system that only holds disks."""
        options = _options({"mountpoint": "none", "canmount": "off", **properties}, {})
        self._run("zfs", "create", *options, name)

    def rename(self, source: str, target: str) -> None:
        """Rename a dataset, and wait until no device has the old name, which another volume may get next.

        A later step may destroy what has the old name, so the new one is verified. Raises ZfsError NotApplied.
        """
        self._patiently("zfs", "rename", source, target)
        if not self.exists(target):
            raise errors.ZfsError("NotApplied", f"{source} was not renamed to {target}, although zfs reported no error")
        for seconds in DEVICES_LAG:
            if self._called(source) != source:
                return
            self._pause(seconds)
        raise errors.ZfsError(
            "DeviceLags",
            f"{source} was renamed to {target}, but its device still has the old name after {int(sum(DEVICES_LAG))} s",
        )

    def move_out(self, volume: str, target: str) -> None:
        """Rename a volume, and remove the devices of its partitions.

        These stay until C(volmode) is set while nobody, udev included, has the volume open.
        """
        device = devices.path(volume)
        self.rename(volume, target)
        for seconds in BACK_OFF:
            if not devices.partitions(device):
                return
            self._run("zfs", "set", "volmode=dev", target.rpartition("/")[0])
            self._pause(seconds)

    def await_device(self, volume: str) -> None:
        """Wait until the volume has a device of its name."""
        for seconds in DEVICES_LAG:
            if self._called(volume) == volume:
                return
            self._pause(seconds)
        raise errors.ZfsError("DeviceLags", f"{volume} still has no device after {int(sum(DEVICES_LAG))} s")

    def mount(self, name: str) -> None:
        """Mount a file system."""
        self._run("zfs", "mount", name)

    def snapshot(self, *names: str, recursive: bool = False) -> None:
        """Take snapshots at one moment. recursive: also of all datasets below."""
        self._run("zfs", "snapshot", *(["-r"] if recursive else []), *names)

    def rollback(self, snapshot: str) -> None:
        """Roll a dataset back to its newest snapshot. ZFS refuses any other, and newer bookmarks."""
        self._patiently("zfs", "rollback", snapshot)

    def bookmarks(self, *names: str) -> t.Dict[str, int]:
        """Return the bookmarks of these datasets, with their transaction groups."""
        options = ("-Hp", "-d", "1", "-t", "bookmark", "-o", "name,property,value,source")
        lines = read.cells(self._run("zfs", "get", *options, "createtxg", *names))
        return {name: int(value) for name, _prop, value, _source in lines}

    def destroy(self, name: str, *more: str) -> None:
        """Destroy a dataset, a snapshot or a bookmark. ZFS refuses a dataset with snapshots.

        more: short names of further snapshots of the same dataset, destroyed together or not at all. tests/unit/doors
        says who may call this.
        """
        self._patiently("zfs", "destroy", ",".join((name, *more)))

    def copy(self, snapshot: str, name: str, facts: t.Mapping[str, str]) -> None:
        """Copy a snapshot to a new sparse volume, which appears when it is complete. name: C(VOLUME@SNAPSHOT)."""
        options = [word for key, value in facts.items() if value for word in ("-o", f"{PREFIX}{key}={value}")]
        send, receive = ("zfs", "send", snapshot), ("zfs", "receive", *options, name)
        answers = t.cast(Pipe, self._pipe)(send, receive)
        # The sender fails of the receiver, too.
        for argv, answer in zip((receive, send), answers[::-1]):
            if answer.rc != 0:
                raise errors.classify(argv, answer.rc, answer.stderr)

    def holds(self, snapshot: str) -> t.List[str]:
        """Return the tags that hold a snapshot."""
        lines = self._run("zfs", "holds", "-H", snapshot).splitlines()
        return [line.split("\t")[1] for line in lines if line.count("\t") >= 2]

    def hold(self, tag: str, *snapshots: str) -> None:
        """Hold snapshots, so that nobody can destroy them."""
        self._run("zfs", "hold", tag, *snapshots)

    def release(self, tag: str, *snapshots: str) -> None:
        """Release holds."""
        self._run("zfs", "release", tag, *snapshots)


def _options(options: t.Mapping[str, str], facts: t.Mapping[str, str]) -> t.List[str]:
    pairs = ["%s=%s" % item for item in options.items()]
    pairs += [f"{PREFIX}{key}={value}" for key, value in facts.items() if value]
    return [word for pair in pairs for word in ("-o", pair)]
