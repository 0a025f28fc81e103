#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs a mode of nccl_check as two processes on one GPU, with different host names for NCCL when the mode wants two hosts.
# usage: pair.sh NCCL_CHECK MODE FILE      FILE: where they meet
set -u
check=$1 mode=$2 meeting=$3
rm -f "$meeting"
if [ "$mode" = two_hosts ]; then export NCCL_HOSTID=first; fi
"$check" "$mode" 0 "$meeting" &
first=$!
if [ "$mode" = two_hosts ]; then export NCCL_HOSTID=second; fi
"$check" "$mode" 1 "$meeting"
second_status=$?
wait $first && exit $second_status
