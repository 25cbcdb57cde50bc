# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the service libvirt-guests of a host starts domains whose autostart is off."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.guests_service import (
    why_guests_start,
)

UNIT = "etc/systemd/system/multi-user.target.wants/libvirt-guests.service"
SCRIPT, ARCH_SCRIPT = "usr/libexec/libvirt-guests.sh", "usr/lib/libvirt/libvirt-guests.sh"
RPM, DEBIAN, ARCH = "etc/sysconfig/libvirt-guests", "etc/default/libvirt-guests", "etc/conf.d/libvirt-guests"
QEMU = "etc/libvirt/qemu.conf"
COMMENT = "# action taken on boot\n#ON_BOOT=ignore\n"


def answer(folder, files):
    """What is said of a host with these files."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return why_guests_start(str(folder))


def script(default, reads):
    return f'ON_BOOT="{default}"\nON_SHUTDOWN=suspend\ntest -f "$sysconfdir"/{reads} && . "$sysconfdir"/{reads}\n'


@pytest.mark.parametrize(
    ("files", "places"),
    [
        ({}, ""),
        ({SCRIPT: "ON_BOOT=start\n", RPM: "ON_BOOT=start\n"}, ""),  # it is not enabled
        ({UNIT: ""}, "/etc/sysconfig/libvirt-guests"),
        ({UNIT: "", SCRIPT: "ON_BOOT=start\nON_SHUTDOWN=suspend\n"}, "/etc/sysconfig/libvirt-guests"),
        ({UNIT: "", SCRIPT: "ON_BOOT=start\n", DEBIAN: COMMENT}, "/etc/default/libvirt-guests"),
        ({UNIT: "", SCRIPT: "ON_BOOT=ignore\n", DEBIAN: COMMENT}, ""),
        ({UNIT: "", SCRIPT: "ON_BOOT=ignore\n"}, ""),
        ({UNIT: "", SCRIPT: "ON_BOOT=start\n", RPM: "ON_BOOT=ignore\n"}, ""),
        ({UNIT: "", SCRIPT: "ON_BOOT=ignore\n", DEBIAN: 'ON_BOOT="start"\n'}, "/etc/default/libvirt-guests"),
        ({UNIT: "", DEBIAN: "ON_BOOT=start\n  ON_BOOT='ignore' # not start\n"}, ""),
        ({UNIT: "", DEBIAN: "ON_BOOT=ignore\nON_BOOT=start\n"}, "/etc/default/libvirt-guests"),
        ({UNIT: "", SCRIPT: "echo\n", RPM: COMMENT}, "/etc/sysconfig/libvirt-guests"),  # a default that is not known
        ({UNIT: "", SCRIPT: "ON_BOOT=ignore\n", ARCH_SCRIPT: "ON_BOOT=start\n"}, "/etc/sysconfig/libvirt-guests"),
    ],
)
def test_what_it_does_after_a_boot(tmp_path, files, places):
    assert answer(tmp_path, files).partition("ON_BOOT=ignore in ")[2] == places


@pytest.mark.parametrize(
    ("files", "places"),
    [
        ({RPM: "ON_BOOT=start\n", DEBIAN: "ON_BOOT=ignore\n"}, "/etc/sysconfig/libvirt-guests"),
        ({DEBIAN: "ON_BOOT=ignore\n", ARCH: COMMENT}, "/etc/conf.d/libvirt-guests"),
        ({RPM: "", ARCH: ""}, "/etc/sysconfig/libvirt-guests and in /etc/conf.d/libvirt-guests"),
        ({RPM: "ON_BOOT=ignore\n", ARCH: "ON_BOOT=ignore\n"}, ""),
    ],
)
def test_each_file_that_is_there_may_be_the_one_that_counts(tmp_path, files, places):
    """Which one is read differs between distributions, and the others can be there, too."""
    files = {UNIT: "", SCRIPT: "ON_BOOT=start\n", **files}
    assert answer(tmp_path, files).partition("ON_BOOT=ignore in ")[2] == places


@pytest.mark.parametrize("reads", ["conf.d/libvirt-guests", 'conf.d"/libvirt-guests'])
def test_the_file_that_the_script_reads_need_not_be_there(tmp_path, reads):
    """Somebody has written the setting to the file of another distribution."""
    files = {UNIT: "", ARCH_SCRIPT: script("start", reads), RPM: "ON_BOOT=ignore\n"}
    assert answer(tmp_path, files).endswith("set ON_BOOT=ignore in /etc/conf.d/libvirt-guests")
    assert answer(tmp_path, {ARCH: "ON_BOOT=ignore\n"}) == ""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("export ON_BOOT=start\n", 1),
        ("ON_BOOT=ignore; ON_BOOT=start\n", 1),
        ("ON_BOOT=ignore\nONB=start; ON_BOOT=$ONB\n", 2),
        ("ON_BOOT=ignore\n\n. /etc/site/guests\n", 3),
        ('ON_BOOT=ignore\nURIS="${ON_BOOT:=start}"\n', 2),
        ("ON_BOOT= start\n", 1),
        ("ON_BOOT=ignore true\n", 1),
        ("true \\\nON_BOOT=ignore\n", 1),
        ("if false; then\nON_BOOT=ignore\nfi\n", 1),
        ("ON_BOOT=ignore\r\n", 1),
    ],
)
def test_what_is_not_understood_counts_as_start(tmp_path, text, line):
    message = answer(tmp_path, {UNIT: "", SCRIPT: "ON_BOOT=ignore\n", DEBIAN: text})
    assert f"(line {line} of /etc/default/libvirt-guests must go: only NAME=value" in message


@pytest.mark.parametrize("text", ["ON_BOOT=\n", "ON_BOOT=Start\n", "URIS='default xen:///system'\nON_BOOT=ignore\n"])
def test_only_the_word_start_starts(tmp_path, text):
    assert answer(tmp_path, {UNIT: "", SCRIPT: "ON_BOOT=start\n", DEBIAN: text}) == ""


@pytest.mark.parametrize("folder", ["etc/systemd/system", "usr/lib/systemd/system", "usr/local/lib/systemd/system"])
@pytest.mark.parametrize("kind", ["wants", "requires"])
def test_what_enables_it(tmp_path, folder, kind):
    """A link, which may lead nowhere on another root."""
    place = tmp_path / folder / f"libvirtd.service.{kind}"
    place.mkdir(parents=True)
    (place / "libvirt-guests.service").symlink_to("/nowhere/libvirt-guests.service")
    assert why_guests_start(str(tmp_path)).endswith("ON_BOOT=ignore in /etc/sysconfig/libvirt-guests")


def test_the_service_of_openrc(tmp_path):
    """It has no such setting."""
    files = {"etc/runlevels/default/libvirt-guests": "", ARCH: "ON_BOOT=ignore\n"}
    assert answer(tmp_path, files).endswith("take it out of the runlevel (rc-update del libvirt-guests)")


def test_an_unreadable_file_says_nothing(tmp_path):
    (tmp_path / RPM).mkdir(parents=True)
    message = answer(tmp_path, {UNIT: "", SCRIPT: "ON_BOOT=ignore\n"})
    assert message.endswith("set ON_BOOT=ignore in /etc/sysconfig/libvirt-guests")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('#auto_shutdown_try_save = "persistent"\n', ""),
        ('auto_shutdown_try_save = "none"\n', ""),
        ('auto_shutdown_try_save = "persistent"\n', "auto_shutdown_try_save"),
        ('auto_shutdown_try_shutdown="all" # all\n', "auto_shutdown_try_shutdown"),
        ('auto_shutdown_poweroff = "all"\nauto_shutdown_restore = 1\n', "auto_shutdown_poweroff"),
        ('auto_shutdown_poweroff = "all"\nauto_shutdown_restore = 0\n', ""),
        ("auto_shutdown_restore = 1\n", ""),  # nothing is stopped that could be restored
    ],
)
def test_libvirt_itself_restores_domains(tmp_path, text, names):
    message = answer(tmp_path, {QEMU: text})
    assert message.partition(" in /etc/libvirt/qemu.conf")[0] == names
    assert not message or message.endswith("set auto_shutdown_restore = 0 there")
