# The test machine's disk, kernels and initramfs, from Debian packages only; built once for what
# went into them and kept in $DEPS/vm. Sourced after common.sh and archive.sh.
# shellcheck shell=bash
set -euo pipefail

VM_KERNELS=(12 13)
declare -A VM_SUITE=([12]=bookworm [13]=trixie)
# Sparse: what it takes on the host is what is in it.
VM_DISK=8G
# What the initramfs needs to reach the disk. ext4 is built into one of the kernels.
VM_BOOT_MODULES=(virtio_pci virtio_blk ext4)

# vm_inputs: all that decides what the image is.
vm_inputs() {
  (cd "$ROOT" && cat scripts/lib/vm_image.sh scripts/lib/archive.sh &&
    find tests/vm/guest -type f -print0 | sort -z | xargs -0 sha256sum) && packages_of guest
}

# vm_kernel KERNEL: downloads it; unpacked in $1/kernel-KERNEL.
vm_kernel() {
  local new=$1 kernel=$2 name
  open_archive "${VM_SUITE[$kernel]}" amd64
  # The meta package's dependency is the kernel itself.
  name=$(own_apt apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)
  [[ $name == linux-image-*-cloud-amd64 ]] ||
    die "$(debian_mirror) ${VM_SUITE[$kernel]} has no linux-image-cloud-amd64" "try another mirror"
  archive_download "$name"
  logged "unpacking $name" dpkg-deb -x "$(archive_file "$name")" "$new/kernel-$kernel"
  # Debian 12's has its modules in /lib.
  [[ -d $new/kernel-$kernel/usr/lib/modules ]] || mv "$new/kernel-$kernel/lib" "$new/kernel-$kernel/usr/"
  basename "$(archive_file "$name")" >>"$new/versions.txt"
}

# vm_rootfs NEW: NEW/root.tar, with the modules of all kernels.
vm_rootfs() {
  local new=$1 packages kernel proxy
  tar -C "$ROOT/tests/vm/guest/files" --owner=0 --group=0 --numeric-owner -cf "$new/files.tar" .
  for kernel in "${VM_KERNELS[@]}"; do
    tar -C "$new/kernel-$kernel" --owner=0 --group=0 --numeric-owner -rf "$new/files.tar" \
      usr/lib/modules
  done
  packages=$(packages_of guest | sort -u | paste -sd,)
  local -a options=()
  # mmdebstrap's apt does not read the system's settings; what it needs of them is the way out.
  while read -r proxy; do
    options+=("--aptopt=$proxy")
  done < <(apt-config dump --format '%F "%v";%n' | grep -E '^Acquire::https?::Proxy ' || true)
  # As an ordinary user the hooks run with other ids: they get files as a tar, and a script in it.
  logged "making the test machine's root" mmdebstrap --variant=minbase --format=tar \
    --include="$packages" --dpkgopt=force-unsafe-io --aptopt='Acquire::Retries "3"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' "${options[@]}" \
    --customize-hook="tar-in $new/files.tar /" \
    --customize-hook="chroot \"\$1\" /bin/sh -eu /root/customize" \
    bookworm "$new/root.tar" "$(archive_source bookworm amd64)"
}

# vm_initramfs NEW KERNEL: a shell, the modules that lead to the disk, and an init.
vm_initramfs() {
  local new=$1 kernel=$2 tree=$1/initramfs-$2 release modules name
  mkdir -p "$tree"/{bin,dev,lib,proc,root,sys}
  release=$(basename "$new/kernel-$kernel"/usr/lib/modules/*)
  modules=$new/root/usr/lib/modules/$release
  # As modprobe would: what a module needs stands behind it in modules.dep, the last first.
  for name in "${VM_BOOT_MODULES[@]}"; do
    grep -qE "/$name\.ko" "$modules/modules.builtin" && continue
    grep -E "/$name\.ko[.a-z]*:" "$modules/modules.dep" || die "kernel $release has no $name"
  done | awk '{ sub(":", ""); for (i = NF; i > 0; i--) if (!seen[$i]++) print $i }' |
    while read -r name; do
      case $name in
        *.xz) xz -dc "$modules/$name" >"$tree/lib/$(basename "$name" .xz)" ;;
        *) cp "$modules/$name" "$tree/lib/" ;;
      esac
      basename "$name" .xz >>"$tree/lib/order"
    done
  cp "$new/root/bin/busybox" "$tree/bin/busybox"
  install -m 0755 "$ROOT/tests/vm/guest/initramfs-init" "$tree/init"
  # Not compressed: the emulated processor would take longer to unpack it than the host to read it.
  (cd "$tree" && find . | cpio --quiet -o -H newc -R 0:0) >"$new/initrd-$kernel"
  cp "$new/kernel-$kernel/boot/vmlinuz-$release" "$new/vmlinuz-$kernel"
}

# As root, or with the ids of a user namespace: files keep their owners on the way to the image.
as_owner_of_ids() {
  if ((EUID == 0)); then "$@"; else unshare --map-root-user --map-auto -- "$@"; fi
}

# make_ext4 IMAGE DIR SIZE LABEL: without a mount.
make_ext4() {
  rm -f "$1"
  mke2fs -q -t ext4 -L "$4" -d "$2" -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 -m 0 "$1" "$3"
}

# Sets VM_IMAGE to the directory with root.img, vmlinuz-KERNEL and initrd-KERNEL.
ensure_vm_image() {
  local key new kernel
  key=$(vm_inputs | sha256sum | cut -c1-16)
  VM_IMAGE=$DEPS/vm/$key
  if [[ -f $VM_IMAGE/versions.txt ]]; then
    say "  the test machine's image is there"
    return
  fi
  say "  making the test machine's image (some minutes; kept until what goes into it changes)"
  new=$DEPS/vm/new
  as_owner_of_ids rm -rf "$DEPS/vm"
  mkdir -p "$new"
  for kernel in "${VM_KERNELS[@]}"; do vm_kernel "$new" "$kernel"; done
  vm_rootfs "$new"
  mkdir -m 0700 "$new/root"
  logged "unpacking the root" as_owner_of_ids tar -C "$new/root" --numeric-owner --exclude='./dev/*' \
    -xpf "$new/root.tar"
  logged "making its file system" as_owner_of_ids bash -c \
    "$(declare -f make_ext4); make_ext4 \"\$@\"" _ "$new/root.img" "$new/root" "$VM_DISK" temenos-root
  for kernel in "${VM_KERNELS[@]}"; do vm_initramfs "$new" "$kernel"; done
  as_owner_of_ids rm -rf "$new"/{root,root.tar,files.tar,kernel-*,initramfs-*}
  mv "$new" "$VM_IMAGE"
}
