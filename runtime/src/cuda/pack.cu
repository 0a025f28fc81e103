// SPDX-License-Identifier: MIT
// Copies with a change of type and a factor: of one range, and between scattered tensors and a flat
// buffer.
#include "base/device_kernels.h"
#include "cuda/element_loop.h"

namespace ddprun {
namespace {

__device__ void convert_f64(Share share, void* out, const void* in, std::size_t numel,
                            double factor) {
  for_each_element(
      share, numel, [=](double from, double& to) { to = from * factor; },
      In<double>{static_cast<const double*>(in)}, Out<double>{static_cast<double*>(out)});
}

__device__ void convert(Share share, void* out, DType out_type, const void* in, DType in_type,
                        std::size_t numel, double factor) {
  if (in_type == DType::f64) return convert_f64(share, out, in, numel, factor);
  const float f = static_cast<float>(factor);
  with_type(in_type, [=](auto in_element) {
    using InType = decltype(in_element);
    with_type(out_type, [=](auto out_element) {
      using OutType = decltype(out_element);
      for_each_element(
          share, numel, [=](InType from, OutType& to) { to = round_to<OutType>(to_f32(from) * f); },
          In<InType>{static_cast<const InType*>(in)}, Out<OutType>{static_cast<OutType*>(out)});
    });
  });
}

__device__ std::size_t bytes_of(DType dtype) {
  return dtype == DType::f64 ? 8 : dtype == DType::f32 ? 4 : 2;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256) ddprun_cast(CastArguments a) {
  convert(share_of_grid(), a.out, a.out_type, a.in, a.in_type, a.numel, a.factor);
}

extern "C" __global__ void __launch_bounds__(256) ddprun_pack(PackArguments a) {
  for (std::size_t c = blockIdx.x; c < a.chunk_count; c += gridDim.x) {
    const Chunk chunk = a.chunks[c];
    void* const data = static_cast<char*>(a.origin) + chunk.place;
    void* const flat = static_cast<char*>(a.flat) + chunk.offset * bytes_of(a.flat_type);
    if (a.into_flat)
      convert(share_of_block(), flat, a.flat_type, data, a.chunk_type, chunk.numel, a.factor);
    else
      convert(share_of_block(), data, a.chunk_type, flat, a.flat_type, chunk.numel, a.factor);
  }
}

}  // namespace ddprun
