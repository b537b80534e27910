# The suites in the test machine as entries of ctest. Sourced after common.sh, vm_image.sh and vm_stage.sh.
# shellcheck shell=bash
set -euo pipefail

# Machines to test on: the kernel of each, and what is added to its command line. "hybrid" has the older
# hierarchies of cgroups, with the unified one beside them.
# shellcheck disable=SC2034  # scripts/test has the list
VM_MACHINES=(12 13 hybrid)
declare -A VM_MACHINE_KERNEL=([12]=12 [13]=13 [hybrid]=12)
declare -A VM_MACHINE_APPEND=([12]='' [13]='' [hybrid]='systemd.unified_cgroup_hierarchy=0')

# What a machine may take to boot, and how long beyond its own limit an entry waits for a machine that does
# not answer (vm_machine.py waits 60 s and says so).
VM_BOOT_SECONDS=300
VM_PATIENCE=90

# Of the rounds of tests of chance: they take a hundred times as long there.
VM_PERCENT=2

# vm_entry NAME PROCESSORS TIMEOUT PROPERTIES COMMAND…: one ctest entry. Of both processors, unless its time
# tells nothing, as with those of egress: the machine has as many, and whatever ran beside it would be measured
# with it.
vm_entry() {
  local name=$1 processors=$2 timeout=$3 properties=$4
  shift 4
  printf 'add_test([==[%s]==]' "$name"
  printf ' [==[%s]==]' "$@"
  printf ')\nset_tests_properties([==[%s]==] PROPERTIES LABELS vm PROCESSORS %s TIMEOUT %s %s)\n' \
    "$name" "$processors" "$timeout" "$properties"
}

# vm_in MACHINE WHO SECONDS COMMAND…: prints nothing; sets VM_RUN to the command that runs it.
vm_in() {
  local machine=$1 who=$2 seconds=$3 uid=0
  shift 3
  [[ $who == root ]] || uid=1000
  VM_RUN=(python3 "$ROOT/scripts/lib/vm_machine.py" run --dir "$machine" --keys "${machine%/*}/keys"
    --user "$who" --limit "$seconds" -- env CI=true TEMENOS_MUST_WORK=1 TEMENOS_SLOW=1
    TEMENOS_PERCENT="$VM_PERCENT" TEMENOS_STAGE=/opt/temenos TEMENOS_TEST_USER=user
    TEMENOS_BIN=/opt/temenos/bin/temenos "XDG_CACHE_HOME=/var/tmp/temenos-test-cache-$uid" "$@")
}

# vm_machine_entries BUILD DIR NAME WHICH AFTER: what runs on one machine (WHICH: a regular expression of the
# suites' first column), and after which entry it boots.
vm_machine_entries() {
  local build=$1 dir=$2 name=$3 which=$4 after=$5 machine=$2/$3 when program who seconds filter user
  local processors alone
  local -a users=(root user)
  [[ $which != always ]] || users=(user)  # of root they have no boxes
  vm_entry "vm.$name.boot" 2 "$((VM_BOOT_SECONDS + VM_PATIENCE))" \
    "FIXTURES_SETUP vm$name-up ${after:+DEPENDS $after}" \
    python3 "$ROOT/scripts/lib/vm_machine.py" up --dir "$machine" --keys "$dir/keys" --image "$VM_IMAGE" \
    --stage "$dir/stage.img" --kernel "${VM_MACHINE_KERNEL[$name]}" \
    "--append=${VM_MACHINE_APPEND[$name]}" --limit "$VM_BOOT_SECONDS" --with-parent
  # The first box tries the platforms, and every later one relies on what was found.
  for user in "${users[@]}"; do
    vm_in "$machine" "$user" 240 /opt/temenos/bin/temenos doctor
    vm_entry "vm.$name.$user.doctor" 1 "$((240 + VM_PATIENCE))" \
      "FIXTURES_SETUP vm$name FIXTURES_REQUIRED vm$name-up" "${VM_RUN[@]}"
  done
  while read -r when program who seconds filter; do
    [[ -n $when && $when != '#'* ]] || continue
    # GoogleTest calls it a success when a filter names nothing.
    "$build/tests/$program" --gtest_list_tests "--gtest_filter=$filter" 2>>"$LOG" | grep -q '^  ' ||
      die "tests/vm/suites: $program has no test $filter" "correct the line, or build it"
    case $when in
      always | more | hybrid) [[ $when =~ ^($which)$ ]] || continue ;;
      *) die "tests/vm/suites: $when is neither always nor more nor hybrid" ;;
    esac
    case $who in
      both) who='root user' ;;
      root | user) ;;
      *) die "tests/vm/suites: $who is neither root nor user nor both" ;;
    esac
    processors=2 alone=''
    [[ $program != egress_* ]] || processors=1
    # It unloads and forbids modules.
    [[ $program != vm_modules_test ]] || alone='RUN_SERIAL TRUE'
    for user in $who; do
      vm_in "$machine" "$user" "$seconds" "/opt/temenos/tests/$program" "--gtest_filter=$filter"
      vm_entry "vm.$name.$user.$program$(vm_part "$filter")" "$processors" "$((seconds + VM_PATIENCE))" \
        "FIXTURES_REQUIRED vm$name-up\\;vm$name $alone" "${VM_RUN[@]}"
    done
  done <"$ROOT/tests/vm/suites"
  vm_entry "vm.$name.end" 2 120 "FIXTURES_CLEANUP vm$name-up" \
    python3 "$ROOT/scripts/lib/vm_machine.py" down --dir "$machine"
}

# vm_part FILTER: what tells entries of one program apart.
vm_part() { [[ $1 == '*' ]] || printf ':%s' "$1"; }

# vm_ctest BUILD DIR WHICH NAME…: stage, keys and DIR/CTestTestfile.cmake; the machines boot one after the
# other. WHICH: "always", or "more" for that and more.
vm_ctest() {
  local build=$1 dir=$2 which=$3 name after=''
  shift 3
  [[ $which != more ]] || which='always|more'
  mkdir -p "$dir"
  vm_stage "$build" "$dir"
  for name in "$@"; do
    [[ $name != hybrid ]] || which=hybrid
    vm_machine_entries "$build" "$dir" "$name" "$which" "$after"
    after=vm.$name.end
  done >"$dir/CTestTestfile.cmake"
}
