# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Installed images: the store, the checks vmadm makes of them, and the `imgadm` program."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from simnode.vmadm import jsvalues as js
from simnode.vmadm import properties
from simnode.vmadm.errors import VmError
from simnode.vmadm.host import DEFAULT_POOL, Result, VmadmHost, zfs

CLOUDINIT_TAG = "org.smartos:cloudinit_datasource"
USAGE = "Usage:\n    imgadm [OPTIONS] COMMAND [ARGS...]\n    imgadm help COMMAND\n"


def store(host: VmadmHost) -> Dict[str, Any]:
    images: Dict[str, Any] = host.state.setdefault("images", {})
    return images


def find(host: VmadmHost, uuid: str, pool: str) -> Optional[Dict[str, Any]]:
    """Return the manifest and place of an installed image, None if it is not in that pool."""
    image = store(host).get(uuid)
    if image is None or image["zpool"] != pool:
        return None
    code, _out, _err = host.zfs(["get", "-Ho", "value", "type", pool + "/" + uuid])
    return image if code == 0 else None


def import_image(
    host: VmadmHost,
    uuid: str,
    size: int,
    pool: str = DEFAULT_POOL,
    *,
    name: str = "base",
    version: str = "1",
    kind: str = "zvol",
    bootrom: Optional[str] = None,
    nocloud: bool = False,
) -> None:
    """Create POOL/UUID and its @final snapshot, and register the manifest. `size` is MiB."""
    manifest: Dict[str, Any] = {
        "v": 2,
        "uuid": uuid,
        "owner": "00000000-0000-0000-0000-000000000000",
        "name": name,
        "version": version,
        "state": "active",
        "disabled": False,
        "public": True,
        "type": kind,
        "os": "linux",
    }
    if kind == "zvol":
        manifest["image_size"] = size
        zfs(host, "create", "-s", "-o", "volblocksize=8192", "-V", "%dM" % size, pool + "/" + uuid)
    else:
        zfs(host, "create", pool + "/" + uuid)
    if bootrom:
        manifest["requirements"] = {"bootrom": bootrom}
    if nocloud:
        manifest["tags"] = {CLOUDINIT_TAG: "nocloud"}
    zfs(host, "snapshot", pool + "/" + uuid + "@final")
    store(host)[uuid] = {"manifest": manifest, "zpool": pool}


class ImageProblem(VmError):
    """Why an image cannot be used; `code` is size, missing, type or bootrom."""


def check(host: VmadmHost, uuid: str, pool: str, types: List[str], size: Any, bootrom: Any) -> Dict[str, Any]:
    """What the manifest adds to a payload: size, bootrom, cloudinit_datasource.

    `size` and `bootrom` are UNDEFINED where the payload says nothing. Raises ImageProblem.
    """
    image = find(host, uuid, pool)
    if image is None:
        raise ImageProblem("cannot find 'manifest' for image " + uuid, "missing")
    manifest = image["manifest"]
    if manifest["type"] not in types:
        raise ImageProblem(
            "image %s is type %s, but must be one of: %s" % (uuid, manifest["type"], js.compact(types)), "type"
        )
    additions: Dict[str, Any] = {}
    if "image_size" in manifest:
        if size is not js.UNDEFINED and not js.same(size, manifest["image_size"]):
            raise ImageProblem(
                "incorrect image_size value for image %s passed: %s should be: %s"
                % (uuid, js.to_string(size), manifest["image_size"]),
                "size",
            )
        additions["size"] = manifest["image_size"]
    if CLOUDINIT_TAG in manifest.get("tags", {}):
        additions["cloudinit_datasource"] = manifest["tags"][CLOUDINIT_TAG]
    if "requirements" in manifest:
        additions.update(_check_bootrom(uuid, manifest["requirements"], bootrom))
    return additions


def _check_bootrom(uuid: str, requirements: Dict[str, Any], bootrom: Any) -> Dict[str, Any]:
    required = requirements.get("bootrom")
    if bootrom is js.UNDEFINED:
        return {"bootrom": required} if required else {}
    if required and bootrom != required:
        raise ImageProblem(
            "invalid bootrom value for image %s passed: %s should be: %s" % (uuid, bootrom, required), "bootrom"
        )
    if not required and bootrom not in properties.BOOTROMS:
        raise ImageProblem(
            "invalid bootrom value for image %s passed: %s should be one of: %s"
            % (uuid, bootrom, ", ".join(properties.BOOTROMS)),
            "bootrom",
        )
    return {}


def imgadm(host: VmadmHost, argv: List[str], stdin: str = "") -> Result:
    """Run the `imgadm` program: list [-j] and get [-P POOL] UUID."""
    host.sleep(0.6)
    if argv[:1] == ["list"]:
        return _list(host, "-j" in argv)
    if argv[:1] == ["get"]:
        return _get(host, argv[1:])
    return 1, "", USAGE


def _installed(host: VmadmHost) -> List[Dict[str, Any]]:
    return [image for uuid, image in store(host).items() if find(host, uuid, image["zpool"])]


def _list(host: VmadmHost, as_json: bool) -> Result:
    images = _installed(host)
    if as_json:
        return 0, js.dumps(images) + "\n", ""
    lines = ["%-36s  %-10s  %-7s  %-5s  %s" % ("UUID", "NAME", "VERSION", "OS", "TYPE")]
    for image in images:
        manifest = image["manifest"]
        lines.append(
            "%-36s  %-10s  %-7s  %-5s  %s" % tuple(manifest[key] for key in ("uuid", "name", "version", "os", "type"))
        )
    return 0, "\n".join(lines) + "\n", ""


def _get(host: VmadmHost, argv: List[str]) -> Result:
    pool = DEFAULT_POOL
    if argv[:1] == ["-P"] and len(argv) > 1:
        pool = argv[1]
        argv = argv[2:]
    if len(argv) != 1:
        return 1, "", "imgadm get: error (Usage): incorrect number of args (%d)\n" % len(argv)
    image = find(host, argv[0], pool)
    if image is None:
        text = 'imgadm get: error (ImageNotInstalled): image "%s" was not found on zpool "%s"\n'
        return 1, "", text % (argv[0], pool)
    return 0, js.dumps(image) + "\n", ""
