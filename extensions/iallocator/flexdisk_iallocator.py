# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An instance allocator for Ganeti: reads a request of the IAllocator protocol, version 2, and prints the answer."""

from __future__ import annotations

import argparse
import gc
import json
import sys
import types
import typing as t
from pathlib import Path

_PATHS: t.Mapping[str, t.List[str]] = {
    "ansible_collections": [],
    "ansible_collections.flexdisk": [],
    "ansible_collections.flexdisk.hypervisor": [str(Path(__file__).resolve().parents[2])],
}
for _name, _path in _PATHS.items():  # the collection is found where this file is, whatever its folders are called
    _package = types.ModuleType(_name)
    _package.__path__ = _path
    sys.modules[_name] = _package

from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.protocol import Options, answer
from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.requests import KVM_MEMORY
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="flexdisk-iallocator", description=__doc__)
    parser.add_argument("file", metavar="FILE", help="the request, - for standard input")
    parser.add_argument("--like-hail", action="store_true", help="decide as Ganeti's hail does")
    parser.add_argument(
        "--no-capacity-checks", action="store_true", help="do not ask whether the VMs of a lost host could go elsewhere"
    )
    parser.add_argument("--ignore-soft-errors", action="store_true", help="in node-evacuate heed physical limits only")
    parser.add_argument("--restrict-allocation-to", metavar="HOST,...", help="the only hosts that new VMs may get")
    parser.add_argument(
        "--static-kvm-node-memory",
        metavar="MIB",
        type=_mib,
        default=KVM_MEMORY,
        help="what a host of the hypervisor kvm needs itself, 0 for what it reports (default: %(default)s)",
    )
    return parser.parse_args()


def _mib(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of MiB")
    return int(text)


def request(file: str) -> t.Any:
    text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    return json.loads(text)


def main() -> int:
    """Answer. A request that is not valid is told on standard error, and gives 1."""
    gc.disable()  # hardly anything here is cyclic, and looking for it takes a seventh of the time
    given = arguments()
    only = given.restrict_allocation_to
    options = Options(
        like_hail=given.like_hail,
        checked=not given.no_capacity_checks,
        soft=not given.ignore_soft_errors,
        kvm_memory=given.static_kvm_node_memory,
        allowed=None if only is None else frozenset(only.split(",")),
    )
    try:
        print(json.dumps(answer(request(given.file), options)))
    except FlexdiskError as exc:
        print(f"flexdisk-iallocator: {exc.message}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as exc:
        print(f"flexdisk-iallocator: {given.file}: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
