# Programs of servers that tests start themselves. Their packages are unpacked and not installed, because
# installed each would start its server on this machine. Sourced after common.sh.
# shellcheck shell=bash
set -euo pipefail
. "$ROOT/scripts/lib/archive.sh"

# Sets TEMENOS_SERVERS to the root of what is unpacked.
ensure_servers() {
  export TEMENOS_SERVERS=$DEPS/servers
  local -a wanted
  mapfile -t wanted < <(packages_of serve)
  if [[ -r $TEMENOS_SERVERS/packages && $(<"$TEMENOS_SERVERS/packages") == "${wanted[*]}" ]]; then
    return
  fi
  say "  unpacking ${wanted[*]}"
  rm -rf "$TEMENOS_SERVERS"
  mkdir -p "$TEMENOS_SERVERS"
  open_archive bookworm amd64
  local name
  for name in "${wanted[@]}"; do
    archive_download "$name"
    logged "unpacking $name" dpkg-deb -x "$(archive_file "$name")" "$TEMENOS_SERVERS"
  done
  printf '%s\n' "${wanted[*]}" >"$TEMENOS_SERVERS/packages"
  rm -rf "$DEPS/apt"
}
