// SPDX-License-Identifier: MIT
// Fake CUDA runtime: streams. Each is a thread that takes work from a queue without locks (a linked
// list to which threads of the host add at one end). Work sees what the host did before it was
// added; the host sees what work did only after a wait or a query that says so. Nothing else orders
// them, so that ThreadSanitizer sees what CUDA promises and no more. The legacy default stream
// waits for the blocking streams of its device, and they for it.
// Stricter than reality: streams overlap as freely as threads do, and priorities mean nothing.
#include <chrono>
#include <memory>
#include <random>
#include <shared_mutex>
#include <string>
#include <utility>

#include "doubles/environment.h"
#include "doubles/fake_cudart_state.h"
#include "doubles/futex.h"

namespace ddprun::doubles {
namespace {

struct Device {
  std::mutex mutex;          // of the order between the default stream and blocking streams
  Stream* legacy = nullptr;  // guarded by mutex
  const Moment* last_legacy = nullptr;  // guarded by mutex
  mutable std::shared_mutex list_mutex;
  std::vector<Stream*> streams;          // guarded by list_mutex
  std::vector<const Moment*> leftovers;  // ends of destroyed streams; guarded by list_mutex
};

Device& device_state(int device) {
  static auto& devices = *new std::array<Device, kMaxDevices>;
  return devices.at(static_cast<std::size_t>(device));
}

Stream* make_stream(int device, bool blocking) {
  Stream* const stream = make_kept<Stream>(device, blocking);
  Device& state = device_state(device);
  const std::unique_lock lock(state.list_mutex);
  state.streams.push_back(stream);
  return stream;
}

Stream* legacy_stream(int device) {
  Device& state = device_state(device);
  const std::lock_guard lock(state.mutex);
  if (!state.legacy) state.legacy = make_stream(device, true);
  return state.legacy;
}

Stream* stream_of_thread(int device) {
  thread_local std::map<int, Stream*> streams;
  Stream*& stream = streams[device];
  if (!stream) stream = make_stream(device, true);
  return stream;
}

void wait_before(Stream& stream, const Moment* moment) {
  stream.push([moment] { moment->wait(); });
}

std::vector<const Moment*> leftovers_of(int device) {
  Device& state = device_state(device);
  const std::unique_lock lock(state.list_mutex);
  std::erase_if(state.leftovers, [](const Moment* end) { return end->reached(); });
  return state.leftovers;
}

/// Work of a blocking stream, with the order that the default stream brings. Mutex held.
void push_blocking(Device& state, Stream& stream, Work work) {
  if (&stream == state.legacy) {
    for (Stream* other : streams_of(stream.device)) {
      if (other == &stream || !other->blocking || !other->unseen_by_legacy) continue;
      wait_before(stream, other->push_moment());
      other->unseen_by_legacy = false;
    }
    for (const Moment* end : leftovers_of(stream.device)) wait_before(stream, end);
    stream.push(std::move(work));
    state.last_legacy = stream.push_moment();
    return;
  }
  if (state.last_legacy != stream.seen_of_legacy) {
    wait_before(stream, state.last_legacy);
    stream.seen_of_legacy = state.last_legacy;
  }
  stream.push(std::move(work));
  stream.unseen_by_legacy = true;
}

std::chrono::microseconds slowness(int number) {
  const std::string name = "FAKE_CUDA_SLOW_STREAM" + std::to_string(number);
  return std::chrono::microseconds(environment_int(name.c_str(), 0));
}

CudaError create(CudaStream* handle, unsigned flags) {
  if (!handle || flags > kCudaStreamNonBlocking) return kInvalidValue;
  *handle = make_stream(current_device(), flags != kCudaStreamNonBlocking);
  return kSuccess;
}

}  // namespace

void Moment::reach() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  time_ns_.store(std::chrono::nanoseconds(now).count(), std::memory_order_relaxed);
  reached_.store(1, std::memory_order_release);
  futex_wake_all(reached_);
}

bool Moment::reached() const {
  // Only a yes orders: an acquiring load that answers no could order it with earlier work.
  return reached_.load(std::memory_order_relaxed) != 0 &&
         reached_.load(std::memory_order_acquire) != 0;
}

void Moment::wait() const {
  while (!reached()) futex_wait(reached_, 0);
}

Stream::Stream(int on_device, bool is_blocking)
    : device(on_device),
      blocking(is_blocking),
      number([] {
        static std::atomic<int> made{0};
        return made.fetch_add(1, std::memory_order_relaxed);
      }()),
      last_(new Item),
      first_(last_.load(std::memory_order_relaxed)) {
  ::sem_init(&items_, 0, 0);
  std::thread(&Stream::run, this).detach();
}

void Stream::push(Work work) {
  auto* const item = new Item{std::move(work)};
  pushed_.fetch_add(1, std::memory_order_relaxed);
  Item* const before = last_.exchange(item, std::memory_order_acq_rel);
  before->next.store(item, std::memory_order_release);
  ::sem_post(&items_);
}

Moment* Stream::push_moment() {
  Moment* const moment = make_kept<Moment>();
  push([moment] { moment->reach(); });
  return moment;
}

bool Stream::idle() const {
  const std::uint64_t pushed = pushed_.load(std::memory_order_relaxed);
  return done_.load(std::memory_order_relaxed) >= pushed &&
         done_.load(std::memory_order_acquire) >= pushed;
}

void Stream::run() {
  const std::chrono::microseconds slow = slowness(number);
  const int jitter_us = environment_int("FAKE_CUDA_JITTER_US", 0);
  std::mt19937 random(static_cast<unsigned>(environment_int("FAKE_CUDA_SEED", 1) * 7919 + number));
  for (;;) {
    while (::sem_wait(&items_) != 0) {
    }
    Item* item = nullptr;
    // A thread of the host may be between its place in the list and the link to it.
    while (!(item = first_->next.load(std::memory_order_acquire))) std::this_thread::yield();
    delete std::exchange(first_, item);
    const Work work = std::exchange(item->work, nullptr);
    if (!work) return;
    if (jitter_us > 0)
      std::this_thread::sleep_for(
          std::chrono::microseconds(random() % static_cast<unsigned>(jitter_us)));
    if (slow.count() > 0) std::this_thread::sleep_for(slow);
    work();
    done_.fetch_add(1, std::memory_order_release);
  }
}

CudaError find_stream(CudaStream handle, Stream*& stream) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value <= 2) {
    if (environment_int("FAKE_CUDA_STRICT_NULL", 0) != 0) {
      refuse(kNotPermitted, "a default stream is used");
      std::abort();
    }
    stream = value == 2 ? stream_of_thread(current_device()) : legacy_stream(current_device());
    return value != 2 && spoiled_by_default_stream(current_device()) ? kCaptureImplicit : kSuccess;
  }
  stream = static_cast<Stream*>(handle);
  if (stream->magic == Stream::kMagic && stream->alive.load(std::memory_order_relaxed))
    return kSuccess;
  return refuse(kInvalidResourceHandle, "%p is not a stream, or one that was destroyed", handle);
}

CudaError submit(Stream& stream, Work work) {
  if (Capture* capture = stream.capture.load(std::memory_order_relaxed)) {
    capture_work(*capture, stream, std::move(work));
  } else if (!stream.blocking) {
    stream.push(std::move(work));
  } else {
    Device& state = device_state(stream.device);
    const std::lock_guard lock(state.mutex);
    push_blocking(state, stream, std::move(work));
  }
  return kSuccess;
}

Moment* submit_moment(Stream& stream) {
  Moment* const moment = make_kept<Moment>();
  submit(stream, [moment] { moment->reach(); });
  return moment;
}

std::vector<Stream*> streams_of(int device) {
  const Device& state = device_state(device);
  const std::shared_lock lock(state.list_mutex);
  return state.streams;
}

void wait_for_device(int device) {
  std::vector<Moment*> ends;
  for (Stream* stream : streams_of(device)) ends.push_back(stream->push_moment());
  for (const Moment* end : ends) end->wait();
  for (const Moment* end : leftovers_of(device)) end->wait();
}

}  // namespace ddprun::doubles

using namespace ddprun::doubles;

int double_cuda_device_of_stream(CudaStream handle) {
  Stream* stream = nullptr;
  return find_stream(handle, stream) == kSuccess ? stream->device : -1;
}

CudaError cudaStreamCreate(CudaStream* stream) {
  return call(__func__, [&] { return create(stream, 0); });
}

CudaError cudaStreamCreateWithFlags(CudaStream* stream, unsigned flags) {
  return call(__func__, [&] { return create(stream, flags); });
}

CudaError cudaStreamCreateWithPriority(CudaStream* stream, unsigned flags, int) {
  return call(__func__, [&] { return create(stream, flags); });
}

CudaError cudaStreamDestroy(CudaStream handle) {
  return call(__func__, [&] {
    Stream* stream = nullptr;
    const CudaError error = find_stream(handle, stream);
    if (error != kSuccess) return error;
    if (reinterpret_cast<std::uintptr_t>(handle) <= 2) return kInvalidResourceHandle;
    Device& state = device_state(stream->device);
    const std::unique_lock lock(state.list_mutex);
    std::erase(state.streams, stream);
    state.leftovers.push_back(stream->push_moment());
    stream->close();  // what is there is still done
    return kSuccess;
  });
}

CudaError cudaStreamQuery(CudaStream handle) {
  return call(__func__, [&] {
    Stream* stream = nullptr;
    const CudaError error = find_stream(handle, stream);
    if (error != kSuccess) return error;
    if (Capture* capture = stream->capture.load(std::memory_order_relaxed))
      return spoil(*capture, "cudaStreamQuery");
    if (const CudaError refused = refuse_in_capture("cudaStreamQuery")) return refused;
    return stream->idle() ? broken(stream->device) : kNotReady;
  });
}

CudaError cudaStreamSynchronize(CudaStream handle) {
  return call(__func__, [&] {
    Stream* stream = nullptr;
    const CudaError error = find_stream(handle, stream);
    if (error != kSuccess) return error;
    if (Capture* capture = stream->capture.load(std::memory_order_relaxed))
      return spoil(*capture, "cudaStreamSynchronize");
    stream->push_moment()->wait();
    return broken(stream->device);
  });
}

CudaError cudaLaunchHostFunc(CudaStream handle, void (*function)(void*), void* argument) {
  return call(__func__, [&] {
    Stream* stream = nullptr;
    const CudaError error = find_stream(handle, stream);
    if (error != kSuccess) return error;
    return submit(*stream, [function, argument] {
      set_in_host_function(true);
      function(argument);
      set_in_host_function(false);
    });
  });
}
