# shellcheck shell=sh
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Runs as root inside the root file system of the guests that are booted beside the lab, once, when it is built.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
kernel=$(basename /lib/modules/*-cloud-amd64)

# A small initial RAM disk for every kind of root. Only what the root needs is loaded.
sed -i 's/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=lz4/' /etc/initramfs-tools/initramfs.conf
printf '%s\n' virtio_pci virtio_blk > /etc/initramfs-tools/modules
cat > /etc/initramfs-tools/hooks/roots <<'SCRIPT'
#!/bin/sh
[ "$1" = prereqs ] && exit
. /usr/share/initramfs-tools/hook-functions
manual_add_modules ext4 xfs btrfs dm_mod overlay
SCRIPT
# With flexdisk.overlay on the kernel's command line, the root is an overlay over the disk, as live systems have it.
cat > /etc/initramfs-tools/scripts/init-bottom/overlay <<'SCRIPT'
#!/bin/sh
[ "$1" = prereqs ] && exit
read -r line < /proc/cmdline
case $line in *flexdisk.overlay*) ;; *) exit 0 ;; esac
mkdir -p /run/overlay /run/lower
mount -o move "$rootmnt" /run/lower
mount -t tmpfs tmpfs /run/overlay
mkdir /run/overlay/upper /run/overlay/work
modprobe overlay
mount -t overlay -o lowerdir=/run/lower,upperdir=/run/overlay/upper,workdir=/run/overlay/work overlay "$rootmnt"
SCRIPT
chmod 755 /etc/initramfs-tools/hooks/roots /etc/initramfs-tools/scripts/init-bottom/overlay
update-initramfs -u -k "$kernel"

# Network: the emulator's fixed addresses.
echo guest > /etc/hostname
printf '127.0.0.1 localhost guest\n' > /etc/hosts
cat > /etc/systemd/network/lab.network <<'UNIT'
[Match]
Name=eth0
[Network]
Address=10.0.2.15/24
Gateway=10.0.2.2
LinkLocalAddressing=no
IPv6AcceptRA=no
UNIT
printf 'network: {config: disabled}\n' > /etc/cloud/cloud.cfg.d/90-lab.cfg
printf 'datasource_list: [NoCloud, None]\n' >> /etc/cloud/cloud.cfg.d/90-lab.cfg
systemctl set-default multi-user.target
systemctl enable systemd-networkd
systemctl disable systemd-networkd-wait-online
systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    fstrim.timer systemd-timesyncd.service getty.target
# What costs time under emulation and is not needed
systemctl mask lvm2-monitor.service lvm2-lvmpolld.socket systemd-binfmt.service proc-sys-fs-binfmt_misc.automount \
    sys-kernel-debug.mount sys-kernel-tracing.mount dev-mqueue.mount systemd-pstore.service systemd-update-utmp.service
cat > /etc/ssh/sshd_config.d/lab.conf <<'CONF'
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
UseDNS no
MaxSessions 64
CONF
ls /etc/ssh/ssh_host_*_key
install -d -m 700 /root/.ssh

: > /etc/machine-id
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/apt/apt.conf.d/99mmdebstrap
