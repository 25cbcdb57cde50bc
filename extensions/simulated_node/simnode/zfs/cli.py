# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The `zfs` command: finds the subcommand, runs it, turns refusals into exit statuses."""

from __future__ import annotations

from typing import Callable, Dict, List, Tuple

from simnode.zfs import (
    cli_bookmark,
    cli_create,
    cli_destroy,
    cli_key,
    cli_list,
    cli_receive,
    cli_send,
    cli_set,
    cli_snapshot,
)
from simnode.zfs.errors import CliError, UsageError, ZfsError
from simnode.zfs.session import Session
from simnode.zfs.storage import MAX_HISTORY, Storage

Command = Callable[[Session, List[str]], int]


def _version(session: Session, argv: List[str]) -> int:
    release = {"2.1": "2.1.11-1", "2.3": "2.3.9-1"}[session.version]
    session.out.append(f"zfs-{release}\nzfs-kmod-{release}\n")
    return 0


def _mount(session: Session, argv: List[str]) -> int:
    """`zfs mount -a`: the file systems of the node are mounted always."""
    if argv != ["-a"]:
        raise UsageError("only mount -a is simulated")
    return 0


def _receive(session: Session, argv: List[str]) -> int:
    return cli_receive.receive(session, argv, session.stdin)


_COMMANDS: Dict[str, Tuple[Command, str]] = {
    "create": (cli_create.create, "create [-Pnpuv] [-o property=value] ... <filesystem>\n"
               "\tcreate [-Pnpsv] [-b blocksize] [-o property=value] ... -V <size> <volume>"),
    "clone": (cli_create.clone, "clone [-p] [-o property=value] ... <snapshot> <filesystem|volume>"),
    "rename": (cli_create.rename, "rename [-f] <filesystem|volume|snapshot> <filesystem|volume|snapshot>\n"
               "\trename -p [-f] <filesystem|volume> <filesystem|volume>\n"
               "\trename -r <snapshot> <snapshot>"),
    "destroy": (cli_destroy.destroy, "destroy [-fnpRrv] <filesystem|volume>\n"
                "\tdestroy [-dnpRrv] <filesystem|volume>@<snap>[%<snap>][,...]"),
    "snapshot": (cli_snapshot.snapshot, "snapshot [-r] [-o property=value] ... <filesystem|volume>@<snap> ..."),
    "rollback": (cli_snapshot.rollback, "rollback [-rRf] <snapshot>"),
    "hold": (cli_snapshot.hold, "hold [-r] <tag> <snapshot> ..."),
    "release": (cli_snapshot.release, "release [-r] <tag> <snapshot> ..."),
    "holds": (cli_snapshot.holds, "holds [-rHp] <snapshot> ..."),
    "set": (cli_set.set_, "set <property=value> ... <filesystem|volume|snapshot> ..."),
    "inherit": (cli_set.inherit, "inherit [-rS] <property> <filesystem|volume|snapshot> ..."),
    "get": (cli_list.get, 'get [-rHp] [-d max] [-o "all" | field[,...]]\n'
            "\t    [-t type[,...]] [-s source[,...]]\n"
            '\t    <"all" | property[,...]> [filesystem|volume|snapshot|bookmark] ...'),
    "list": (cli_list.list_, "list [-Hp] [-r|-d max] [-o property[,...]] [-s property]...\n"
             "\t    [-S property]... [-t type[,...]] [filesystem|volume|snapshot] ..."),
    "bookmark": (cli_bookmark.bookmark, "bookmark <snapshot|bookmark> <newbookmark>"),
    "send": (cli_send.send, "send [-nPpvLecw] [-[i|I] snapshot] <snapshot>\n\tsend [-nvPe] -t <receive_resume_token>"),
    "receive": (_receive, "receive [-vsFu] [-o <property>=<value>] ... [-x <property>] ...\n"
                "\t    <filesystem|volume|snapshot>\n\treceive -A <filesystem|volume>"),
    "load-key": (cli_key.load_key, "load-key [-n] [-L <keylocation>] <filesystem|volume>"),
    "unload-key": (cli_key.unload_key, "unload-key <filesystem|volume>"),
    "change-key": (cli_key.change_key, "change-key [-o property=value] ... <filesystem|volume>\n"
                   "\tchange-key -i <filesystem|volume>"),
    "mount": (_mount, "mount -a"),
    "version": (_version, "version"),
}  # fmt: skip
_ALIASES = {"snap": "snapshot", "recv": "receive"}
_QUIET = ("get", "list", "holds", "send", "version", "mount")


def zfs_main(storage: Storage, argv: List[str], stdin: str = "") -> Tuple[int, str, str]:
    """Run `zfs` with these arguments; exit status, stdout, stderr."""
    if not argv:
        return 2, "", "missing command\n" + _general()
    name = _ALIASES.get(argv[0], argv[0])
    session = Session(storage, stdin)
    if name not in _COMMANDS or (name == "version" and session.version == "illumos"):
        return 2, "", f"unrecognized command '{name}'\n" + _general()
    command, usage = _COMMANDS[name]
    if name not in _QUIET:
        storage.history.append((storage.seconds(), " ".join(["zfs", *argv])))
        del storage.history[:-MAX_HISTORY]
        storage.dirty = True
    try:
        status = command(session, argv[1:])
    except UsageError as error:
        session.err.append(f"{error.text}\nusage:\n\t{usage}\n")
        status = error.rc
    except CliError as error:
        session.err.append(error.text + "\n")
        status = error.rc
    except ZfsError as error:
        session.err.append(f"cannot {name}: {error.text}\n")
        status = 1
    return status, "".join(session.out), "".join(session.err)


def _general() -> str:
    usages = "".join(f"\t{usage}\n" for _command, usage in _COMMANDS.values())
    return f"usage: zfs command args ...\nwhere 'command' is one of the following:\n\n{usages}"
