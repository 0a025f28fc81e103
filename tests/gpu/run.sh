#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks ddprun on one GPU in at most 7 minutes: kernels, NCCL, the product on top of both, and that CUDA keeps the rules by
# which the test doubles go. Needs no compiler and no network. No step stops another; each has a limit, and so have all of them
# together. Prints a table and ends with 1 when a step that is required has failed. Table and logs are kept in BUILD_DIR/gpu; with
# OUT set, table.txt and logs.tar.gz in that folder instead.
# usage: run.sh [--doubles] [BUILD_DIR]      (default: build/release; a folder that bundle.sh has filled is one too)
set -u
budget=420 # seconds
here=$(cd "$(dirname "$0")" && pwd)
doubles=
case ${1:-} in
  --doubles) doubles=1; shift ;;
  -*) echo "usage: run.sh [--doubles] [BUILD_DIR]" >&2; exit 2 ;;
esac
build=${1:-$here/../../build/release}
[ -d "$build/bin" ] || { echo "run.sh: $build/bin is missing; build the tests, or give the folder of a build" >&2; exit 2; }
build=$(cd "$build" && pwd)
bin=$build/bin
if [ -n "${OUT:-}" ]; then
  logs=$(mktemp -d) || exit 2
  table=$OUT/table.txt
  mkdir -p "$OUT" || exit 2
else
  logs=$build/gpu
  table=$logs/table.txt
  rm -rf "$logs"
  mkdir -p "$logs" || exit 2
fi
begin=$(date +%s)

# The path of a library that the loader does not know: where toolkits and Python wheels put it.
find_library() {
  ldconfig -p 2>/dev/null | grep -q "^[[:space:]]*$1 " && return
  python=$(command -v python3) || python=/usr/bin/python3
  for folder in /usr/local/cuda/lib64 /usr/lib/*-linux-gnu /usr/local/lib; do
    if [ -e "$folder/$1" ]; then echo "$folder/$1"; return; fi
  done
  for root in "${VIRTUAL_ENV:-/nonexistent}" "$(dirname "$python")/.." /opt/*/.venv /opt/* /usr /usr/local; do
    for found in "$root"/lib/python3*/*-packages/nvidia/*/lib/"$1"; do
      if [ -e "$found" ]; then echo "$found"; return; fi
    done
  done
  timeout 10 find /opt /usr /home /root -name "$1" -not -path '*/stubs/*' 2>/dev/null | head -n 1
}

row() {  # name, result, seconds, figure
  number=$((number + 1))
  printf '%-3s %-26s %-22s %4s  %s\n' $number "$1" "$2" "$3" "$4" | tee -a "$table"
}

# step required|info LIMIT NAME COMMAND...
step() {
  need=$1 limit=$2 name=$3
  shift 3
  start=$(date +%s)
  left=$((begin + budget - start))
  if [ $left -lt 5 ]; then row "$name" "skipped: no time left" 0 ""; return; fi
  if [ "$limit" -gt $left ]; then limit=$left; fi
  log=$logs/$((number + 1))-$(echo "$name" | tr ' ' '_').log
  timeout -k 2 "$limit" "$@" >"$log" 2>&1
  status=$?
  case $status in
    0) result=ok ;;
    77) result=skipped ;;
    124 | 137) result="TIMEOUT ($limit s)" ;;
    *) result="FAILED ($status)" ;;
  esac
  if [ $status -ne 0 ] && [ $status -ne 77 ]; then
    if [ "$need" = required ]; then failed=1; else result="$result, info"; fi
  fi
  figure=$(grep '^figure ' "$log" | tail -n 1 | cut -c 8-)
  failure=$(grep -E '^FAILED|^skipped|ERROR:|Error: |error while loading' "$log" | head -n 1 | cut -c 1-150)
  if [ $status -ne 0 ] && [ -n "$failure" ]; then figure=$failure; fi
  if [ -z "$figure" ]; then figure=$(grep -E '^\[doctest\] assertions|: OK$|^final:' "$log" | tail -n 1 | cut -c 1-150); fi
  row "$name" "$result" $(($(date +%s) - start)) "$figure"
}

needs_gpu() {  # like step; over the doubles a line instead
  if [ -z "$doubles" ]; then step "$@"; else row "$3" "skipped: needs a GPU" 0 ""; fi
}

program() {  # like step; a line instead where the build has no such program. It links CUDA and, in a bundle, our libraries.
  if [ ! -x "$4" ]; then row "$3" "skipped: not in build" 0 ""; return; fi
  need=$1 limit=$2 name=$3
  shift 3
  step "$need" "$limit" "$name" env LD_LIBRARY_PATH="$build/lib:$cuda_folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
}

pair() {  # need, limit, name, program, mode: two ranks on one GPU
  step "$1" "$2" "$3" env NCCL_MAX_CTAS=2 NCCL_CUMEM_ENABLE=0 NCCL_NET=Socket NCCL_MULTI_RANK_GPU_ENABLE=1 \
    "$here/pair.sh" "$bin/$4" "$5" "$logs/meeting"
}

export NCCL_DEBUG=WARN NCCL_SOCKET_IFNAME=lo NCCL_RAS_ENABLE=0
numel=1073741824
if [ -n "$doubles" ]; then
  export DDPRUN_CUDART_LIB="$build/doubles/cuda/libcudart.so.13" DDPRUN_NCCL_LIB="$build/doubles/nccl-2.28/libnccl.so.2"
  export DDPRUN_ALLOW_TEST_DOUBLES=1
  numel=65536
else
  : "${DDPRUN_CUDART_LIB:=$(find_library libcudart.so.13)}" "${DDPRUN_NCCL_LIB:=$(find_library libnccl.so.2)}"
  if [ -n "$DDPRUN_CUDART_LIB" ]; then export DDPRUN_CUDART_LIB; else unset DDPRUN_CUDART_LIB; fi
  if [ -n "$DDPRUN_NCCL_LIB" ]; then export DDPRUN_NCCL_LIB; else unset DDPRUN_NCCL_LIB; fi
fi
cuda_folder=$(dirname "${DDPRUN_CUDART_LIB:-/usr/local/cuda/lib64/libcudart.so.13}")

failed=0
number=0
printf '%-3s %-26s %-22s %4s  %s\n' "" what result s figure | tee "$table"
needs_gpu info 20 "machine" sh -c 'nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem \
  --format=csv,noheader | sed "s/^/figure /"; echo "CUDA: ${DDPRUN_CUDART_LIB:-by the loader}"; echo "NCCL: ${DDPRUN_NCCL_LIB:-by the loader}"'
step required 20 "versions" "$bin/rules_check" versions
if [ $failed -ne 0 ]; then
  echo "run.sh: no GPU can be used, so that nothing else was checked; log: $log" >&2
  exit 1
fi
step required 60 "kernels against formulas" "$bin/unit_cuda_kernels"
program required 30 "one rank, flat bf16" "$bin/flat_bf16"
program required 40 "one rank, digits" "$bin/train_cuda" --epochs 3
step required 25 "NCCL operations" "$bin/nccl_check" operations
step required 30 "NCCL communicator" "$bin/nccl_check" communicator
step required 90 "kernel bandwidth" "$bin/kernel_check" bandwidth $numel
step required 30 "two ranks, one GPU" "$here/pair.sh" "$bin/nccl_check" duplicate "$logs/meeting"
step required 30 "abort under way" "$bin/nccl_check" abort
step required 30 "graph" "$bin/rules_check" graph
step required 20 "rules of the double" "$bin/rules_check" rules
pair info 45 "two ranks as two hosts" nccl_check two_hosts
pair info 45 "two ranks, DDP" product_check steps
pair info 45 "two ranks, abort" product_check abort
pair info 45 "two ranks, one killed" product_check killed
step info 20 "NCCL tail of one rank" "$bin/nccl_check" tail
step info 20 "NCCL registered memory" "$bin/nccl_check" memory
needs_gpu required 60 "memory checker" "$here/tool.sh" memory "$bin"
needs_gpu info 45 "memory traffic of AdamW" "$here/tool.sh" traffic "$bin"
needs_gpu info 25 "NCCL log" env NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,REG,TUNING "$bin/nccl_check" operations

if [ -n "${OUT:-}" ]; then
  tar -C "$logs" -czf "$OUT/logs.tar.gz" . && rm -rf "$logs"
  logs=$OUT/logs.tar.gz
fi
echo "logs: $logs"
exit $failed
