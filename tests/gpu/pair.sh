#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs a mode of a check program as two processes on one GPU, which NCCL takes for two hosts unless the mode is "duplicate".
# In mode "killed" the second kills itself, and only the first is asked how it went.
# usage: pair.sh PROGRAM MODE FILE      FILE: where they meet
set -u
program=$1 mode=$2 meeting=$3
rm -f "$meeting" "$meeting.under_way"
if [ "$mode" != duplicate ]; then export NCCL_HOSTID=first; fi
"$program" "$mode" 0 "$meeting" &
first=$!
if [ "$mode" != duplicate ]; then export NCCL_HOSTID=second; fi
"$program" "$mode" 1 "$meeting"
second_status=$?
wait $first || exit $?
[ "$mode" = killed ] || exit $second_status
