// SPDX-License-Identifier: MIT
// All kernels as one unit: compiled into one image, which kernels.cpp loads.
#include "cuda/norm.cu"
#include "cuda/optim.cu"
#include "cuda/pack.cu"
