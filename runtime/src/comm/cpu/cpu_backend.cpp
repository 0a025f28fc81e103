// SPDX-License-Identifier: MIT
// Sets up what ranks share, then runs the collectives in order; see cpu_backend.h.
#include "comm/cpu/cpu_backend.h"

#include <ddprun/error.h>

#include <functional>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>
#include <pthread.h>

#include "comm/cpu/collectives.h"
#include "comm/cpu/doorbell.h"
#include "comm/cpu/health.h"
#include "comm/cpu/peer_mesh.h"
#include "comm/cpu/segment.h"
#include "comm/hello.h"
#include "comm/work_queue.h"

namespace ddprun {
namespace {

using Segments = std::vector<std::shared_ptr<Segment>>;

// Longer than this a caller's spinning costs more than a wake-up. The communication thread has the
// program's own computing beside it, and gives way sooner when there are no cores to spare.
constexpr std::chrono::microseconds kSpin(50);
constexpr std::chrono::microseconds kSpinBesideComputing(5);

void require_one_machine(const std::vector<Hello>& hellos) {
  std::vector<std::string> elsewhere;
  for (std::size_t r = 1; r < hellos.size(); ++r)
    if (hellos[r].machine != hellos[0].machine)
      elsewhere.push_back(fmt::format("{} ({})", r, hellos[r].hostname));
  if (!elsewhere.empty())
    throw UsageError(fmt::format(
        "[cpu] set-up: rank(s) {} share no memory with rank 0 ({}): another machine, "
        "container or user; several nodes are not supported by this version's cpu backend",
        fmt::join(elsewhere, ", "), hellos[0].hostname));
}

std::vector<Page*> pages_in(const Segments& segments) {
  std::vector<Page*> pages;
  for (const auto& segment : segments) pages.push_back(reinterpret_cast<Page*>(segment->data()));
  return pages;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(int rank, std::unique_ptr<PeerMesh> mesh, int cores, std::chrono::milliseconds timeout,
             Deadline deadline)
      : rank_(rank),
        mesh_(std::move(mesh)),
        own_page_(make_page(own_page_fd_)),
        queue_([this] { ::pthread_mutex_lock(&own_page().lifeline); },
               [this] { ::pthread_mutex_unlock(&own_page().lifeline); }),
        page_segments_(share(
            own_page_, own_page_fd_, sizeof(Page), [] {}, deadline)),
        health_(rank, pages_in(page_segments_), mesh_ ? mesh_->pids() : std::vector<pid_t>(1),
                timeout),
        onlooker_(rank, pages_in(page_segments_), mesh_ ? mesh_->pids() : std::vector<pid_t>(1),
                  timeout),
        doorbell_(rank, pages_in(page_segments_), health_),
        collectives_(doorbell_, make_slots(deadline), cores),
        queue_spin_(cores < 2 * doorbell_.size() ? kSpinBesideComputing : kSpin) {
    onlooker_.look_on();
  }

  ~CpuBackend() override {
    if (!queue_.idle()) health_.record(rank_, Cause::left);  // pending: "group destroyed"
    health_.leave();
    queue_.close();
  }

  std::string_view name() const override { return "cpu"; }
  Device device() const override { return {}; }

  Work all_reduce(TensorView buffer, ReduceOp op, const Operation& operation) override {
    const Call call{CallKind::all_reduce, op, buffer.dtype, 0, buffer.numel};
    return run(operation, call, [this, buffer, op] { collectives_.all_reduce(buffer, op); });
  }

  Work broadcast(TensorView buffer, int root, const Operation& operation) override {
    const Call call{CallKind::broadcast, ReduceOp::sum, buffer.dtype, root, buffer.numel};
    return run(operation, call, [this, buffer, root] { collectives_.broadcast(buffer, root); });
  }

  Work barrier(const Operation& operation) override {
    return run(operation, Call{}, [this] { collectives_.barrier(); });
  }

  Work allocate(std::size_t bytes, std::shared_ptr<std::byte[]>& memory,
                const Operation& operation) override {
    const Call call{CallKind::allocate, ReduceOp::sum, DType::f32, 0, bytes};
    const Deadline deadline = operation.deadline;
    return run(operation, call, [this, bytes, &memory, deadline] {
      UniqueFd fd;
      const auto own = Segment::create(bytes, fd);
      doorbell_.ring();
      doorbell_.meet();
      auto all = share(
          own, fd, bytes, [this] { look(); }, deadline);
      memory = collectives_.adopt(std::move(all), bytes);
    });
  }

  void abort(std::string_view reason) override { health_.record_own(Cause::aborted, reason); }

  std::exception_ptr peer_failure() override {
    try {
      if (const auto dead = onlooker_.find_dead()) onlooker_.fail(*dead, Cause::died);
      if (onlooker_.failed()) onlooker_.throw_failure();
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

 private:
  template <class F>
  Work run(const Operation& operation, const Call& call, F f) {
    return queue_.run(operation, [this, operation, call, f](WorkQueue::Where where) {
      const bool on_queue = where == WorkQueue::Where::queue_thread;
      try {
        doorbell_.begin(call, operation, on_queue ? queue_spin_ : kSpin);
        f();
      } catch (const std::exception& error) {
        health_.record_own(Cause::failed, error.what());  // unless it was recorded before
        throw;
      }
    });
  }

  static std::shared_ptr<Segment> make_page(UniqueFd& fd) {
    auto segment = Segment::create(sizeof(Page), fd);
    init_lifeline(*new (segment->data()) Page);
    return segment;
  }

  Segments share(const std::shared_ptr<Segment>& own, const UniqueFd& fd, std::size_t bytes,
                 const std::function<void()>& look_around, Deadline deadline) {
    if (!mesh_) return {own};
    return mesh_->share(own, fd.get(), bytes, look_around, deadline);
  }

  Segments make_slots(Deadline deadline) {
    if (doorbell_.size() == 1) return {};
    const std::size_t bytes = slot_area_bytes(doorbell_.size());
    try {
      UniqueFd fd;
      const auto own = Segment::create(bytes, fd);
      return share(
          own, fd, bytes, [this] { look(); }, deadline);
    } catch (const std::exception& error) {
      health_.record_own(Cause::failed, error.what());  // before the sockets close
      throw;
    }
  }

  void look() {
    if (health_.failed()) health_.throw_failure();
    if (const auto dead = health_.find_dead()) health_.fail(*dead, Cause::died);
  }

  Page& own_page() { return *reinterpret_cast<Page*>(own_page_->data()); }

  int rank_;
  std::unique_ptr<PeerMesh> mesh_;  // null when alone
  UniqueFd own_page_fd_;
  std::shared_ptr<Segment> own_page_;
  WorkQueue queue_;  // its thread holds the lifeline from before others see the page until the end
  Segments page_segments_;
  Health health_;
  Health onlooker_;  // for peer_failure(), beside the operations
  Doorbell doorbell_;
  Collectives collectives_;
  std::chrono::microseconds queue_spin_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(Store* store, int rank, int size,
                                          const ProcessGroupOptions& options) {
  const auto timeout = options.timeout;
  const auto deadline = Deadline::after(timeout);
  if (size == 1) return std::make_unique<CpuBackend>(0, nullptr, 1, timeout, deadline);
  const auto token = random_token();
  UniqueFd listener = listen_for_peers(token);  // before anybody can know its name
  const auto hellos = exchange_hellos(
      *store, rank, Hello::of_this_process(size, options.backend, token), timeout, deadline);
  require_one_machine(hellos);
  std::vector<std::string> tokens;
  for (const Hello& hello : hellos) tokens.push_back(hello.address);
  auto mesh = std::make_unique<PeerMesh>(rank, std::move(tokens), std::move(listener), deadline);
  return std::make_unique<CpuBackend>(rank, std::move(mesh), count_cores(hellos), timeout,
                                      deadline);
}

}  // namespace ddprun
