# shellcheck shell=sh
# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# sh -eu root.sh BASE DEVICE KIND UUID FOLDER KERNEL_ARGUMENTS DISK
# Makes a file system on DEVICE and puts the root file system BASE there, with the authorized_keys and fstab of FOLDER.
# With a DISK it gets GRUB, which gives the kernel these arguments. Runs in a mount namespace of its own.
base=$1 device=$2 kind=$3 uuid=$4 folder=$5 arguments=$6 disk=$7
target=$folder/target
mkdir "$target"

mount --bind /dev "$base/dev"
mount -t proc proc "$base/proc"
case $kind in
    ext4) chroot "$base" mkfs.ext4 -q -F -U "$uuid" "$device" ;;
    xfs) chroot "$base" mkfs.xfs -q -f -m uuid="$uuid" "$device" ;;
    btrfs) chroot "$base" mkfs.btrfs -q -f -U "$uuid" "$device" ;;
esac
umount "$base/dev" "$base/proc"

mount -t "$kind" "$device" "$target"
if [ "$kind" = btrfs ]; then
    mount --bind "$target" "$base/mnt"
    chroot "$base" btrfs -q subvolume create /mnt/@rootfs
    umount "$base/mnt" "$target"
    mount -t btrfs -o subvol=@rootfs "$device" "$target"
fi
cp -ax "$base/." "$target"
cp "$folder/fstab" "$target/etc/fstab"
cp "$folder/authorized_keys" "$target/root/.ssh/authorized_keys"

if [ "$disk" ]; then
    mkdir -p "$target/boot/grub"
    cat > "$target/boot/grub/grub.cfg" <<CONF
serial --unit=0
terminal_output serial
search --no-floppy --fs-uuid --set=root $uuid
linux /$(cd "$base" && echo boot/vmlinuz-*) $arguments
initrd /$(cd "$base" && echo boot/initrd.img-*)
boot
CONF
    mount --bind /dev "$target/dev"
    mount -t proc proc "$target/proc"
    mount --bind /sys "$target/sys"
    chroot "$target" grub-install --target=i386-pc "$disk"
    umount "$target/dev" "$target/proc" "$target/sys"
fi
umount "$target"
