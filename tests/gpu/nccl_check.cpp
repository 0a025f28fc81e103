// SPDX-License-Identifier: MIT
// What NCCL does on one GPU: set-up and all operations of a group of one rank, by itself and
// through the product's communicator; the tail that some versions do not write, registered memory,
// abort, and two ranks on one GPU.
#include <ddprun/cuda.h>
#include <ddprun/hash_store.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "comm/nccl/nccl_api.h"
#include "comm/nccl/nccl_comm.h"
#include "gpu/check.h"
#include "support/device_array.h"

using namespace ddprun;
using namespace ddprun::gpu_check;
using test::DeviceArray;
using test::OwnStream;

namespace {

using Seconds = std::chrono::seconds;

template <class Function>
Function nccl_function(const char* name) {
  return find<Function>(nccl_api().path, name);
}

using GatherLike = NcclResult (*)(const void*, void*, std::size_t, NcclDataType, NcclComm,
                                  CudaStream);
using ReduceLike = NcclResult (*)(const void*, void*, std::size_t, NcclDataType, NcclRedOp,
                                  NcclComm, CudaStream);

/// A call's last word: what is in progress is waited for.
NcclResult settled(NcclComm comm, NcclResult result, Seconds limit) {
  const NcclApi& api = nccl_api();
  if (result != kNcclInProgress) return result;
  wait_until(
      [&] {
        const NcclResult asked = api.ncclCommGetAsyncError(comm, &result);
        if (asked != kNcclSuccess) result = asked;
        return result != kNcclInProgress;
      },
      limit, "NCCL");
  return result;
}

NcclResult init(NcclComm* comm, int size, const NcclUniqueId& id, int rank, Seconds limit) {
  NcclConfig config;
  config.blocking = 0;
  const NcclResult result = nccl_api().ncclCommInitRankConfig(comm, size, id, rank, &config);
  cuda_api().cudaGetLastError();
  return settled(*comm, result, limit);
}

std::string text_of(NcclResult result) {
  return fmt::format("{} ({})", result, nccl_api().ncclGetErrorString(result));
}

void expect(Report& report, const char* what, NcclResult seen, NcclResult expected = 0) {
  report.check(seen == expected, fmt::format("{}: {}", what, text_of(seen)));
}

/// A group of one rank, as long as it lives.
class Alone {
 public:
  Alone() {
    NcclUniqueId id{};
    const NcclResult made = nccl_api().ncclGetUniqueId(&id);
    const NcclResult result = made != kNcclSuccess ? made : init(&comm_, 1, id, 0, Seconds(20));
    if (result != kNcclSuccess) throw DeviceError("[check] set-up of one rank: " + text_of(result));
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  ~Alone() {
    if (comm_ != nullptr) nccl_api().ncclCommAbort(comm_);
  }
  NcclComm get() const { return comm_; }
  NcclComm release() { return std::exchange(comm_, nullptr); }

 private:
  NcclComm comm_ = nullptr;
};

std::ptrdiff_t entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

std::vector<float> ramp(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 1024 + 1);
  return values;
}

constexpr float kPoison = -7.0f;

/// How many elements of `out` are not what they should be after one operation from ramp(n).
template <class Call>
std::size_t wrong_after(std::size_t n, float factor, NcclComm comm, Call call) {
  const OwnStream stream;
  const auto values = ramp(n);
  const DeviceArray<float> in(stream, values);
  const DeviceArray<float> out(stream, std::vector<float>(n, kPoison));
  const NcclResult result =
      settled(comm, call(in.view().data, out.view().data, stream.handle()), Seconds(20));
  if (result != kNcclSuccess) throw DeviceError("[check] operation: " + text_of(result));
  stream.wait();
  const auto seen = out.read();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < n; ++i) wrong += seen[i] == values[i] * factor ? 0 : 1;
  return wrong;
}

NcclRedOp times_half(NcclComm comm) {
  float half = 0.5f;
  NcclRedOp op = 0;
  const NcclResult result =
      nccl_api().ncclRedOpCreatePreMulSum(&op, &half, kNcclFloat32, kNcclScalarHostImmediate, comm);
  if (result != kNcclSuccess) throw DeviceError("[check] PreMulSum: " + text_of(result));
  return op;
}

void reductions(Report& report, NcclComm comm) {
  const NcclApi& api = nccl_api();
  constexpr std::size_t n = 1003;
  const auto all_reduce = [&](NcclRedOp op) {
    return [&api, comm, op](const void* in, void* out, CudaStream stream) {
      return api.ncclAllReduce(in, out, n, kNcclFloat32, op, comm, stream);
    };
  };
  for (const NcclRedOp op : {kNcclSum, kNcclMax, kNcclMin, kNcclAvg})
    report.check(wrong_after(n, 1, comm, all_reduce(op)) == 0, fmt::format("all-reduce {}", op));
  const NcclRedOp half = times_half(comm);
  report.check(wrong_after(n, 0.5f, comm, all_reduce(half)) == 0, "all-reduce PreMulSum");
  expect(report, "ncclRedOpDestroy", api.ncclRedOpDestroy(half, comm));
}

void other_collectives(Report& report, NcclComm comm) {
  const NcclApi& api = nccl_api();
  constexpr std::size_t n = 1003;
  const auto check = [&](const char* what, auto call) {
    report.check(wrong_after(n, 1, comm, call) == 0, what);
  };
  check("broadcast", [&](const void* in, void* out, CudaStream stream) {
    return api.ncclBroadcast(in, out, n, kNcclFloat32, 0, comm, stream);
  });
  if (const auto gather = nccl_function<GatherLike>("ncclAllGather"))
    check("all-gather", [&](const void* in, void* out, CudaStream stream) {
      return gather(in, out, n, kNcclFloat32, comm, stream);
    });
  if (const auto scatter = nccl_function<ReduceLike>("ncclReduceScatter"))
    check("reduce-scatter", [&](const void* in, void* out, CudaStream stream) {
      return scatter(in, out, n, kNcclFloat32, kNcclSum, comm, stream);
    });
  using Group = NcclResult (*)();
  const auto group_start = nccl_function<Group>("ncclGroupStart");
  const auto group_end = nccl_function<Group>("ncclGroupEnd");
  if (group_start != nullptr && group_end != nullptr)
    check("all-reduce in a group", [&](const void* in, void* out, CudaStream stream) {
      group_start();
      api.ncclAllReduce(in, out, n, kNcclFloat32, kNcclSum, comm, stream);
      return group_end();
    });
}

void split(Report& report, NcclComm comm) {
  using Split = NcclResult (*)(NcclComm, int, int, NcclComm*, NcclConfig*);
  const auto make_part = nccl_function<Split>("ncclCommSplit");
  if (make_part == nullptr) return;
  NcclComm part = nullptr;
  const NcclResult made = make_part(comm, 0, 0, &part, nullptr);
  expect(report, "ncclCommSplit", settled(comm, made, Seconds(20)));
  if (part != nullptr) expect(report, "ncclCommAbort of the part", nccl_api().ncclCommAbort(part));
}

void operations(Report& report) {
  const NcclApi& api = nccl_api();
  cuda_api().cudaSetDevice(0);
  report.note(fmt::format("{}: NCCL {}", api.path, nccl_version_text(api.version)));
  const auto threads = entries_of("/proc/self/task");
  const auto files = entries_of("/proc/self/fd");
  const auto note_growth = [&](const char* when) {
    report.note(fmt::format("{}: {} threads, {} descriptors more", when,
                            entries_of("/proc/self/task") - threads,
                            entries_of("/proc/self/fd") - files));
  };
  Alone alone;
  note_growth("after set-up");
  reductions(report, alone.get());
  other_collectives(report, alone.get());
  split(report, alone.get());
  const NcclComm ended = alone.release();
  expect(report, "ncclCommFinalize", settled(ended, api.ncclCommFinalize(ended), Seconds(20)));
  expect(report, "ncclCommDestroy", api.ncclCommDestroy(ended));
  note_growth("after the end");
  report.figure("NCCL " + nccl_version_text(api.version));
}

/// The product's own communicator, whose set-up goes through a store, closed and aborted.
void communicator(Report& report) {
  const NcclApi& api = nccl_api();
  cuda_api().cudaSetDevice(0);
  for (const bool clean : {true, false}) {
    const auto store = make_hash_store();
    const auto start = Deadline::Clock::now();
    NcclCommunicator comm(
        api, cuda_api(), {*store, 0, 1, 0, Seconds(20)}, [] {}, Deadline::after(Seconds(20)));
    const std::chrono::duration<double> took = Deadline::Clock::now() - start;
    std::size_t wrong = 0;
    comm.call("ncclAllReduce", [&](NcclComm handle) {
      wrong = wrong_after(4096, 1, handle, [&](const void* in, void* out, CudaStream stream) {
        return api.ncclAllReduce(in, out, 4096, kNcclFloat32, kNcclSum, handle, stream);
      });
      return kNcclSuccess;
    });
    report.check(wrong == 0, "a call through NcclCommunicator");
    report.check(comm.async_error().value_or(kNcclSuccess) == kNcclSuccess,
                 "no asynchronous error");
    const auto deadline = Deadline::after(Seconds(10));
    if (clean)
      report.check(comm.close(deadline), "close in time");
    else
      comm.abort(deadline);
    report.check(!deadline.expired(), "the end comes in time");
    report.check(comm.handle() == nullptr, "nothing is left");
    report.figure(fmt::format("set-up of one rank takes {:.2f} s", took.count()));
  }
}

/// https://github.com/NVIDIA/nccl/issues/1950
void tail(Report& report) {
  const NcclApi& api = nccl_api();
  cuda_api().cudaSetDevice(0);
  const Alone alone;
  const NcclComm comm = alone.get();
  const NcclRedOp half = times_half(comm);
  std::size_t most = 0;
  for (const std::size_t n : {4096u, 4097u, 4105u, 8193u, 1u << 20})
    for (const NcclRedOp op : {kNcclAvg, half}) {
      const std::size_t wrong = wrong_after(
          n, op == half ? 0.5f : 1.0f, comm, [&](const void* in, void* out, CudaStream stream) {
            return api.ncclAllReduce(in, out, n, kNcclFloat32, op, comm, stream);
          });
      report.note(fmt::format("{} elements, {}: {} not written", n,
                              op == half ? "PreMulSum" : "Avg", wrong));
      most = std::max(most, wrong);
    }
  report.figure(fmt::format("one rank, out of place: up to {} elements not written", most));
}

void memory(Report& report) {
  cuda_api().cudaSetDevice(0);
  using Alloc = NcclResult (*)(void**, std::size_t);
  using Free = NcclResult (*)(void*);
  using Register = NcclResult (*)(NcclComm, void*, std::size_t, void**);
  using Window = NcclResult (*)(NcclComm, void*, std::size_t, void**, int);
  using Deregister = NcclResult (*)(NcclComm, void*);
  const auto alloc = nccl_function<Alloc>("ncclMemAlloc");
  const auto free = nccl_function<Free>("ncclMemFree");
  const auto enrol = nccl_function<Register>("ncclCommRegister");
  const auto remove = nccl_function<Deregister>("ncclCommDeregister");
  if (alloc == nullptr || free == nullptr || enrol == nullptr || remove == nullptr)
    return report.note("no ncclMemAlloc in this version");
  const Alone alone;
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  void* own = nullptr;
  expect(report, "ncclMemAlloc", alloc(&own, kBytes));
  void* handle = nullptr;
  expect(report, "ncclCommRegister", enrol(alone.get(), own, kBytes, &handle));
  expect(report, "ncclCommDeregister", remove(alone.get(), handle));
  const auto window = nccl_function<Window>("ncclCommWindowRegister");
  const auto unwindow = nccl_function<Deregister>("ncclCommWindowDeregister");
  std::string symmetric = "no windows in this version";
  if (window != nullptr && unwindow != nullptr) {
    constexpr int kSymmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC
    void* made = nullptr;
    const NcclResult result =
        settled(alone.get(), window(alone.get(), own, kBytes, &made, kSymmetric), Seconds(20));
    symmetric = fmt::format("window {}{}", text_of(result), made == nullptr ? ", null" : "");
    if (made != nullptr) expect(report, "ncclCommWindowDeregister", unwindow(alone.get(), made));
    const auto plain = cuda::allocate(kBytes);
    made = nullptr;
    const NcclResult of_plain = settled(
        alone.get(), window(alone.get(), plain.get(), kBytes, &made, kSymmetric), Seconds(20));
    report.note(fmt::format("window of cudaMalloc memory: {}{}", text_of(of_plain),
                            made == nullptr ? ", null" : ""));
    if (made != nullptr) unwindow(alone.get(), made);
  }
  expect(report, "ncclMemFree", free(own));
  report.figure(symmetric);
}

/// Enough kernels to keep a stream at work for a quarter of a second, a collective behind them, and
/// an abort from another thread. An average out of place: in place one rank launches nothing.
void abort_under_way(Report& report) {
  const NcclApi& api = nccl_api();
  cuda_api().cudaSetDevice(0);
  Alone alone;
  const OwnStream stream;
  const bool slow = cuda_api().test_double;  // CPUs
  const std::size_t n = slow ? std::size_t{1} << 16 : std::size_t{1} << 26;
  const DeviceArray<float> in(stream, ramp(n));
  const DeviceArray<float> out(stream, ramp(n));
  for (int i = 0; i < (slow ? 20 : 2000); ++i) cuda::cast(in.view(), in.view(), 1, stream);
  const NcclResult queued =
      settled(alone.get(),
              api.ncclAllReduce(in.view().data, out.view().data, n, kNcclFloat32, kNcclAvg,
                                alone.get(), stream.handle()),
              Seconds(10));
  expect(report, "ncclAllReduce behind other work", queued);
  report.note(cuda_api().cudaStreamQuery(stream.handle()) == kCudaErrorNotReady
                  ? "the stream is at work when abort is called"
                  : "the stream had ended before abort was called: nothing is shown");
  const auto start = Deadline::Clock::now();
  NcclResult aborted = -1;
  std::thread([&] {
    cuda_api().cudaSetDevice(0);
    aborted = api.ncclCommAbort(alone.release());
  }).join();
  const std::chrono::duration<double, std::milli> took = Deadline::Clock::now() - start;
  expect(report, "ncclCommAbort from another thread", aborted);
  stream.wait(Deadline::after(Seconds(10)));
  report.check(true, "the stream runs to its end");
  report.figure(fmt::format("abort took {:.1f} ms", took.count()));
}

/// One of two processes, which find each other through a file. Throws: TimeoutError.
NcclUniqueId meet(int rank, const std::filesystem::path& file) {
  NcclUniqueId id{};
  if (rank == 0) {
    nccl_api().ncclGetUniqueId(&id);
    const auto unfinished = file.string() + ".new";
    std::ofstream(unfinished, std::ios::binary).write(id.internal, sizeof(id.internal));
    std::filesystem::rename(unfinished, file);
  } else {
    wait_until([&] { return std::filesystem::exists(file); }, Seconds(10), "the other rank's id");
    std::ifstream(file, std::ios::binary).read(id.internal, sizeof(id.internal));
  }
  return id;
}

void duplicate(Report& report, int rank, const char* file) {
  cuda_api().cudaSetDevice(0);
  NcclComm comm = nullptr;
  const NcclUniqueId id = meet(rank, file);
  const NcclResult result = init(&comm, 2, id, rank, Seconds(15));
  const char* const warning = nccl_api().ncclGetLastError(nullptr);
  report.note(fmt::format("rank {}: {}: {}", rank, text_of(result), warning));
  // 6: the other rank was refused first and has left.
  report.check(result == kNcclInvalidUsage || result == kNcclRemoteError,
               "two ranks on one GPU are refused");
  report.figure(fmt::format("refused with {}", text_of(result)));
  if (comm != nullptr) nccl_api().ncclCommAbort(comm);
}

/// Whether two ranks on one GPU can be had as two hosts; NVIDIA does not support it.
void two_hosts(Report& report, int rank, const char* file) {
  const NcclApi& api = nccl_api();
  cuda_api().cudaSetDevice(0);
  NcclComm comm = nullptr;
  const NcclUniqueId id = meet(rank, file);
  const NcclResult result = init(&comm, 2, id, rank, Seconds(20));
  if (result != kNcclSuccess) return report.figure("not possible: " + text_of(result));
  constexpr std::size_t n = 4097;
  const std::size_t wrong =
      wrong_after(n, 2, comm, [&](const void* in, void* out, CudaStream stream) {
        return api.ncclAllReduce(in, out, n, kNcclFloat32, kNcclSum, comm, stream);
      });
  report.figure(fmt::format("two ranks on one GPU: {} of {} wrong", wrong, n));
  api.ncclCommAbort(comm);
}

}  // namespace

int main(int argc, char** argv) {
  const int rank = argc > 2 ? std::atoi(argv[2]) : 0;
  const char* const file = argc > 3 ? argv[3] : "";
  return run_mode(argc, argv,
                  {{"operations", operations},
                   {"communicator", communicator},
                   {"tail", tail},
                   {"memory", memory},
                   {"abort", abort_under_way},
                   {"duplicate", [&](Report& r) { duplicate(r, rank, file); }},
                   {"two_hosts", [&](Report& r) { two_hosts(r, rank, file); }}});
}
