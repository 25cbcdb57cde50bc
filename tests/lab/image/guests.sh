# shellcheck shell=sh
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Runs as root inside the new root file system after customize.sh, where the lab is to have guests.
export LC_ALL=C

cat > /etc/systemd/network/guests.netdev <<'UNIT'
[NetDev]
Name=guests
Kind=bridge
UNIT
cat > /etc/systemd/network/guests.network <<'UNIT'
[Match]
Name=guests
[Network]
Address=192.168.76.1/24
ConfigureWithoutCarrier=yes
LinkLocalAddressing=no
IPv6AcceptRA=no
UNIT

# libvirt: starts when it is asked for and then stays; neither guests nor networks are started or saved by themselves.
systemctl disable libvirtd.service libvirt-guests.service
systemctl enable libvirtd.socket libvirtd-ro.socket virtlogd.socket virtlockd.socket
echo 'LIBVIRTD_ARGS=' > /etc/default/libvirtd
rm -f /etc/libvirt/qemu/networks/autostart/*

# What guests have on their disks is none of the hypervisor's business.
cat > /etc/lvm/lvmlocal.conf <<'CONF'
devices {
    global_filter = [ "r|^/dev/zd|", "r|^/dev/zvol/|", "a|.*|" ]
}
CONF
systemctl mask lvm2-monitor.service lvm2-lvmpolld.socket blk-availability.service
