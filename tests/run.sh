#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test; prints what took how long.
#   tests/run.sh            plain; then unit and contract tests under ASan+UBSan and under TSan
#   tests/run.sh --long     the same with large counts, and the mutants
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
. conf/setup.sh
unset DDPRUN_TEST_LONG
case "${1:-}" in
  "") ;;
  --long) export DDPRUN_TEST_LONG=1 ;;
  *) echo "usage: tests/run.sh [--long]" >&2; exit 2 ;;
esac

passed=0 failed=0 table=""
jobs=${JOBS:-$(nproc)}

# step NAME COMMAND...: runs it, adds its time to the table, stops everything when it fails.
step() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  if ! "$@"; then
    echo "== $name FAILED after $((SECONDS - start)) s" >&2
    finish 1
  fi
  table+=$(printf '%-28s %5d s' "$name" $((SECONDS - start)))$'\n'
}

# Builds quietly; the output is shown when it fails.
quiet() {
  local log
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1; then
    tail -n 60 "$log"
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

build() {
  local preset=$1
  shift
  quiet cmake --preset "$preset" && quiet cmake --build --preset "$preset" -j "$jobs" "$@"
}

# Runs a test preset and counts what it ran.
count_tests() {
  local preset=$1 log status=0
  shift
  log=$(mktemp)
  ctest --preset "$preset" -j "$jobs" --no-tests=error "$@" 2>&1 | tee "$log" |
    { grep -vE '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test .* Passed)' || true; }
  status=${PIPESTATUS[0]}
  local ran bad
  ran=$(sed -nE 's/.*tests failed out of ([0-9]+)$/\1/p' "$log" | tail -n 1)
  bad=$(sed -nE 's/.*, ([0-9]+) tests failed out of [0-9]+$/\1/p' "$log" | tail -n 1)
  rm -f "$log"
  failed=$((failed + ${bad:-0}))
  passed=$((passed + ${ran:-0} - ${bad:-0}))
  return "$status"
}

finish() {
  local status=$1 floor
  floor=$(cat tests/floor.txt)
  printf '\n%s' "$table"
  printf '%-28s %5d s\n' "all" "$SECONDS"
  if [ "$status" -eq 0 ] && [ "$passed" -lt "$floor" ]; then
    echo "only $passed tests ran; tests/floor.txt asks for $floor: a test was lost" >&2
    status=1
  fi
  echo
  echo "$passed passed, $failed failed"
  exit "$status"
}

step "packages" need_packages "${build_packages[@]}" "${test_packages[@]}"
step "build release" build release
step "headers compile alone" quiet cmake --build --preset headers -j "$jobs"
step "tests release" count_tests release
for sanitizer in asan tsan; do
  step "build $sanitizer" build "$sanitizer" --target ddprun_sanitizer_tests
  step "tests $sanitizer" count_tests "$sanitizer" -L 'unit|contract'
done
if [ -n "${DDPRUN_TEST_LONG:-}" ]; then
  step "mutants" python3 tests/mutants/run.py
fi
finish 0
