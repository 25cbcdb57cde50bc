# shellcheck shell=sh
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Runs as root in the lab: makes a root file system and a swap on a disk, from what the lab's guests have and an archive
# on stdin (small_root.sh), and an initial RAM disk that boots it.
# usage: DEVICE INITRD ROOT_START ROOT_SIZE SWAP_START SWAP_SIZE SWAP_UUID (bytes)
device=$1 initrd=$2
guest=/var/lib/guest/initrd.img
base=$(mktemp -d)
first=$(mktemp -d)

root=$(losetup --show -f -o "$3" --sizelimit "$4" "$device")
mkfs.ext4 -q -i 65536 -E lazy_itable_init=0 "$root"
mount "$root" "$base"
(cd "$base" && cpio -idu --quiet < $guest && tar -xf - && mkdir -p run tmp srv)
site=$(python3 -c 'import site; print(site.getsitepackages()[0])')
mkdir -p "$base$site"
cp -a "$site/." "$base$site" # with all that Python has compiled of Ansible's archives
echo "UUID=$7 none swap sw 0 0" > "$base/etc/fstab"
umount "$base"
losetup -d "$root"

swap=$(losetup --show -f -o "$5" --sizelimit "$6" "$device")
mkswap -q -U "$7" "$swap"
losetup -d "$swap"

cat > "$first/init" <<'SCRIPT'
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
modprobe -a virtio_blk virtio_pci
until [ -e /dev/vda1 ]; do sleep 0.1; done
mkdir /new
mount -t ext4 /dev/vda1 /new
umount /dev /sys
exec switch_root /new /init
SCRIPT
chmod 755 "$first/init"
# The kernel unpacks one archive after the other, and the later one has the last word.
(cat $guest && cd "$first" && find . | cpio -o -H newc --quiet) > "$initrd"
rm -r "$first" "$base"
