# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program `qm`: finds the command, runs it, and prints how it ended."""

from __future__ import annotations

from typing import Callable, Dict, List

from simnode.pve import (
    arguments,
    create,
    destroy,
    move,
    power,
    rescan,
    resize,
    show,
    snapshots,
    template,
    update,
    vmfile,
)
from simnode.pve.errors import KILLED, Killed, NotRecorded, ParameterError, PveError, Unparsed
from simnode.pve.host import PveHost, Result
from simnode.pve.task import Run

Options = Dict[str, str]
Work = Callable[[Run, List[str], Options], None]


def _unlink(run: Run, words: List[str], options: Options) -> None:
    asked = {"delete": options["idlist"]}
    if "force" in options:
        asked["force"] = options["force"]
    update.set_vm(run, int(words[0]), asked)


def _unlock(run: Run, words: List[str], _options: Options) -> None:
    vmid = int(words[0])
    with run.lock(vmfile.lock_path(vmid)):
        config = vmfile.load(run, vmid)
        config.main.pop("lock", None)
        vmfile.save(run, vmid, config)


def _of_vm(work: Callable[[Run, int, Options], None]) -> Work:
    return lambda run, words, options: work(run, int(words[0]), options)


_WORK: Dict[str, Work] = {
    "set": _of_vm(update.set_vm),
    "create": _of_vm(create.create),
    "destroy": _of_vm(destroy.destroy),
    "config": _of_vm(show.config),
    "pending": lambda run, words, _options: show.pending(run, int(words[0])),
    "status": _of_vm(show.status),
    "list": lambda run, _words, _options: show.list_vms(run),
    "start": _of_vm(power.start),
    "stop": _of_vm(power.stop),
    "shutdown": _of_vm(power.shutdown),
    "reboot": _of_vm(power.reboot),
    "reset": _of_vm(power.reset),
    "suspend": _of_vm(power.suspend),
    "resume": _of_vm(power.resume),
    "wait": _of_vm(power.wait),
    "unlock": _unlock,
    "cleanup": lambda run, words, _options: power.cleanup_command(run, int(words[0])),
    "template": lambda run, words, _options: template.template(run, int(words[0])),
    "clone": lambda run, words, options: template.clone(run, int(words[0]), int(words[1]), options),
    "snapshot": lambda run, words, options: snapshots.take(run, int(words[0]), words[1], options),
    "delsnapshot": lambda run, words, options: snapshots.delete(run, int(words[0]), words[1], options),
    "rollback": lambda run, words, options: snapshots.roll_back(run, int(words[0]), words[1], options),
    "listsnapshot": lambda run, words, _options: show.list_snapshots(run, int(words[0])),
    "disk resize": lambda run, words, options: resize.resize(run, int(words[0]), words[1], words[2], options),
    "disk unlink": _unlink,
    "disk rescan": lambda run, _words, options: rescan.rescan(run, options),
    "disk move": lambda run, words, options: move.move(run, int(words[0]), words[1], words[2], options),
}


def main(host: PveHost, argv: List[str]) -> Result:
    """Run `qm` with these arguments; exit status, stdout, stderr."""
    return execute(host, argv, arguments.QM, arguments.ALIASES, _WORK)


def execute(
    host: PveHost,
    argv: List[str],
    table: Dict[str, arguments.Command],
    aliases: Dict[str, str],
    work: Dict[str, Work],
) -> Result:
    """Run a command of one of the programs; exit status, stdout, stderr."""
    run = Run(host)
    usage = ""
    status = 0
    try:
        command, rest = arguments.find(table, argv, aliases)
        usage = command.usage
        words, options = arguments.parse(command, rest)
        work[command.name.partition(" ")[2]](run, words, options)
    except Killed:
        status = KILLED
    except (ParameterError, Unparsed) as error:
        status = error.status
        run.err.append(f"{error.text.rstrip(chr(10)) if isinstance(error, Unparsed) else error.text[:-1]}\n{usage}\n")
    except NotRecorded as error:
        status = error.status
        run.err.append(error.text + "\n")
    except PveError as error:
        status = 255 if run.worker else error.status
        run.err.append(error.text + "\n")
    return status, "".join(run.out), "".join(run.err)
