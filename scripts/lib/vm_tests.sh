# The suites in the test machine as entries of ctest. Sourced after common.sh and vm_stage.sh.
# shellcheck shell=bash
set -euo pipefail

# What a machine may take to boot, and how long beyond its own limit an entry waits for a machine that does
# not answer (vm_machine.py waits 60 s and says so).
VM_BOOT_SECONDS=300
VM_PATIENCE=90

# vm_entry NAME TIMEOUT PROPERTIES COMMAND…: one ctest entry. Both processors: the machine has as many, and
# whatever ran beside it would be measured with it.
vm_entry() {
  local name=$1 timeout=$2 properties=$3
  shift 3
  printf 'add_test([==[%s]==]' "$name"
  printf ' [==[%s]==]' "$@"
  printf ')\nset_tests_properties([==[%s]==] PROPERTIES LABELS vm PROCESSORS 2 TIMEOUT %s %s)\n' \
    "$name" "$timeout" "$properties"
}

# vm_in MACHINE WHO SECONDS COMMAND…: prints nothing; sets VM_RUN to the command that runs it.
vm_in() {
  local machine=$1 who=$2 seconds=$3 uid=0
  shift 3
  [[ $who == root ]] || uid=1000
  VM_RUN=(python3 "$ROOT/scripts/lib/vm_machine.py" run --dir "$machine" --keys "${machine%/*}/keys"
    --user "$who" --limit "$seconds" -- env CI=true TEMENOS_MUST_WORK=1 TEMENOS_SLOW=1
    TEMENOS_CRASH_PERCENT="${TEMENOS_CRASH_PERCENT-20}"
    TEMENOS_BIN=/opt/temenos/bin/temenos "XDG_CACHE_HOME=/var/tmp/temenos-test-cache-$uid" "$@")
}

# vm_machine_entries BUILD DIR KERNEL AFTER: what runs on one kernel, and after which entry it boots.
vm_machine_entries() {
  local build=$1 dir=$2 kernel=$3 after=$4 machine=$2/$3 program who seconds filter user
  vm_entry "vm.$kernel.boot" "$((VM_BOOT_SECONDS + VM_PATIENCE))" \
    "FIXTURES_SETUP vm$kernel-up ${after:+DEPENDS $after}" \
    python3 "$ROOT/scripts/lib/vm_machine.py" up --dir "$machine" --keys "$dir/keys" --image "$VM_IMAGE" \
    --stage "$dir/stage.img" --kernel "$kernel" --limit "$VM_BOOT_SECONDS" --with-parent
  # The first box tries the platforms, and every later one relies on what was found.
  for user in root user; do
    vm_in "$machine" "$user" 240 /opt/temenos/bin/temenos doctor
    vm_entry "vm.$kernel.$user.doctor" "$((240 + VM_PATIENCE))" \
      "FIXTURES_SETUP vm$kernel FIXTURES_REQUIRED vm$kernel-up" "${VM_RUN[@]}"
  done
  while read -r program who seconds filter; do
    [[ -n $program && $program != '#'* ]] || continue
    # GoogleTest calls it a success when a filter names nothing.
    "$build/tests/$program" --gtest_list_tests "--gtest_filter=$filter" 2>>"$LOG" | grep -q '^  ' ||
      die "tests/vm/suites: $program has no test $filter" "correct the line, or build it"
    case $who in
      both) who='root user' ;;
      root | user) ;;
      *) die "tests/vm/suites: $who is neither root nor user nor both" ;;
    esac
    for user in $who; do
      vm_in "$machine" "$user" "$seconds" "/opt/temenos/tests/$program" "--gtest_filter=$filter"
      vm_entry "vm.$kernel.$user.$program$(vm_part "$filter")" "$((seconds + VM_PATIENCE))" \
        "FIXTURES_REQUIRED vm$kernel-up\\;vm$kernel" "${VM_RUN[@]}"
    done
  done <"$ROOT/tests/vm/suites"
  vm_entry "vm.$kernel.end" 120 "FIXTURES_CLEANUP vm$kernel-up" \
    python3 "$ROOT/scripts/lib/vm_machine.py" down --dir "$machine"
}

# vm_part FILTER: what tells entries of one program apart.
vm_part() { [[ $1 == '*' ]] || printf ':%s' "$1"; }

# vm_ctest BUILD DIR KERNEL…: stage, keys and DIR/CTestTestfile.cmake; the machines boot one after the other.
vm_ctest() {
  local build=$1 dir=$2 kernel after=''
  shift 2
  mkdir -p "$dir"
  vm_stage "$build" "$dir"
  for kernel in "$@"; do
    vm_machine_entries "$build" "$dir" "$kernel" "$after"
    after=vm.$kernel.end
  done >"$dir/CTestTestfile.cmake"
}
