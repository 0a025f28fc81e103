// SPDX-License-Identifier: MIT
// Device code: runs a function over the elements of several arrays, with loads and stores of 16
// bytes where all arrays can be brought to such an address at once, else one element at a time.
#pragma once

#include <ddprun/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/float16.h"

namespace ddprun {

/// The threads that share a loop: this one takes `first`, first + stride, ...
struct Share {
  std::size_t first, stride;
};

__device__ inline Share share_of_grid() {
  return {std::size_t{blockIdx.x} * blockDim.x + threadIdx.x, std::size_t{gridDim.x} * blockDim.x};
}
__device__ inline Share share_of_block() { return {threadIdx.x, blockDim.x}; }

/// N neighbours, moved at once.
template <class T, std::size_t N>
struct alignas(sizeof(T) * N) Pack {
  static constexpr std::size_t kCount = N;
  T at[N];
};

/// How a loop uses an array. A null one reads as zeros and is not written.
template <class T>
struct In {
  using Element = T;
  const T* data;
  template <std::size_t N>
  __device__ Pack<T, N> load(std::size_t i) const {
    return *reinterpret_cast<const Pack<T, N>*>(data + i);
  }
  template <std::size_t N>
  __device__ void store(std::size_t, const Pack<T, N>&) const {}
};

template <class T>
struct Out {
  using Element = T;
  T* data;
  template <std::size_t N>
  __device__ Pack<T, N> load(std::size_t) const {
    return {};
  }
  template <std::size_t N>
  __device__ void store(std::size_t i, const Pack<T, N>& pack) const {
    if (data != nullptr) *reinterpret_cast<Pack<T, N>*>(data + i) = pack;
  }
};

template <class T>
struct InOut {
  using Element = T;
  T* data;
  template <std::size_t N>
  __device__ Pack<T, N> load(std::size_t i) const {
    return data == nullptr ? Pack<T, N>{} : In<T>{data}.template load<N>(i);
  }
  template <std::size_t N>
  __device__ void store(std::size_t i, const Pack<T, N>& pack) const {
    Out<T>{data}.store(i, pack);
  }
};

/// How many elements come before all arrays are at the address of a Pack of N; numel if never.
template <std::size_t N, class... Arrays>
__device__ std::size_t head_of(std::size_t numel, Arrays... arrays) {
  for (std::size_t head = 0; head < N && head < numel; ++head) {
    const bool aligned =
        ((arrays.data == nullptr || reinterpret_cast<std::uintptr_t>(arrays.data + head) %
                                            (sizeof(typename Arrays::Element) * N) ==
                                        0) &&
         ...);
    if (aligned) return head;
  }
  return numel;
}

template <std::size_t N, class Body, class... Arrays>
__device__ void run_pack(std::size_t i, const Body& body, Arrays... arrays) {
  const auto run = [&](auto... packs) {
    body(packs...);
    (arrays.store(i, packs), ...);
  };
  run(arrays.template load<N>(i)...);
}

/// body(Pack&...): of 16 bytes in the widest type, or of one element at the ends.
template <class Body, class... Arrays>
__device__ void for_each_pack(Share share, std::size_t numel, const Body& body, Arrays... arrays) {
  constexpr std::size_t kWidest = [] {
    std::size_t widest = 0;
    ((widest =
          sizeof(typename Arrays::Element) > widest ? sizeof(typename Arrays::Element) : widest),
     ...);
    return widest;
  }();
  constexpr std::size_t N = 16 / kWidest;
  const std::size_t head = head_of<N>(numel, arrays...);
  const std::size_t packs = (numel - head) / N;
  for (std::size_t i = share.first; i < packs; i += share.stride)
    run_pack<N>(head + i * N, body, arrays...);
  for (std::size_t i = share.first; i < numel - packs * N; i += share.stride)
    run_pack<1>(i < head ? i : i + packs * N, body, arrays...);
}

/// The same packs in the same order for one array that is only read: without a store to end its
/// memory access, a thread must have several loads under way to keep up with the memory.
template <class T, class Body>
__device__ void read_packs(Share share, std::size_t numel, const Body& body, In<T> array) {
  constexpr std::size_t kAhead = 4;
  constexpr std::size_t N = 16 / sizeof(T);
  const std::size_t head = head_of<N>(numel, array);
  const std::size_t packs = (numel - head) / N;
  std::size_t i = share.first;
  for (; i + (kAhead - 1) * share.stride < packs; i += kAhead * share.stride) {
    Pack<T, N> ahead[kAhead];
    for (std::size_t k = 0; k < kAhead; ++k)
      ahead[k] = array.template load<N>(head + (i + k * share.stride) * N);
    for (const Pack<T, N>& pack : ahead) body(pack);
  }
  for (; i < packs; i += share.stride) run_pack<N>(head + i * N, body, array);
  for (i = share.first; i < numel - packs * N; i += share.stride)
    run_pack<1>(i < head ? i : i + packs * N, body, array);
}

/// body(element&...).
template <class Body, class... Arrays>
__device__ void for_each_element(Share share, std::size_t numel, const Body& body,
                                 Arrays... arrays) {
  const auto run = [&](auto& first, auto&... rest) {
    constexpr std::size_t kCount = std::remove_reference_t<decltype(first)>::kCount;
    for (std::size_t k = 0; k < kCount; ++k) body(first.at[k], rest.at[k]...);
  };
  for_each_pack(share, numel, run, arrays...);
}

/// body(T{}) with the type that `dtype` names. The host has refused every other one.
template <class Body>
__device__ void with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::bf16:
      return body(Bf16{});
    case DType::f16:
      return body(F16{});
    case DType::f64:
    case DType::i32:
    case DType::i64:
      break;
  }
}

}  // namespace ddprun
