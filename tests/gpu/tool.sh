#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs a check under one of CUDA's tools; ends with 77 where the tool is missing or refuses this machine.
# usage: tool.sh memory BIN       device memory errors of the kernels, by compute-sanitizer
#        tool.sh traffic BIN      bytes that AdamW moves, against its floor, by ncu
set -u
mode=$1 bin=$2
numel=67108864

find_tool() {
  tool=$(command -v "$1" || ls "/usr/local/cuda/bin/$1" 2>/dev/null) || { echo "skipped: $1 is not installed"; exit 77; }
}

case $mode in
memory)
  find_tool compute-sanitizer
  said=$("$tool" --error-exitcode 9 "$bin/unit_cuda_kernels" --test-case="*step*,*Norm: finds*" 2>&1)
  status=$?
  echo "$said"
  case $said in
  *"not supported"*) echo "skipped: compute-sanitizer does not support this machine"; exit 77 ;;
  esac
  exit $status ;;
traffic)
  find_tool ncu
  said=$("$tool" --clock-control none --csv --print-units base --metrics dram__bytes_read.sum,dram__bytes_write.sum \
    -k ddprun_adamw -c 1 "$bin/kernel_check" adamw $numel 2>&1)
  echo "$said"
  echo "$said" | awk -F '"' -v numel=$numel '
    /dram__bytes_(read|write)/ { value = $(NF - 1); gsub(",", "", value); bytes += value }
    END {
      if (bytes == 0) { print "skipped: ncu reads no counters on this machine"; exit 77 }
      printf "figure AdamW moves %.1f bytes of memory per element (floor 28)\n", bytes / numel
    }' ;;
esac
