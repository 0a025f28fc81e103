// SPDX-License-Identifier: MIT
// Everything a training program needs.
#pragma once

#include <ddprun/cuda.h>
#include <ddprun/ddp.h>
#include <ddprun/deadline.h>
#include <ddprun/error.h>
#include <ddprun/hash_store.h>
#include <ddprun/optimizer.h>
#include <ddprun/prefix_store.h>
#include <ddprun/process_group.h>
#include <ddprun/record.h>
#include <ddprun/sampler.h>
#include <ddprun/store.h>
#include <ddprun/stream.h>
#include <ddprun/tcp_store.h>
#include <ddprun/tensor_view.h>
#include <ddprun/work.h>
#include <ddprun/worker_env.h>
