// SPDX-License-Identifier: MIT
// Lets one function be compiled for the GPU and, by a C++ compiler that has never heard of CUDA,
// for the CPU.
#pragma once

#if !defined(__CUDACC__) && !defined(__host__)
#define __host__
#define __device__
#endif
