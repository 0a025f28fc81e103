// SPDX-License-Identifier: MIT
// Fake NCCL: operations, from the call to the stream.
#include <chrono>
#include <string>
#include <utility>

#include "doubles/fake_cudart.h"
#include "doubles/fake_nccl_comm.h"
#include "doubles/fake_nccl_fault.h"
#include "doubles/fake_nccl_reduce.h"

namespace ddprun::doubles {
namespace {

bool reduces(Kind kind) { return kind == kAllReduce || kind == kReduce || kind == kReduceScatter; }

/// Operations that a stream runs together.
struct Batch : Kept {
  Batch(Comm& its_comm, std::vector<Operation> list)
      : comm(its_comm), operations(std::move(list)) {}
  void run() const {
    comm.running.fetch_add(1);
    try {
      for (const Operation& operation : operations)
        if (!comm.aborted) execute(comm, operation);
    } catch (const Left&) {
    }
    comm.running.fetch_sub(1);
  }
  Comm& comm;
  const std::vector<Operation> operations;
};

void run_captured(void* batch) { static_cast<const Batch*>(batch)->run(); }

void run_once(void* batch) {
  const std::unique_ptr<const Batch> owned(static_cast<const Batch*>(batch));
  owned->run();
  owned->comm.issued.fetch_sub(1);
}

/// The device of the communicator, as NCCL sets it while it launches. The calls within are not the
/// program's: the plan of faults does not count them.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    double_cuda_suspend_faults(true);
    cuCtxGetCurrent(&before_);
    cudaSetDevice(device);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    cuCtxSetCurrent(before_);
    double_cuda_suspend_faults(false);
  }

 private:
  CudaContext before_ = nullptr;
};

/// Operations of one communicator run in the order they are issued, whatever their streams.
CudaError put_on_stream(Comm& comm, CudaStream stream, std::vector<Operation> operations) {
  int capturing = 0;
  CudaError error = cudaStreamIsCapturing(stream, &capturing);
  if (error != kCudaSuccess) return error;
  if (capturing != 0)
    return cudaLaunchHostFunc(stream, run_captured, make_kept<Batch>(comm, std::move(operations)));
  const std::lock_guard lock(comm.mutex);
  if (!comm.last_launch)
    error = cudaEventCreateWithFlags(&comm.last_launch, kCudaEventDisableTiming);
  if (error == kCudaSuccess) error = cudaStreamWaitEvent(stream, comm.last_launch, 0);
  if (error != kCudaSuccess) return error;
  auto batch = std::make_unique<Batch>(comm, std::move(operations));
  comm.issued.fetch_add(1, std::memory_order_relaxed);
  error = cudaLaunchHostFunc(stream, run_once, batch.get());
  if (error != kCudaSuccess) return comm.issued.fetch_sub(1, std::memory_order_relaxed), error;
  batch.release();
  return cudaEventRecord(comm.last_launch, stream);
}

NcclResult launch(Comm& comm, CudaStream stream, std::vector<Operation> operations) {
  const OnDevice guard(comm.device);
  const CudaError error = put_on_stream(comm, stream, std::move(operations));
  if (error == kCudaSuccess) return kNcclSuccess;
  return warn(kNcclUnhandledCudaError,
              std::string("Cuda failure '") + cudaGetErrorString(error) + "'");
}

struct Issued {
  Comm* comm;
  CudaStream stream;
  Operation operation;
  Fault fault;
};

/// What a thread has called between ncclGroupStart and ncclGroupEnd.
struct Group {
  int depth = 0;
  NcclResult error = kNcclSuccess;
  std::vector<Issued> issued;
  std::vector<std::function<NcclResult()>> inits;
};
thread_local Group group;

NcclResult issue_together(std::vector<Issued> all) {
  NcclResult result = kNcclSuccess;
  while (!all.empty()) {
    const Issued first = all.front();
    std::vector<Operation> together;
    std::erase_if(all, [&](const Issued& one) {
      if (one.comm != first.comm || one.stream != first.stream) return false;
      together.push_back(one.operation);
      return true;
    });
    const bool says_later = first.fault.is("inprogress");
    const int busy_ms = says_later ? first.fault.argument : 0;
    const auto go = [first, busy_ms, together = std::move(together)] {
      std::this_thread::sleep_for(std::chrono::milliseconds(busy_ms));
      return launch(*first.comm, first.stream, together);
    };
    NcclResult one = busy_ms > 0 ? first.comm->run(go) : go();
    if (says_later && one == kNcclSuccess && !first.comm->blocking) one = kNcclInProgress;
    if (result == kNcclSuccess) result = one;
  }
  return result;
}

NcclResult init_together(const std::vector<std::function<NcclResult()>>& inits) {
  if (inits.size() == 1) return inits.front()();
  std::vector<NcclResult> results(inits.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < inits.size(); ++i)
    threads.emplace_back([&, i] { results[i] = inits[i](); });
  for (std::thread& thread : threads) thread.join();
  for (const NcclResult result : results)
    if (result != kNcclSuccess) return result;
  return kNcclSuccess;
}

NcclResult end_group() {
  Group ended = std::exchange(group, {});
  if (ended.error != kNcclSuccess) return ended.error;
  const NcclResult result = init_together(ended.inits);
  return result != kNcclSuccess ? result : issue_together(std::move(ended.issued));
}

/// "" when a buffer of a call is right, else what is wrong with it.
std::string wrong_buffer(const Comm& comm, const void* buffer, std::size_t bytes) {
  if (bytes == 0) return "";
  const int device = double_cuda_device_of(buffer);
  if (device < 0) return "is not device memory";
  if (device != comm.device) return "is memory of device " + std::to_string(device);
  return double_cuda_room(buffer) < bytes ? "is smaller than " + std::to_string(bytes) + " bytes"
                                          : "";
}

NcclResult check(const Comm& comm, CudaStream stream, const Operation& operation) {
  const std::string name = name_of(operation.kind);
  const std::size_t part = operation.count * bytes_of(operation.type);
  if (bytes_of(operation.type) == 0)
    return warn(kNcclInvalidArgument, name + " : invalid type " + std::to_string(operation.type));
  if (operation.root < 0 || operation.root >= comm.size)
    return warn(kNcclInvalidArgument, name + " : invalid root " + std::to_string(operation.root));
  const auto all = part * static_cast<std::size_t>(comm.size);
  const bool is_root = comm.rank == operation.root;
  const std::size_t in = operation.kind == kBroadcast && !is_root ? 0
                         : operation.kind == kReduceScatter       ? all
                                                                  : part;
  const std::size_t out = operation.kind == kReduce && !is_root ? 0
                          : operation.kind == kAllGather        ? all
                                                                : part;
  if (const auto wrong = wrong_buffer(comm, operation.in, in); !wrong.empty())
    return complain(kNcclInvalidArgument, name + " : the input " + wrong);
  if (const auto wrong = wrong_buffer(comm, operation.out, out); !wrong.empty())
    return complain(kNcclInvalidArgument, name + " : the output " + wrong);
  const OnDevice guard(comm.device);
  if (double_cuda_device_of_stream(stream) != comm.device)
    return complain(kNcclInvalidArgument, name + " : the stream is not one of the comm's device");
  return kNcclSuccess;
}

/// The scalar of a user-made operation, into `operation`.
NcclResult find_scalar(Comm& comm, Operation& operation) {
  if (!reduces(operation.kind) || (operation.op >= 0 && operation.op < kFirstOwnOp))
    return kNcclSuccess;
  const std::lock_guard lock(comm.mutex);
  const auto index = static_cast<std::size_t>(operation.op - kFirstOwnOp);
  if (operation.op < 0 || index >= comm.scalars.size() || !comm.scalars[index] ||
      comm.scalars[index]->type != operation.type)
    return warn(kNcclInvalidArgument, std::string(name_of(operation.kind)) + " : invalid op " +
                                          std::to_string(operation.op));
  operation.scalar = *comm.scalars[index];
  return kNcclSuccess;
}

NcclResult issue(NcclComm handle, CudaStream stream, Operation operation) {
  const char* const name = name_of(operation.kind);
  Comm* const comm = find_comm(handle, name);
  NcclResult result = comm ? comm->state.load(std::memory_order_acquire) : kNcclInvalidArgument;
  if (result == kNcclSuccess && comm->finalized)
    result = warn(kNcclInvalidUsage, std::string(name) + " : the communicator was finalized");
  Fault fault;
  if (result == kNcclSuccess) fault = planned_fault(comm->rank, name, When::kCalled);
  if (fault.is("ret")) result = warn(fault.argument, "a fault of the plan");
  if (result == kNcclSuccess) result = find_scalar(*comm, operation);
  if (result == kNcclSuccess) result = check(*comm, stream, operation);
  if (result != kNcclSuccess) {
    if (group.depth > 0 && group.error == kNcclSuccess) group.error = result;
    return result;
  }
  const Issued issued = {comm, stream, operation, fault};
  if (group.depth == 0) return issue_together({issued});
  group.issued.push_back(issued);
  return kNcclSuccess;
}

}  // namespace

NcclResult later_or_now(std::function<NcclResult()> init) {
  if (group.depth == 0) return init();
  group.inits.push_back(std::move(init));
  return kNcclSuccess;
}

}  // namespace ddprun::doubles

using namespace ddprun::doubles;
using namespace ddprun;

NcclResult ncclGroupStart() {
  ++group.depth;
  return kNcclSuccess;
}

NcclResult ncclGroupEnd() {
  if (group.depth == 0) return warn(kNcclInvalidUsage, "ncclGroupEnd : no group is open");
  return --group.depth == 0 ? end_group() : kNcclSuccess;
}

NcclResult ncclAllReduce(const void* in, void* out, std::size_t count, NcclDataType type,
                         NcclRedOp op, NcclComm comm, CudaStream stream) {
  return issue(comm, stream, {kAllReduce, in, out, count, type, op});
}

NcclResult ncclBroadcast(const void* in, void* out, std::size_t count, NcclDataType type, int root,
                         NcclComm comm, CudaStream stream) {
  return issue(comm, stream, {kBroadcast, in, out, count, type, 0, root});
}

NcclResult ncclReduce(const void* in, void* out, std::size_t count, NcclDataType type, NcclRedOp op,
                      int root, NcclComm comm, CudaStream stream) {
  return issue(comm, stream, {kReduce, in, out, count, type, op, root});
}

NcclResult ncclAllGather(const void* in, void* out, std::size_t count, NcclDataType type,
                         NcclComm comm, CudaStream stream) {
  return issue(comm, stream, {kAllGather, in, out, count, type});
}

NcclResult ncclReduceScatter(const void* in, void* out, std::size_t count, NcclDataType type,
                             NcclRedOp op, NcclComm comm, CudaStream stream) {
  return issue(comm, stream, {kReduceScatter, in, out, count, type, op});
}

#if FAKE_NCCL_VERSION >= 21100
NcclResult ncclRedOpCreatePreMulSum(NcclRedOp* op, void* scalar, NcclDataType type, int residence,
                                    NcclComm handle) {
  Comm* const comm = find_comm(handle, __func__);
  if (!comm || !op || !scalar || bytes_of(type) == 0) return kNcclInvalidArgument;
  if (const NcclResult bad = comm->state) return bad;
  const bool immediate = residence == kNcclScalarHostImmediate;
  const std::lock_guard lock(comm->mutex);
  comm->scalars.push_back(
      Scalar{type, immediate ? scalar_of(type, scalar) : 0, immediate ? nullptr : scalar});
  *op = kFirstOwnOp + static_cast<NcclRedOp>(comm->scalars.size()) - 1;
  return kNcclSuccess;
}

NcclResult ncclRedOpDestroy(NcclRedOp op, NcclComm handle) {
  Comm* const comm = find_comm(handle, __func__);
  if (!comm) return kNcclInvalidArgument;
  const std::lock_guard lock(comm->mutex);
  const auto index = static_cast<std::size_t>(op - kFirstOwnOp);
  if (op < kFirstOwnOp || index >= comm->scalars.size() || !comm->scalars[index])
    return warn(kNcclInvalidArgument, "ncclRedOpDestroy : invalid op " + std::to_string(op));
  comm->scalars[index].reset();
  return kNcclSuccess;
}
#endif
