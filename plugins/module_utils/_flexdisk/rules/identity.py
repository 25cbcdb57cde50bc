# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The identity of a disk in user properties of its volume: encoding, and validation of what is read.

Anybody may have written these properties. Invalid values are dropped, and a property alone never suffices to destroy
something: the hypervisor's configuration must agree.
"""

from __future__ import annotations

import re
import typing as t
from datetime import datetime, timezone
from uuid import UUID as Uuid
from uuid import uuid5

from ..model.errors import FlexdiskError, Problems
from ..model.vm import THICK
from . import disk_properties

PREFIX = "flexdisk:"
GUARD_SNAPSHOT = "flexdisk-guard"
NAMES = (
    "uuid",
    "name",
    "vm",
    "index",
    "slot",
    "model",
    "boot",
    "type",
    "size",
    "copied",
    *disk_properties.PROPERTIES,
    "remaining",
    "image",
    "from",
    "serial_no",
    "ctime",
    "mtime",
    "package",
    "element",
    "indestructible",
    "drained",
    "generation",
    "member",
    "made_for",
    "released",
    "move",
    "memory",
    "stayed",
    "failover",
    "failover.rivals",
    "at_home",
    "replicas",
    "replicas.space",
    "replica",
    "replica.vm",
    "replica.home",
    "replica.host",
    "replica.synced",
    "replica.diverged",
    "replica.sent",
    "restored",
    "replaced",
    "exchange",
    "exchange.ready",
)

# On the dataset of a VM whose hypervisor does not keep it.
FLEXIBLE = "flexible_disk_size"

_MEMBER = re.compile(r"(.+)-(0|[1-9][0-9]{0,5})")
_GENERATION = re.compile(r"[A-Za-z0-9.:_+-]{1,64}")

# The value of "from" on an image whose import has not finished.
IMPORTING = "import"

FILES, FILE = "/var/lib/flexdisk", "disk.raw"

# The value of "from" on a disk that a conversion has taken out of its VM and not brought back yet.
CONVERTING = "aside"

# The value of "from" on a file system whose file is not there yet.
MAKING = "new"

UUID = re.compile(r"\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")

# Characters of a uuid by which a VM can be addressed, and as many as no name of a VM has: db01 is one, too.
SHORTEST_PREFIX, SURE_PREFIX = 4, 8
VM_NAME = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
DISK_NAME = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
# Names that YAML or a reader mistakes for something else: PyYAML's words, and what Jinja prints for null.
_WORD = re.compile(r"\A(?:yes|no|true|false|on|off|null|none)\Z", re.IGNORECASE)
_NUMBER = re.compile(r"\A(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE]-?[0-9]+)?)\Z")
_DATE = re.compile(r"\A[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}\Z")
_LIKE_UUID = re.compile(r"\A(?:[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]*)\Z", re.IGNORECASE)
_POOL = re.compile(r"\A[A-Za-z][A-Za-z0-9_.: -]{0,254}\Z")
_INDEX = re.compile(r"\A[0-9]{1,5}\Z")
_SERIAL = re.compile(r"\A[0-9]{1,15}\Z")
_BEGINNING = re.compile(r"\A[0-9a-f]{20}\Z")
_NAMESPACE = Uuid("8a5ee2b0-3c7c-4a26-9d0e-6f1c5a1f0d54")
_MAC = re.compile(r"\A([0-9A-Fa-f]{1,2}:){5}[0-9A-Fa-f]{1,2}\Z")
# How times are written, on disks and in results; always UTC.
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_TIME = re.compile(r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")


def mac_of(text: str) -> str:
    """Return a MAC address in its normal form, "" for anything else."""
    return ":".join(part.zfill(2) for part in text.lower().split(":")) if _MAC.match(text) else ""


def is_uuid(text: str) -> bool:
    """Whether it is a UUID in lower case."""
    return bool(UUID.match(text))


def begins_uuid(text: str, min_length: int = SHORTEST_PREFIX) -> bool:
    """Whether a uuid can begin with this text. It must have at least min_length characters."""
    lower = text.lower()
    return len(lower) >= min_length and is_uuid(lower + str(Uuid(int=0))[len(lower) :])


def mistakable(name: str) -> str:
    """Return what else the name of a disk could be read as, "" if nothing. No new disk gets such a name."""
    for pattern, meaning in (
        (_WORD, "YAML reads it as a truth value or as nothing"),
        (_NUMBER, "YAML and people read it as a number, such as an index"),
        (_DATE, "YAML reads it as a date"),
        (_LIKE_UUID, "it looks like a uuid"),
    ):
        if pattern.match(name):
            return meaning
    return ""


def check_word(label: str, word: str, problems: Problems, disk: str = "") -> str:
    """Return the user's word, for example a generation. Adds a problem if it is not valid."""
    if word and not _GENERATION.fullmatch(word):
        wanted = "1 to 64 letters, digits, dots, colons, underscores, dashes and plus signs"
        problems.add("InvalidArgument", f"{label} {word!r} is not {wanted}", disk)
    return word


def member_of(name: str) -> t.Tuple[str, int]:
    """Return group and number in the name of a member: C(web) and 3 for C(web-3); C("") and -1 for others."""
    match = _MEMBER.fullmatch(name)
    return (match[1], int(match[2])) if match else ("", -1)


def is_converting(value: str) -> bool:
    """Whether the value of "from" marks a conversion: CONVERTING, or on a copy the guid of its original."""
    return value == CONVERTING or value.isdigit()


def is_pool(name: str) -> bool:
    """Whether a pool can have this name."""
    return bool(_POOL.match(name))


def blank_in(pool: str) -> str:
    """Return why nothing is changed in a pool with a blank in its name; "" for any other pool.

    Its devices are named differently from its volumes, and differently on each platform.
    """
    if " " not in pool:
        return ""
    text = f"pool '{pool}' has a blank in its name, and nothing is changed in such a pool"
    return f"{text}; zpool export '{pool}' and zpool import '{pool}' NEWNAME give it another one"


def check_pool(name: str) -> str:
    """Return the name of a pool if it is fit for command lines. Raises FlexdiskError InvalidArgument."""
    if not is_pool(name):
        raise FlexdiskError("InvalidArgument", f"pool {name!r} is not the name of a pool")
    return name


def uuid_of(guid: int) -> str:
    """Return the uuid of a disk that has none yet. It follows from the guid of its volume."""
    return str(uuid5(_NAMESPACE, f"guid:{guid}"))


def uuid_for(*seed: object) -> str:
    """Return a uuid for a new object. The same seed always gives the same uuid."""
    return str(uuid5(_NAMESPACE, "\t".join(map(str, seed))))


def file_of(uuid: str) -> str:
    """Return the path of the file of a disk. It does not change when the dataset is renamed."""
    return f"{FILES}/{uuid}/{FILE}"


def disk_in(path: str) -> str:
    """Return the uuid of the disk whose file this is, "" for any other path."""
    folder, _slash, name = path.rpartition("/")
    above, _slash, uuid = folder.rpartition("/")
    return uuid if (above, name) == (FILES, FILE) and is_uuid(uuid) else ""


def serial_of(uuid: str) -> str:
    """Return the serial number that a guest sees: the first 20 hex digits of the uuid."""
    return uuid.replace("-", "")[:20]


def is_serial(text: str) -> bool:
    """Whether a serial number can be the beginning of a uuid."""
    return bool(_BEGINNING.match(text))


def uuid_with(serial: str, guid: int) -> str:
    """Return a uuid that begins with the 20 hex digits that a guest sees. The rest follows from the guid."""
    parts = [serial[start:end] for start, end in ((0, 8), (8, 12), (12, 16), (16, 20))]
    return "-".join([*parts, uuid_of(guid).rsplit("-", 1)[1]])


def decode_time(value: str) -> str:
    """Return a time stamp if this collection has written it, "" for anything else."""
    try:
        return value if _TIME.match(value) and seconds_of(value) >= 0 else ""
    except ValueError:  # such as a month 13
        return ""


def seconds_of(text: str) -> int:
    """Return the seconds since 1970 of a time stamp."""
    return int(datetime.strptime(text, TIME_FORMAT).replace(tzinfo=timezone.utc).timestamp())


def render_time(moment: float) -> str:
    """Return the time stamp for seconds since 1970."""
    return datetime.fromtimestamp(moment, timezone.utc).strftime(TIME_FORMAT)


_VALID: t.Mapping[str, t.Callable[[str], t.Any]] = {
    "uuid": UUID.match,
    "name": DISK_NAME.match,
    "vm": UUID.match,
    "index": _INDEX.match,
    "boot": ("true", "false").__contains__,
    "image": UUID.match,
    **{name: kind.is_valid for name, kind in disk_properties.PROPERTIES.items()},
    "serial_no": _SERIAL.match,
    "ctime": _TIME.match,
    "mtime": _TIME.match,
}


def is_valid(name: str, value: str) -> bool:
    """Whether this collection would write such a value. True for properties that take any text."""
    return bool(_VALID[name](value)) if name in _VALID else True


def decode_index(value: str) -> int:
    """Return the index of a disk, 0 for anything else."""
    return int(value) if _INDEX.match(value) else 0


def next_serial(value: str) -> str:
    """Return the serial number after this one; "1" for none."""
    return str(int(value) + 1 if _SERIAL.match(value) else 1)


def type_fact(kind: str) -> t.Dict[str, str]:
    """Return the property for the type of a disk. It is empty for a thick disk."""
    return {"type": "" if kind == THICK else kind}


def facts(
    uuid: str,
    name: str,
    vm: str,
    index: int,
    slot: str,
    model: str,
    boot: bool,
    user_properties: t.Mapping[str, t.Any],
    remaining: str,
    kind: str = THICK,
) -> t.Dict[str, str]:
    """Return the properties that describe a disk, encoded. An empty value removes the property."""
    return {
        "uuid": uuid,
        "name": name,
        "vm": vm,
        "index": str(index),
        "slot": slot,
        "model": model,
        "boot": "true" if boot else "false",
        **type_fact(kind),
        **disk_properties.encoded(user_properties),
        "remaining": remaining,
    }
