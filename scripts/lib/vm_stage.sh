# What a test machine gets from a build tree: the project as it is installed, its tests, and keys of
# this one run. Sourced after common.sh, runsc.sh and vm_image.sh.
# shellcheck shell=bash
set -euo pipefail

# vm_tree BUILD TREE: TREE/bin, TREE/libexec and TREE/tests.
vm_tree() {
  local build=$1 tree=$2
  rm -rf "$tree"
  mkdir -p "$tree/tests"
  logged "installing for the machine" cmake --install "$build" --prefix "$tree"
  place_runsc "$RUNSC" "$tree/libexec/temenos/runsc"
  find "$build/tests" -maxdepth 1 -type f -perm -u+x -exec cp -t "$tree/tests" {} +
  chmod -R u=rwX,go=rX "$tree"
}

# vm_stage BUILD MACHINE: MACHINE/stage.img and MACHINE/keys.
vm_stage() {
  local build=$1 machine=$2 tree=$2/stage size
  vm_tree "$build" "$tree"
  rm -rf "$machine/keys"
  mkdir -m 0700 "$machine/keys"
  ssh-keygen -q -t ed25519 -N '' -C temenos-vm -f "$machine/keys/client"
  ssh-keygen -q -t ed25519 -N '' -C temenos-vm -f "$machine/keys/host"
  echo "temenos-vm $(<"$machine/keys/host.pub")" >"$machine/keys/known_hosts"
  mkdir "$tree/keys"
  install -m 0600 "$machine/keys/host" "$tree/keys/host"
  install -m 0644 "$machine/keys/client.pub" "$tree/keys/authorized"
  size=$(du -sm "$tree" | cut -f1)
  logged "making the machine's second disk" as_owner_of_ids bash -c \
    "$(declare -f make_ext4); make_ext4 \"\$@\"" _ "$machine/stage.img" "$tree" \
    "$((size + size / 8 + 32))M" temenos-stage
  rm -rf "$tree"
}

# vm_push BUILD MACHINE: programs and tests that were built since the last stage or push, into the machine
# that is up. There the prefix becomes a copy that can be written.
vm_push() {
  local build=$1 machine=$2 stamp=$2/pushed
  local -a files
  [[ $stamp -nt $machine/stage.img ]] || touch -r "$machine/stage.img" "$stamp"
  touch "$stamp.new"
  mapfile -t files < <(cd "$build" && find bin libexec tests -name CMakeFiles -prune -o \
    -type f -perm -u+x -newer "$stamp" -print)
  say "  ${#files[@]} files are new"
  ((${#files[@]} == 0)) ||
    tar -C "$build" --owner=0 --group=0 --mode=go=rX -cf - "${files[@]}" |
    vm run --keys "$machine/keys" --user root -- temenos-vm-push
  mv "$stamp.new" "$stamp"
}
