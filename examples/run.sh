#!/usr/bin/env bash
# Builds ddprun and trains the digits with four ranks. Arguments go to the training program:
#   examples/run.sh [--epochs 5 ...]        RANKS=2 examples/run.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/conf/setup.sh"
need_packages "${build_packages[@]}"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "building in $root/build/release (the first time takes a minute or two)"
if ! (cd "$root" && cmake --preset release && cmake --build --preset release --target ddprun ddprun_plugins train) >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  exit 1
fi
bin=$root/build/release/bin
echo "ddprun --nproc_per_node ${RANKS:-4} ./train $*"
"$bin/ddprun" --nproc_per_node "${RANKS:-4}" "$bin/train" "$@"
