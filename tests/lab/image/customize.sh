# shellcheck shell=sh
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Runs as root inside the new root file system, once, when the lab image is built.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
kernel=$(basename /lib/modules/*-cloud-amd64)
echo "lab: kernel $kernel"

# ZFS: built for the installed kernel, kept when the compiler goes.
dkms autoinstall -k "$kernel"
ls -l "/lib/modules/$kernel/updates/dkms/"
cp -a "/lib/modules/$kernel/updates/dkms" "/lib/modules/$kernel/zfs-kept"
headers=$(dpkg-query -W -f '${Package} ' 'linux-headers-*')
# shellcheck disable=SC2086
apt-get -y -o APT::AutoRemove::SuggestsImportant=false -o APT::AutoRemove::RecommendsImportant=false \
    --auto-remove purge zfs-dkms dkms $headers
rm -rf /var/lib/dkms "/lib/modules/$kernel/updates"
mkdir -p "/lib/modules/$kernel/updates"
mv "/lib/modules/$kernel/zfs-kept" "/lib/modules/$kernel/updates/zfs"
depmod "$kernel"
modinfo -k "$kernel" -F version zfs

echo zfs > /etc/modules-load.d/zfs.conf
echo 'options zfs zfs_arc_max=268435456' > /etc/modprobe.d/zfs.conf

# A small initial RAM disk: only the root disk is needed there.
sed -i 's/^MODULES=.*/MODULES=list/' /etc/initramfs-tools/initramfs.conf
printf '%s\n' virtio_pci virtio_blk ext4 > /etc/initramfs-tools/modules
update-initramfs -u -k "$kernel"

# Network: the emulator's fixed addresses.
echo lab01 > /etc/hostname
printf '127.0.0.1 localhost lab01\n' > /etc/hosts
cat > /etc/systemd/network/lab.network <<'UNIT'
[Match]
Name=eth0
[Network]
Address=10.0.2.15/24
Gateway=10.0.2.2
LinkLocalAddressing=no
IPv6AcceptRA=no
UNIT
systemctl set-default multi-user.target
systemctl enable systemd-networkd
systemctl disable systemd-networkd-wait-online
systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    fstrim.timer systemd-timesyncd.service getty.target

# The run's public key comes on the kernel command line, so that the image holds no secret of any run.
cat > /usr/local/sbin/lab-authorized-key <<'SCRIPT'
#!/bin/sh
sed -n 's/.*flexdisk\.key=\([A-Za-z0-9+\/=]*\).*/ssh-ed25519 \1/p' /proc/cmdline
SCRIPT
chmod 755 /usr/local/sbin/lab-authorized-key
cat > /etc/ssh/sshd_config.d/lab.conf <<'CONF'
PermitRootLogin prohibit-password
PasswordAuthentication no
AuthorizedKeysCommand /usr/local/sbin/lab-authorized-key
AuthorizedKeysCommandUser nobody
UsePAM no
UseDNS no
MaxSessions 64
CONF
ls /etc/ssh/ssh_host_*_key

echo '/dev/vda / ext4 noatime 0 1' > /etc/fstab
: > /etc/machine-id
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/apt/apt.conf.d/99mmdebstrap
