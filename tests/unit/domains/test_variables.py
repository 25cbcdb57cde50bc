# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""UEFI variables of a domain: its file, and where it may lie on a host that the domain comes to."""

from __future__ import annotations

import os

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import variable_files
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.domain_variables import FOLDER
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import uefi

from .conftest import OTHER, VM, LinuxHost
from .test_connection import Recorder, connection

PLACE = f"{FOLDER}/web01_VARS.fd"
CONTENT = bytes(range(256))


def host(place: str = PLACE) -> LinuxHost:
    linux = LinuxHost()
    linux.create()
    with_nvram(linux, VM, place)
    linux.domains.files[place] = CONTENT
    return linux


def with_nvram(linux: LinuxHost, uuid: str, place: str) -> None:
    text = linux.domains.xml(uuid, False)
    linux.domains.define(text.replace("</os>", f"<nvram>{place}</nvram></os>"))


def test_they_come_with_the_description():
    here, there = host(), LinuxHost()
    description = here.driver().description(VM)
    assert (uefi.decode(description.variables), description.host_bound) == (CONTENT, ())
    assert there.driver().lacks(VM, description.of_new, []) == []
    there.driver().restore_variables(description.of_new)
    assert there.domains.files == {PLACE: CONTENT}


def test_a_domain_that_was_never_started_has_none():
    here, there = host(), LinuxHost()
    del here.domains.files[PLACE]
    description = here.driver().description(VM)
    assert (description.variables, description.host_bound) == ("", ())
    there.driver().restore_variables(description.of_new)
    assert there.domains.files == {}


def test_too_large_ones_stay():
    here = host()
    here.domains.files[PLACE] = bytes(uefi.LIMIT)
    assert here.driver().description(VM).host_bound == ()
    here.domains.files[PLACE] = bytes(uefi.LIMIT + 1)
    description = here.driver().description(VM)
    assert (description.variables, description.host_bound) == ("", ("UEFI variables (nvram) of more than 1 MiB",))


def test_no_other_file_is_read():
    description = host("/etc/shadow").driver().description(VM)
    assert (description.variables, len(description.host_bound)) == ("", 1)


def test_what_has_their_place():
    """A file that belongs to no domain here, or to another one; but not that of the domain itself."""
    description = host().driver().description(VM)
    there = LinuxHost()
    there.domains.files[PLACE] = b"of somebody"
    assert there.driver().lacks(VM, description.of_new, []) == [f"a free place {PLACE}"]
    there = host()
    assert there.driver().lacks(VM, description.of_new, []) == []
    del there.domains.files[PLACE]
    there.create(uuid=OTHER, name="web02")
    with_nvram(there, OTHER, PLACE)
    assert there.driver().lacks(VM, description.of_new, [])[-1:] == [f"a free place {PLACE}"]


def test_what_another_host_says_of_them_is_data():
    """No host lets another one write a file of its choice."""
    description = host().driver().description(VM).of_new
    there = LinuxHost()
    odd = {**description, "template": description["template"].replace(PLACE, "/etc/passwd")}
    assert there.driver().lacks(VM, odd, []) == [f"UEFI variables (nvram) in /etc/passwd, which is not in {FOLDER}"]
    with pytest.raises(FlexdiskError, match="has UEFI variables, and no place for them"):
        there.driver().restore_variables(odd)
    assert there.domains.files == {}


@pytest.mark.parametrize("text", ["QQ", "QQ==\n", "Q Q==", "QR==", "\u00e4", "A" * (4 * uefi.LIMIT // 3 + 8)])
def test_a_text_that_is_none(text):
    with pytest.raises(ValueError, match=r".*"):
        uefi.decode(text)


def test_the_files(tmp_path, monkeypatch):
    """Written whole, for root alone; links are not followed."""
    path = tmp_path / "a.fd"
    domains = connection(monkeypatch, Recorder())
    assert domains.variables(str(path)) == b""
    (tmp_path / "a.fd.flexdisk-new").write_bytes(b"left by a run that was killed")
    for content in (CONTENT, b"short"):
        domains.set_variables(str(path), content)
        assert domains.variables(str(path)) == content
        assert (path.stat().st_mode & 0o777, os.listdir(tmp_path)) == (0o600, ["a.fd"])
    path.write_bytes(bytes(uefi.LIMIT + 9))
    assert len(domains.variables(str(path))) == uefi.LIMIT + 1
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(FlexdiskError, match="link: ") as caught:
        variable_files.read(str(tmp_path / "link"))
    assert caught.value.code == "FileFailed"
    with pytest.raises(FlexdiskError, match="nowhere/a: No such file"):
        variable_files.write(str(tmp_path / "nowhere" / "a"), b"")
