# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of native properties: names, columns, what they apply to, how values are checked and stored."""

from __future__ import annotations

import re
from typing import Any, Dict, NamedTuple, Tuple

from simnode.zfs import numbers
from simnode.zfs.errors import CliError

NUMBER, SIZE, INDEX, STRING = "number", "size", "index", "string"
READONLY, DEFAULT, INHERIT, ONCE = "readonly", "default", "inherit", "once"
AUTO = (1 << 64) - 1
_USER = re.compile(r"[a-z0-9:._\-]*:[a-z0-9:._\-]*\Z")


class Prop(NamedTuple):
    """A native property. `types` holds f(ile system), v(olume), s(napshot), b(ookmark); `values` the words an index
    may take.
    """

    name: str
    column: str
    form: str
    mode: str
    types: str
    default: Any
    values: Tuple[str, ...] = ()


_ON_OFF = ("on", "off")
_CACHE = ("all", "none", "metadata")
_CHECKSUM = ("on", "off", "fletcher2", "fletcher4", "sha256", "noparity", "sha512", "skein", "edonr")
_COMPRESSION = (
    *("on", "off", "lzjb", "gzip", "zle", "lz4", "zstd", "zstd-fast"),
    *(f"gzip-{level}" for level in range(1, 10)),
    *(f"zstd-{level}" for level in range(1, 20)),
)
_CRYPT = _ON_OFF + tuple(f"aes-{bits}-{mode}" for mode in ("ccm", "gcm") for bits in (128, 192, 256))
_CANMOUNT = ("on", "off", "noauto")

_TABLE = [
    Prop("name", "NAME", STRING, READONLY, "fvsb", None),
    Prop("type", "TYPE", STRING, READONLY, "fvsb", None),
    Prop("creation", "CREATION", NUMBER, READONLY, "fvsb", None),
    Prop("used", "USED", SIZE, READONLY, "fvs", None),
    Prop("available", "AVAIL", SIZE, READONLY, "fv", None),
    Prop("referenced", "REFER", SIZE, READONLY, "fvsb", None),
    Prop("compressratio", "RATIO", NUMBER, READONLY, "fvs", None),
    Prop("mounted", "MOUNTED", INDEX, READONLY, "f", None),
    Prop("origin", "ORIGIN", STRING, READONLY, "fv", None),
    Prop("quota", "QUOTA", SIZE, DEFAULT, "f", 0),
    Prop("reservation", "RESERV", SIZE, DEFAULT, "fv", 0),
    Prop("volsize", "VOLSIZE", SIZE, DEFAULT, "vs", 0),
    Prop("volblocksize", "VOLBLOCK", SIZE, ONCE, "v", 8192),
    Prop("recordsize", "RECSIZE", SIZE, INHERIT, "f", 131072),
    Prop("mountpoint", "MOUNTPOINT", STRING, INHERIT, "f", "/"),
    Prop("sharenfs", "SHARENFS", STRING, INHERIT, "f", "off"),
    Prop("checksum", "CHECKSUM", INDEX, INHERIT, "fv", "on", _CHECKSUM),
    Prop("compression", "COMPRESS", INDEX, INHERIT, "fv", "off", _COMPRESSION),
    Prop("atime", "ATIME", INDEX, INHERIT, "f", "on", _ON_OFF),
    Prop("devices", "DEVICES", INDEX, INHERIT, "fs", "on", _ON_OFF),
    Prop("exec", "EXEC", INDEX, INHERIT, "fs", "on", _ON_OFF),
    Prop("setuid", "SETUID", INDEX, INHERIT, "fs", "on", _ON_OFF),
    Prop("readonly", "RDONLY", INDEX, INHERIT, "fv", "off", _ON_OFF),
    Prop("zoned", "ZONED", INDEX, INHERIT, "f", "off", _ON_OFF),
    Prop("snapdir", "SNAPDIR", INDEX, INHERIT, "f", "hidden", ("hidden", "visible")),
    Prop("aclmode", "ACLMODE", INDEX, INHERIT, "f", "discard", ("discard", "groupmask", "passthrough", "restricted")),
    Prop("aclinherit", "ACLINHERIT", INDEX, INHERIT, "f", "restricted",
         ("discard", "noallow", "restricted", "passthrough", "passthrough-x")),
    Prop("createtxg", "CREATETXG", NUMBER, READONLY, "fvsb", None),
    Prop("canmount", "CANMOUNT", INDEX, DEFAULT, "f", "on", _CANMOUNT),
    Prop("xattr", "XATTR", INDEX, INHERIT, "fs", "on", ("on", "off", "dir", "sa")),
    Prop("copies", "COPIES", INDEX, INHERIT, "fv", "1", ("1", "2", "3")),
    Prop("version", "VERSION", INDEX, DEFAULT, "f", "5", ("1", "2", "3", "4", "5", "current")),
    Prop("sharesmb", "SHARESMB", STRING, INHERIT, "f", "off"),
    Prop("refquota", "REFQUOTA", SIZE, DEFAULT, "f", 0),
    Prop("refreservation", "REFRESERV", SIZE, DEFAULT, "fv", 0),
    Prop("guid", "GUID", NUMBER, READONLY, "fvsb", None),
    Prop("primarycache", "PRIMARYCACHE", INDEX, INHERIT, "fvs", "all", _CACHE),
    Prop("secondarycache", "SECONDARYCACHE", INDEX, INHERIT, "fvs", "all", _CACHE),
    Prop("usedbysnapshots", "USEDSNAP", SIZE, READONLY, "fv", None),
    Prop("usedbydataset", "USEDDS", SIZE, READONLY, "fv", None),
    Prop("usedbychildren", "USEDCHILD", SIZE, READONLY, "fv", None),
    Prop("usedbyrefreservation", "USEDREFRESERV", SIZE, READONLY, "fv", None),
    Prop("defer_destroy", "DEFER_DESTROY", INDEX, READONLY, "s", None),
    Prop("userrefs", "USERREFS", NUMBER, READONLY, "s", None),
    Prop("logbias", "LOGBIAS", INDEX, INHERIT, "fv", "latency", ("latency", "throughput")),
    Prop("dedup", "DEDUP", INDEX, INHERIT, "fv", "off", ("on", "off", "verify", "sha256", "sha256,verify")),
    Prop("mlslabel", "MLSLABEL", STRING, INHERIT, "fvs", "none"),
    Prop("sync", "SYNC", INDEX, INHERIT, "fv", "standard", ("standard", "always", "disabled")),
    Prop("refcompressratio", "REFRATIO", NUMBER, READONLY, "fvs", None),
    Prop("written", "WRITTEN", SIZE, READONLY, "fvs", None),
    Prop("clones", "CLONES", STRING, READONLY, "s", None),
    Prop("logicalused", "LUSED", SIZE, READONLY, "fv", None),
    Prop("logicalreferenced", "LREFER", SIZE, READONLY, "fvs", None),
    Prop("filesystem_limit", "FSLIMIT", NUMBER, DEFAULT, "f", AUTO),
    Prop("snapshot_limit", "SSLIMIT", NUMBER, DEFAULT, "fv", AUTO),
    Prop("volmode", "VOLMODE", INDEX, INHERIT, "fv", "default", ("default", "full", "geom", "dev", "none")),
    Prop("receive_resume_token", "RESUMETOK", STRING, READONLY, "fv", None),
    Prop("snapdev", "SNAPDEV", INDEX, INHERIT, "fv", "hidden", ("hidden", "visible")),
    Prop("redundant_metadata", "REDUND_MD", INDEX, INHERIT, "fv", "all", ("all", "most", "some", "none")),
    Prop("encryption", "ENCRYPTION", INDEX, ONCE, "fvs", "off", _CRYPT),
    Prop("keylocation", "KEYLOCATION", STRING, DEFAULT, "fv", "none"),
    Prop("keyformat", "KEYFORMAT", INDEX, ONCE, "fv", "none", ("none", "raw", "hex", "passphrase")),
    Prop("pbkdf2iters", "PBKDF2ITERS", NUMBER, ONCE, "fv", 0),
    Prop("encryptionroot", "ENCROOT", STRING, READONLY, "fvs", None),
    Prop("keystatus", "KEYSTATUS", INDEX, READONLY, "fvs", None),
]  # fmt: skip

TABLE: Dict[str, Prop] = {prop.name: prop for prop in _TABLE}
_ALIASES = {
    "avail": "available", "refer": "referenced", "volblock": "volblocksize", "compress": "compression",
    "reserv": "reservation", "refreserv": "refreservation", "recsize": "recordsize", "ratio": "compressratio",
    "usedsnap": "usedbysnapshots", "usedds": "usedbydataset", "usedchild": "usedbychildren", "rdonly": "readonly",
    "usedrefreserv": "usedbyrefreservation", "lused": "logicalused", "lrefer": "logicalreferenced",
    "fslimit": "filesystem_limit", "sslimit": "snapshot_limit", "refratio": "refcompressratio", "encroot":
    "encryptionroot",
}  # fmt: skip
SINCE_BOOKMARK = "written#"
"""Followed by the short name of a bookmark, a property that only `zfs get` of OpenZFS prints."""
SPACE_COLUMNS = "name,available,used,usedbysnapshots,usedbydataset,usedbyrefreservation,usedbychildren"


def is_user(name: str) -> bool:
    """True for the name of a user property."""
    return ":" in name and len(name) < 256 and _USER.match(name) is not None


def native(name: str) -> Prop:
    """Return the native property of that name or column name. Raises KeyError."""
    return TABLE[_ALIASES.get(name, name)]


def known(name: str) -> str:
    """Return the full name of a property. Raises KeyError if there is no such property."""
    return name if is_user(name) or name.startswith(SINCE_BOOKMARK) else native(name).name


def check(name: str, value: str, kind: str, creating: bool) -> Tuple[str, Any]:
    """Property name and value as they are stored, `kind` being f, v or s.

    Raises CliError with the words that follow "cannot ...: ".
    """
    if is_user(name):
        return name, value
    if ":" in name and len(name) >= 256:
        raise CliError(f"property name '{name}' is too long")
    if kind == "s":
        raise CliError("this property can not be modified for snapshots")
    try:
        prop = native(name)
    except KeyError:
        raise CliError(f"invalid property '{name}'") from None
    if kind not in prop.types:
        raise CliError(f"'{name}' does not apply to datasets of this type")
    if prop.mode == READONLY or (prop.mode == ONCE and not creating):
        raise CliError(f"'{name}' is readonly")
    return prop.name, _value(prop, name, value, kind)


def _value(prop: Prop, name: str, value: str, kind: str) -> Any:
    if prop.form == STRING:
        if prop.name == "mountpoint" and value not in ("none", "legacy") and not value.startswith("/"):
            raise CliError(f"'{name}' must be an absolute path, 'none', or 'legacy'")
        return value
    if prop.form == INDEX:
        if value not in prop.values:
            raise CliError(f"'{prop.name}' must be one of '{' | '.join(prop.values)}'")
        return value
    return _number(prop, name, value, kind)


def _number(prop: Prop, name: str, value: str, kind: str) -> int:
    if value == "none":
        return AUTO if prop.name.endswith("_limit") else 0
    if value == "auto":
        if prop.name != "refreservation":
            raise CliError(f"'auto' is invalid value for '{name}'")
        if kind != "v":
            raise CliError(f"'{name}=auto' only allowed on volumes")
        return AUTO
    try:
        number = numbers.parse(value)
    except ValueError as error:
        raise CliError(str(error)) from None
    if number == 0 and prop.name in ("quota", "refquota"):
        raise CliError("use 'none' to disable quota/refquota")
    if prop.name in ("volblocksize", "recordsize") and (number & (number - 1) or not 512 <= number <= 1 << 20):
        raise CliError(f"'{name}' must be power of 2 from 512B to 1M")
    return number
