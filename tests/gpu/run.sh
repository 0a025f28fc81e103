#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks ddprun on one GPU in at most 7 minutes: kernels, NCCL, and that CUDA keeps the rules by which the test doubles go.
# Needs no compiler and no network. No step stops another; each has a limit. Prints a table and ends with 1 when a step that
# is required has failed. Logs are kept in $OUT, or build/gpu.
# usage: run.sh [--doubles] [BUILD_DIR]      (default: build/release; a folder that bundle.sh has filled is one too)
set -u
here=$(cd "$(dirname "$0")" && pwd)
doubles=
if [ "${1:-}" = --doubles ]; then doubles=1; shift; fi
build=${1:-$here/../../build/release}
[ -d "$build/bin" ] || { echo "run.sh: $build/bin is missing; build the tests, or give the folder of a build" >&2; exit 2; }
build=$(cd "$build" && pwd)
bin=$build/bin
out=${OUT:-$build/gpu}
mkdir -p "$out" || exit 2
export LD_LIBRARY_PATH="$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export NCCL_DEBUG=WARN NCCL_SOCKET_IFNAME=lo NCCL_RAS_ENABLE=0
numel=1073741824
if [ -n "$doubles" ]; then
  export DDPRUN_CUDART_LIB="$build/doubles/cuda/libcudart.so.13" DDPRUN_NCCL_LIB="$build/doubles/nccl-2.28/libnccl.so.2"
  export DDPRUN_ALLOW_TEST_DOUBLES=1
  numel=65536
elif [ -z "${DDPRUN_NCCL_LIB:-}" ]; then
  # Wheels lie in many places; the real one is large.
  found=$(timeout 20 find / -xdev -name libnccl.so.2 -size +50M 2>/dev/null | head -n 1)
  if [ -n "$found" ]; then export DDPRUN_NCCL_LIB="$found"; fi
fi

table=$out/table.txt
failed=0
printf '%-4s %-28s %-22s %5s  %s\n' step what result s figure | tee "$table"

row() {  # number, name, result, seconds, figure
  printf '%-4s %-28s %-22s %5s  %s\n' "$1" "$2" "$3" "$4" "$5" | tee -a "$table"
}

# step NUMBER required|info LIMIT NAME COMMAND...
step() {
  number=$1 need=$2 limit=$3 name=$4
  shift 4
  log=$out/$number-$(echo "$name" | tr ' ' '_').log
  start=$(date +%s)
  timeout -k 2 "$limit" "$@" >"$log" 2>&1
  status=$?
  seconds=$(($(date +%s) - start))
  case $status in
    0) result=ok ;;
    77) result="skipped" ;;
    124 | 137) result="TIMEOUT" ;;
    *) result="FAILED ($status)" ;;
  esac
  figure=$(grep '^figure ' "$log" | tail -n 1 | cut -c 8-)
  if [ -z "$figure" ]; then figure=$(grep -E '^(FAILED|skipped|\[doctest\] assertions)' "$log" | head -n 1); fi
  if [ $status -ne 0 ] && [ $status -ne 77 ]; then
    if [ "$need" = required ]; then failed=1; else result="$result, info"; fi
  fi
  row "$number" "$name" "$result" "$seconds" "$figure"
}

needs_gpu() {  # over the doubles: a line instead of the step
  [ -z "$doubles" ] && return 1
  row "$1" "$2" "skipped: needs a GPU" 0 ""
}

tool() {  # where it is: on PATH, or where a toolkit puts it
  command -v "$1" || ls "/usr/local/cuda/bin/$1" 2>/dev/null
}

if [ -n "$doubles" ]; then
  needs_gpu 0 machine
else
  step 0 info 20 machine sh -c 'nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem \
    --format=csv,noheader | sed "s/^/figure /"; echo "NCCL: ${DDPRUN_NCCL_LIB:-by the loader}"'
fi
step 1 required 20 "versions" "$bin/rules_check" versions
step 2 required 60 "kernels against formulas" "$bin/unit_cuda_kernels"
step 3 required 90 "kernel bandwidth" "$bin/kernel_check" bandwidth $numel
step 4 required 25 "NCCL operations" "$bin/nccl_check" operations
step 5 info 20 "NCCL tail of one rank" "$bin/nccl_check" tail
step 6 info 20 "NCCL registered memory" "$bin/nccl_check" memory
step 7 required 30 "graph" "$bin/rules_check" graph
step 8 required 20 "rules of the double" "$bin/rules_check" rules
step 9 required 30 "two ranks, one GPU" "$here/pair.sh" "$bin/nccl_check" duplicate "$out/id"
needs_gpu 10 "two ranks as two hosts" ||
  step 10 info 45 "two ranks as two hosts" env NCCL_MAX_CTAS=2 NCCL_CUMEM_ENABLE=0 NCCL_NET=Socket NCCL_MULTI_RANK_GPU_ENABLE=1 \
    "$here/pair.sh" "$bin/nccl_check" two_hosts "$out/id"
step 11 required 30 "abort under way" "$bin/nccl_check" abort
if ! needs_gpu 12 "memory checker"; then
  checker=$(tool compute-sanitizer) || checker=
  profiler=$(tool ncu) || profiler=
  if [ -n "$checker" ]; then
    step 12 required 60 "memory checker" "$checker" --error-exitcode 9 "$bin/unit_cuda_kernels" --test-case="*step*,*Norm: finds*"
  else
    row 12 "memory checker" "skipped: not installed" 0 ""
  fi
  if [ -n "$profiler" ]; then
    step 12b info 30 "bytes of adamw" "$profiler" --metrics dram__bytes_read.sum,dram__bytes_write.sum -k ddprun_adamw -c 1 \
      "$bin/kernel_check" bandwidth 67108864
  fi
fi
needs_gpu 13 "NCCL log" ||
  step 13 info 25 "NCCL log" env NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,REG,TUNING "$bin/nccl_check" operations
echo "logs: $out"
exit $failed
