# Single packages of another suite of Debian's archive, through apt, beside the system's.
# Nothing of the system is changed: apt gets its own source list, lists and cache, and keeps the
# system's keys and proxy settings. Sourced after common.sh.
# shellcheck shell=bash
set -euo pipefail

# own_apt PROGRAM ARG…: apt-get or apt-cache with directories of our own.
own_apt() {
  local program=$1
  shift
  # Without the sandbox user: root's apt would otherwise drop to an account that cannot reach a
  # checkout below /root.
  "$program" -q -o "Dir::Etc::sourcelist=$DEPS/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o "Dir::State::lists=$DEPS/apt/lists" -o "Dir::Cache=$DEPS/apt/cache" \
    -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3 \
    -o Acquire::AllowInsecureRepositories=false -o APT::Get::AllowUnauthenticated=false "$@"
}

debian_mirror() { printf %s "${TEMENOS_DEBIAN_MIRROR:-http://deb.debian.org/debian}"; }

# archive_source SUITE ARCH: the line of a source list, with the key that must have signed.
archive_source() {
  printf 'deb [arch=%s signed-by=%s] %s %s main\n' "$2" \
    /usr/share/keyrings/debian-archive-keyring.gpg "$(debian_mirror)" "$1"
}

# open_archive SUITE ARCH: own_apt is about this suite from now on; $DEPS/apt is empty but for its lists.
open_archive() {
  rm -rf "$DEPS/apt"
  mkdir -p "$DEPS/apt/lists/partial" "$DEPS/apt/cache/archives/partial"
  archive_source "$1" "$2" >"$DEPS/apt/sources.list"
  logged "reading the package list of $(debian_mirror) $1" own_apt apt-get update --error-on=any
}

# archive_download PACKAGE[=VERSION]: leaves the file in $DEPS/apt, as archive_file says.
archive_download() { cd "$DEPS/apt" && logged "downloading $1" own_apt apt-get download "$1"; }
archive_file() { find "$DEPS/apt" -maxdepth 1 -name "$1_*.deb"; }
