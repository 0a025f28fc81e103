// SPDX-License-Identifier: MIT
// The fake NCCL: what its collectives compute.
#include <array>
#include <bit>

#include <doctest/doctest.h>

#include "unit/doubles/comms.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

constexpr NcclRedOp kProd = 1;

std::uint16_t bfloat16(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

float as_float(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

}  // namespace

TEST_SUITE("doubles") {
  TEST_CASE("fake collectives: sums and extremes of 1, 2, 3 and 8 ranks") {
    for (const int n : {1, 2, 3, 8}) {
      run_comms(n, [](const Rank& self) {
        const auto mine = static_cast<float>(self.rank + 1), size = static_cast<float>(self.size);
        // More than a rank can hand over at once.
        const std::vector<float> many(200'003, mine);
        CHECK(all_reduce(self, many, kNcclFloat32, kNcclSum).back() == size * (size + 1) / 2);
        const std::vector<double> wide{static_cast<double>(mine)};
        CHECK(all_reduce(self, wide, kNcclFloat64, kNcclMax)[0] == size);
        CHECK(all_reduce(self, wide, kNcclFloat64, kNcclMin)[0] == 1);
        CHECK(all_reduce(self, std::vector<std::int64_t>{2}, kNcclInt64, kProd)[0] ==
              std::int64_t{1} << self.size);
        CHECK(all_reduce(self, std::vector<std::int32_t>{self.rank + 1}, kNcclInt32, kNcclAvg)[0] ==
              (self.size + 1) / 2);
      });
    }
  }

  TEST_CASE("fake collectives: a 16-bit average multiplies by a rounded 1/n first") {
    run_comms(3, [](const Rank& self) {
      // 1/3 in bfloat16 is 0.333984375; three times that is 1.001953125, between 1 and 1.0078125.
      const auto mean =
          all_reduce(self, std::vector<std::uint16_t>{bfloat16(192)}, kNcclBfloat16, kNcclAvg);
      CHECK(as_float(mean[0]) == 192);
      const auto large =
          all_reduce(self, std::vector<std::uint16_t>{bfloat16(254)}, kNcclBfloat16, kNcclAvg);
      CHECK(as_float(large[0]) == 255);
      const auto exact = all_reduce(self, std::vector<float>{3}, kNcclFloat32, kNcclAvg);
      CHECK(exact[0] == doctest::Approx(3));
    });
  }

  TEST_CASE("fake collectives: 16-bit types are summed in float and rounded once") {
    run_comms(4, [](const Rank& self) {
      // 256 + 0.75 + 0.75 + 0.75: rounded each time it stays 256, a bfloat16 being 2 wide there.
      const float mine = self.rank == 0 ? 256.0F : 0.75F;
      const auto sum =
          all_reduce(self, std::vector<std::uint16_t>{bfloat16(mine)}, kNcclBfloat16, kNcclSum);
      CHECK(as_float(sum[0]) == 258);
      const auto half =
          all_reduce(self, std::vector<std::uint16_t>{0x3c00}, kNcclFloat16, kNcclSum);
      CHECK(half[0] == 0x4400);  // 1 and 4
    });
  }

  TEST_CASE("fake collectives: a sum of products takes its scalar at once") {
    run_comms(2, [](const Rank& self) {
      float scalar = 0.25F;
      NcclRedOp op = 0;
      ok_nccl(ncclRedOpCreatePreMulSum(&op, &scalar, kNcclFloat32, kNcclScalarHostImmediate,
                                       self.comm));
      scalar = 100;
      float* const data = device_copy(std::vector<float>{8});
      ok_nccl(ncclAllReduce(data, data, 1, kNcclFloat32, op, self.comm, self.stream));
      ok_nccl(ncclRedOpDestroy(op, self.comm));
      CHECK(host_copy(data, 1, self.stream)[0] == 4);
      CHECK(ncclAllReduce(data, data, 1, kNcclFloat32, op, self.comm, self.stream) ==
            kNcclInvalidArgument);
    });
  }

  TEST_CASE("fake collectives: broadcast, gather, scatter and reduce to one") {
    run_comms(3, [](const Rank& self) {
      const auto mine = static_cast<float>(self.rank);
      float* const all = device_array<float>(6);
      float* const part = device_copy(std::vector<float>{mine, mine + 10});
      ok_nccl(ncclAllGather(part, all, 2, kNcclFloat32, self.comm, self.stream));
      CHECK(host_copy(all, 6, self.stream) == std::vector<float>{0, 10, 1, 11, 2, 12});
      ok_nccl(ncclReduceScatter(all, part, 2, kNcclFloat32, kNcclSum, self.comm, self.stream));
      CHECK(host_copy(part, 2, self.stream) == std::vector<float>{3 * mine, 3 * mine + 30});
      ok_nccl(ncclReduce(part, part, 2, kNcclFloat32, kNcclMax, 1, self.comm, self.stream));
      CHECK(host_copy(part, 1, self.stream)[0] == (self.rank == 1 ? 6 : 3 * mine));
      ok_nccl(ncclBroadcast(part, all, 2, kNcclFloat32, 2, self.comm, self.stream));
      CHECK(host_copy(all, 2, self.stream) == std::vector<float>{6, 36});
    });
  }

  TEST_CASE("fake collectives: those of a group start at its end, on their streams") {
    run_comms(2, [](const Rank& self) {
      const CudaStream other = make_stream();
      float* const data = device_copy(std::vector<float>{1, 2});
      ok_nccl(ncclGroupStart());
      ok_nccl(ncclAllReduce(data, data, 1, kNcclFloat32, kNcclSum, self.comm, self.stream));
      ok_nccl(ncclAllReduce(data + 1, data + 1, 1, kNcclFloat32, kNcclSum, self.comm, other));
      CHECK(host_copy(data, 2, self.stream) == std::vector<float>{1, 2});
      ok_nccl(ncclGroupEnd());
      ok(cudaStreamSynchronize(other));
      CHECK(host_copy(data, 2, self.stream) == std::vector<float>{2, 4});
    });
  }

  TEST_CASE("fake collectives: a captured one runs at every launch of the graph") {
    run_comms(2, [](const Rank& self) {
      float* const data = device_copy(std::vector<float>{1});
      CudaGraph graph = nullptr;
      CudaGraphExec exec = nullptr;
      ok(cudaStreamBeginCapture(self.stream, 1));
      ok_nccl(ncclAllReduce(data, data, 1, kNcclFloat32, kNcclSum, self.comm, self.stream));
      ok(cudaStreamEndCapture(self.stream, &graph));
      ok(cudaGraphInstantiate(&exec, graph, 0));
      for (int launch = 0; launch < 3; ++launch) ok(cudaGraphLaunch(exec, self.stream));
      CHECK(host_copy(data, 1, self.stream)[0] == 8);
    });
  }

  TEST_CASE("fake collectives: buffers and streams must be of the device and large enough") {
    run_comms(2, [](const Rank& self) {
      const auto answer = [&](float* in, float* out, std::size_t count, CudaStream stream) {
        return ncclAllReduce(in, out, count, kNcclFloat32, kNcclSum, self.comm, stream);
      };
      float* const data = device_array<float>(4);
      std::vector<float> host(4);
      CHECK(answer(data, data, 5, self.stream) == kNcclInvalidArgument);
      CHECK(answer(host.data(), data, 4, self.stream) == kNcclInvalidArgument);
      ok(cudaSetDevice(7));
      float* const other = device_array<float>(4);
      const CudaStream other_stream = make_stream();
      ok(cudaSetDevice(self.rank));
      CHECK(answer(data, other, 4, self.stream) == kNcclInvalidArgument);
      CHECK(answer(data, data, 4, other_stream) == kNcclInvalidArgument);
      CHECK(async_error(self.comm) == kNcclSuccess);
    });
  }

  TEST_CASE("fake collectives: a communicator splits by color, in the order of keys") {
    const NcclUniqueId id = make_id();
    run_ranks(4, [&](int rank) {
      ok(cudaSetDevice(rank));
      NcclComm parent = nullptr, part = nullptr;
      ok_nccl(ncclCommInitRank(&parent, 4, id, rank));
      ok_nccl(ncclCommSplit(parent, rank == 3 ? -1 : rank % 2, -rank, &part, nullptr));
      CHECK((part == nullptr) == (rank == 3));
      if (part) {
        const Rank self = {rank, 4, part, make_stream()};
        int count = 0, place = -1;
        ok_nccl(ncclCommCount(part, &count));
        ok_nccl(ncclCommUserRank(part, &place));
        CHECK(count == (rank == 1 ? 1 : 2));
        CHECK(place == (rank == 0 ? 1 : 0));
        const auto sum = all_reduce(self, std::vector<float>{1.0F * static_cast<float>(rank)},
                                    kNcclFloat32, kNcclSum);
        CHECK(sum[0] == (rank == 1 ? 1 : 2));
        ok_nccl(ncclCommDestroy(part));
      }
      ok_nccl(ncclCommDestroy(parent));
    });
  }
}
