// SPDX-License-Identifier: MIT
// Fake NCCL: arithmetic. A multiplication by the user's scalar or by 1/n is done in the element
// type, then the products are summed; integers are summed, then divided. 16-bit types are summed in
// float in the order of ranks, and rounded once at the end.
#include "doubles/fake_nccl_reduce.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace ddprun::doubles {
namespace {

/// A bfloat16: the upper half of a float, rounded to nearest, ties to even.
struct Bfloat16 {
  std::uint16_t bits;

  Bfloat16() = default;
  explicit Bfloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool nan = (word & 0x7fffffff) > 0x7f800000;
    const std::uint32_t rounded = nan ? word | 0x400000 : word + 0x7fff + ((word >> 16) & 1);
    bits = static_cast<std::uint16_t>(rounded >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

/// What elements of a type are summed in.
template <class T>
using Sum = std::conditional_t<sizeof(T) == 2, float, std::conditional_t<sizeof(T) == 1, int, T>>;

template <class T>
constexpr bool kIsInteger = std::is_integral_v<T>;

template <class T>
T load(const std::byte* from, std::size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
Sum<T> put_together(Sum<T> a, Sum<T> b, NcclRedOp op) {
  switch (op) {
    case kProd:
      return a * b;
    case kMax:
      return std::max(a, b);
    case kMin:
      return std::min(a, b);
    default:
      if constexpr (std::is_signed_v<Sum<T>> && kIsInteger<T>)  // wraps
        return static_cast<Sum<T>>(static_cast<std::make_unsigned_t<Sum<T>>>(a) +
                                   static_cast<std::make_unsigned_t<Sum<T>>>(b));
      else
        return a + b;
  }
}

template <class T>
void reduce_typed(std::byte* out, const std::vector<const std::byte*>& sources, std::size_t count,
                  NcclRedOp op, double scalar) {
  const auto n = static_cast<int>(sources.size());
  const bool average = op == kAvg;
  const bool multiply = op >= kFirstOwnOp || (average && !kIsInteger<T>);
  const double wanted = average ? 1.0 / n : scalar;
  // Of double the factor is exact; of the others it is a float, rounded to the type.
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto factor = static_cast<Sum<T>>(static_cast<T>(static_cast<Wide>(wanted)));
  for (std::size_t i = 0; i < count; ++i) {
    Sum<T> all{};
    for (std::size_t rank = 0; rank < sources.size(); ++rank) {
      auto value = static_cast<Sum<T>>(load<T>(sources[rank], i));
      if (multiply) value = static_cast<Sum<T>>(static_cast<T>(value * factor));
      all = rank == 0 ? value : put_together<T>(all, value, op);
    }
    if (average && kIsInteger<T>) all = all / static_cast<Sum<T>>(n);
    const T result = static_cast<T>(all);
    std::memcpy(out + i * sizeof(T), &result, sizeof(T));
  }
}

/// Calls fn with a value of the C++ type of an NCCL type.
template <class Fn>
void with_type(NcclDataType type, Fn fn) {
  switch (type) {
    case 0:
      return fn(std::int8_t{});
    case 1:
      return fn(std::uint8_t{});
    case 2:
      return fn(std::int32_t{});
    case 3:
      return fn(std::uint32_t{});
    case 4:
      return fn(std::int64_t{});
    case 5:
      return fn(std::uint64_t{});
    case 6:
      return fn(_Float16{});
    case 7:
      return fn(float{});
    case 8:
      return fn(double{});
    case 9:
      return fn(Bfloat16{});
    default:
      return;
  }
}

}  // namespace

std::size_t bytes_of(NcclDataType type) {
  std::size_t bytes = 0;
  with_type(type, [&](auto value) { bytes = sizeof value; });
  return bytes;
}

double scalar_of(NcclDataType type, const void* scalar) {
  double result = 0;
  with_type(type, [&](auto value) {
    std::memcpy(&value, scalar, sizeof value);
    result = static_cast<double>(static_cast<Sum<decltype(value)>>(value));
  });
  return result;
}

void reduce(std::byte* out, const std::vector<const std::byte*>& sources, std::size_t count,
            NcclDataType type, NcclRedOp op, double scalar) {
  with_type(type,
            [&](auto value) { reduce_typed<decltype(value)>(out, sources, count, op, scalar); });
}

}  // namespace ddprun::doubles
