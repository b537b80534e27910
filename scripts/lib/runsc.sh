# gVisor's runsc of the version in scripts/runsc.lock, beside the system's. Sourced after common.sh.
# shellcheck shell=bash
set -euo pipefail
. "$ROOT/scripts/lib/archive.sh"

runsc_lock() { sed -n "s/^$1=//p" "$ROOT/scripts/runsc.lock"; }
has_sum() { [[ -f $1 && $(sha256sum <"$1") == "$2  -" ]]; }

# Leaves the downloaded package in RUNSC_DEB.
runsc_download() {
  local version=$1 suite
  suite=$(runsc_lock suite)
  open_archive "$suite" "$(runsc_lock arch)"
  local offered
  offered=$(own_apt apt-cache madison runsc | awk -F'|' '{ gsub(/ /, "", $2); print $2 }')
  if ! grep -qxF "$version" <<<"$offered"; then
    die "the archive no longer has runsc $version; $(debian_mirror) $suite offers: ${offered//$'\n'/, }" \
      "take it from a mirror that still has it: TEMENOS_DEBIAN_MIRROR=URL ./scripts/setup" \
      "or accept another, which then is written to scripts/runsc.lock:" \
      "./scripts/setup --accept-runsc ${offered%%$'\n'*}"
  fi
  archive_download "runsc=$version"
  RUNSC_DEB=$(archive_file runsc)
}

# Sets RUNSC to the checked program, downloading it when it is not there.
ensure_runsc() {
  local version deb_sum runsc_sum
  version=$(runsc_lock version)
  deb_sum=$(runsc_lock deb_sha256)
  runsc_sum=$(runsc_lock runsc_sha256)
  RUNSC=$DEPS/runsc/$version/runsc
  if has_sum "$RUNSC" "$runsc_sum"; then
    say "  runsc $version is there, checked"
    return
  fi
  say "  downloading runsc $version"
  runsc_download "$version"
  has_sum "$RUNSC_DEB" "$deb_sum" ||
    die "the downloaded $RUNSC_DEB does not have the sum in scripts/runsc.lock" \
      "do not use it; compare scripts/runsc.lock with the project's repository, then try again"
  logged "unpacking runsc" dpkg-deb -x "$RUNSC_DEB" "$DEPS/apt/unpacked"
  has_sum "$DEPS/apt/unpacked/usr/bin/runsc" "$runsc_sum" ||
    die "the runsc in $RUNSC_DEB does not have the sum in scripts/runsc.lock" \
      "do not use it; compare scripts/runsc.lock with the project's repository, then try again"
  place_runsc "$DEPS/apt/unpacked/usr/bin/runsc" "$RUNSC"
  rm -rf "$DEPS/apt"
}

# accept_runsc VERSION: the archive's signature vouches for it; its sums are pinned from now on.
accept_runsc() {
  local version=$1 lock=$ROOT/scripts/runsc.lock
  [[ -w $lock ]] || die "$lock cannot be written" "accept a version in a checkout of your own"
  runsc_download "$version"
  logged "unpacking runsc" dpkg-deb -x "$RUNSC_DEB" "$DEPS/apt/unpacked"
  local deb_sum runsc_sum
  deb_sum=$(sha256sum <"$RUNSC_DEB" | cut -d' ' -f1)
  runsc_sum=$(sha256sum <"$DEPS/apt/unpacked/usr/bin/runsc" | cut -d' ' -f1)
  sed -i -e "s/^version=.*/version=$version/" -e "s/^deb_sha256=.*/deb_sha256=$deb_sum/" \
    -e "s/^runsc_sha256=.*/runsc_sha256=$runsc_sum/" "$lock"
  say "  runsc $version is now the one in scripts/runsc.lock; it is not the tested one"
}

# place_runsc FROM TO: never half a file, and never a write into a program that runs.
place_runsc() {
  cmp -s "$1" "$2" && [[ -x $2 ]] && return
  mkdir -p "${2%/*}"
  install -m 0755 "$1" "$2.new.$$"
  mv -f "$2.new.$$" "$2"
}

# A release with the benchmark, in the tree that setup installs from; sets BENCH_BUILD.
build_bench() {
  BENCH_BUILD=$WORK/build/release
  configure release "$BENCH_BUILD"
  logged "building the benchmark" cmake --build "$BENCH_BUILD" -j "$(job_count)" --target temenos_bench
  place_runsc "$RUNSC" "$BENCH_BUILD/libexec/temenos/runsc"
}
