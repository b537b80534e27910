# What setup and test share: messages, the log, where things go, Debian packages.
# Sourced; ROOT is the checkout.
# shellcheck shell=bash
set -euo pipefail

# Whatever the caller's umask: other accounts (and a box's ids) must be able to read the programs.
umask 022
export LC_ALL=C.UTF-8

say() { printf '%s\n' "$*"; }
die() {
  printf 'temenos: %s\n' "$1" >&2
  shift
  local line
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 1
}

writable_or_absent() { [[ ! -e $1 || -w $1 ]]; }

# Downloads and builds lie in the checkout, or in the user's cache when that cannot be written.
find_work_dir() {
  if [[ -w $ROOT ]] && writable_or_absent "$ROOT/.deps" && writable_or_absent "$ROOT/build"; then
    WORK=$ROOT
  else
    [[ -n ${HOME-} ]] || die "HOME is not set and $ROOT cannot be written" "set HOME"
    local key
    key=$(printf %s "$ROOT" | sha256sum | cut -c1-12)
    WORK=${XDG_CACHE_HOME:-$HOME/.cache}/temenos/$key
  fi
  DEPS=$WORK/.deps
  mkdir -p "$DEPS" "$WORK/build"
  LOG=$DEPS/${0##*/}.log
}

choose_work_dir() {
  find_work_dir
  # One setup or test at a time in one checkout: both write the same build trees.
  exec {LOCK_FD}>"$DEPS/lock"
  flock -n "$LOCK_FD" || die "another setup or test is at work in $WORK" "wait until it has ended"
  : >"$LOG"
}

# logged WHAT CMD…: runs CMD with its output in the log; a failure shows the log's tail and ends us.
logged() {
  local what=$1
  shift
  printf '\n# %s\n# %s\n' "$what" "$*" >>"$LOG"
  if ! "$@" >>"$LOG" 2>&1 </dev/null {LOCK_FD}>&-; then
    printf 'temenos: %s failed; the end of %s:\n' "$what" "$LOG" >&2
    tail -n 25 "$LOG" | sed 's/^/  | /' >&2
    exit 1
  fi
}

check_system() {
  local id='' version='' pretty='an unknown system'
  if [[ -r /etc/os-release ]]; then
    id=$(. /etc/os-release && printf %s "${ID-}")
    version=$(. /etc/os-release && printf %s "${VERSION_ID-}")
    pretty=$(. /etc/os-release && printf %s "${PRETTY_NAME-}")
  fi
  SYSTEM="$pretty, $(uname -m)"
  if [[ $id != debian || $version != 12 || $(uname -m) != x86_64 ]]; then
    die "this is $SYSTEM; temenos is built and tested on Debian 12 (x86_64) only" \
      "run it in a Debian 12 virtual machine, or build it by hand as CONTRIBUTING.md tells"
  fi
}

# packages_of GROUP…: their names, from the one list.
packages_of() {
  local group
  for group in "$@"; do
    awk -v group="$group" '$1 == group { print $2 }' "$ROOT/scripts/packages.txt"
  done
}

# ensure_packages GROUP…: installs what is missing. With nothing missing it needs no rights at all.
ensure_packages() {
  local -a wanted missing=()
  mapfile -t wanted < <(packages_of "$@")
  local name present
  present=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null || true)
  for name in "${wanted[@]}"; do
    grep -qxF "installed $name" <<<"$present" || missing+=("$name")
  done
  if ((${#missing[@]} == 0)); then
    say "  all ${#wanted[@]} Debian packages are there"
    return
  fi
  local -a become=()
  if ((EUID != 0)); then
    become=(sudo)
    [[ -t 0 ]] || become+=(-n)
    if ! command -v sudo >/dev/null || ! "${become[@]}" true; then
      die "packages are missing and this account cannot install them; as root, run:" \
        "apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    fi
  fi
  say "  installing ${missing[*]}"
  become+=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300
    -o Acquire::Retries=3)
  # A broken third-party source must not stop us: what counts is whether the install works.
  printf '\n# apt-get update\n' >>"$LOG"
  "${become[@]}" update >>"$LOG" 2>&1 </dev/null || say "  apt-get update had errors; going on"
  logged "installing Debian packages" \
    "${become[@]}" install -y --no-install-recommends "${missing[@]}"
}

# configure PRESET DIR [CMAKE_ARG…]; a tree that came from another place is configured from scratch.
configure() {
  local preset=$1 dir=$2
  shift 2
  local -a fresh=()
  local from=''
  if [[ -r $dir/CMakeCache.txt ]]; then
    from=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$dir/CMakeCache.txt")
    [[ $from == "$ROOT" ]] || fresh=(--fresh)
  fi
  cd "$ROOT"
  logged "configuring $preset" cmake --preset "$preset" -B "$dir" "${fresh[@]}" "$@"
}

# A compiler needs up to a gigabyte.
job_count() {
  local cores gigabytes
  cores=$(nproc)
  gigabytes=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  ((gigabytes >= 1)) || gigabytes=1
  printf %s "$((cores < gigabytes ? cores : gigabytes))"
}
