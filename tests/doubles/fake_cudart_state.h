// SPDX-License-Identifier: MIT
// The parts of the fake CUDA runtime, as they see each other.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include <semaphore.h>

#include "doubles/fake_cudart.h"
#include "doubles/kept.h"

namespace ddprun::doubles {

inline constexpr int kMaxDevices = 64;

inline constexpr CudaError kSuccess = 0;
inline constexpr CudaError kInvalidValue = 1;
inline constexpr CudaError kMemoryAllocation = 2;
inline constexpr CudaError kInitializationError = 3;
inline constexpr CudaError kInvalidConfiguration = 9;
inline constexpr CudaError kInsufficientDriver = 35;
inline constexpr CudaError kInvalidDeviceFunction = 98;
inline constexpr CudaError kNoDevice = 100;
inline constexpr CudaError kInvalidDevice = 101;
inline constexpr CudaError kInvalidResourceHandle = 400;
inline constexpr CudaError kIllegalState = 401;
inline constexpr CudaError kSymbolNotFound = 500;
inline constexpr CudaError kNotReady = 600;
inline constexpr CudaError kIllegalAddress = 700;
inline constexpr CudaError kNotPermitted = 800;
inline constexpr CudaError kCaptureUnsupported = 900;
inline constexpr CudaError kCaptureInvalidated = 901;
inline constexpr CudaError kCaptureMerge = 902;
inline constexpr CudaError kCaptureUnmatched = 903;
inline constexpr CudaError kCaptureUnjoined = 904;
inline constexpr CudaError kCaptureIsolation = 905;
inline constexpr CudaError kCaptureImplicit = 906;
inline constexpr CudaError kCapturedEvent = 907;
inline constexpr CudaError kCaptureWrongThread = 908;

// ---- errors (fake_cudart_error.cpp)

/// Says on stderr what was wrong with a call, beyond its code; returns the code.
[[gnu::format(printf, 2, 3)]] CudaError refuse(CudaError error, const char* format, ...);
/// The error that every call answers from now on, on this device.
void break_device(int device, CudaError error);
CudaError broken(int device);
/// What a call ends with before it did anything: no device, a fault, a call from a host function.
CudaError before_call(const char* name);
CudaError remember(CudaError error);
/// A call of the API that needs no context.
template <class Body>
CudaError call_without_context(const char* name, Body body) {
  CudaError error = before_call(name);
  if (error == kSuccess) error = body();
  return remember(error);
}
/// The current device gets a context when the calling thread has none.
void need_context();
template <class Body>
CudaError call(const char* name, Body body) {
  return call_without_context(name, [&] { return need_context(), body(); });
}
/// The same of one that is not allowed while a stream is captured.
CudaError refuse_in_capture(const char* name);
template <class Body>
CudaError call_outside_capture(const char* name, Body body) {
  return call(name, [&] {
    const CudaError error = refuse_in_capture(name);
    return error == kSuccess ? body() : error;
  });
}
/// Set on a stream's thread while it runs a host function.
void set_in_host_function(bool inside);

// ---- devices (fake_cudart_device.cpp)

int device_count();
int current_device();

// ---- streams (fake_cudart_stream.cpp)

using Work = std::function<void()>;

/// A point in the work of a stream, which others wait for.
class Moment : public Kept {
 public:
  void reach();
  bool reached() const;
  void wait() const;
  std::int64_t time_ns() const { return time_ns_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> reached_{0};
  std::atomic<std::int64_t> time_ns_{0};
};

class Capture;

class Stream : public Kept {
 public:
  static constexpr std::uint32_t kMagic = 0x53545245;

  Stream(int on_device, bool is_blocking);

  /// Adds work behind what is there. Threads: any.
  void push(Work work);
  /// Adds a point that is reached when all before it is done.
  Moment* push_moment();
  bool idle() const;
  /// No more work will come.
  void close() { alive.store(false, std::memory_order_relaxed), push({}); }

  const std::uint32_t magic = kMagic;
  const int device;
  const bool blocking;  // towards the legacy default stream
  const int number;     // in the order they were made
  std::atomic<bool> alive{true};
  std::atomic<Capture*> capture{nullptr};
  // Between this stream and the legacy default stream, guarded by Device::mutex.
  bool unseen_by_legacy = false;
  const Moment* seen_of_legacy = nullptr;

 private:
  struct Item {
    Work work;
    std::atomic<Item*> next{nullptr};
  };
  void run();

  std::atomic<Item*> last_;
  Item* first_;  // of the thread
  sem_t items_;
  std::atomic<std::uint64_t> pushed_{0};
  std::atomic<std::uint64_t> done_{0};
};

/// The stream a handle names; null handles are the default stream of the current device.
CudaError find_stream(CudaStream handle, Stream*& stream);
/// Adds work where it belongs: to the capture that the stream is in, or to the stream, with what
/// the default stream orders.
CudaError submit(Stream& stream, Work work);
Moment* submit_moment(Stream& stream);
/// All of a device that are not destroyed.
std::vector<Stream*> streams_of(int device);
void wait_for_device(int device);

// ---- events (fake_cudart_event.cpp)

using Clock = std::map<Stream*, std::size_t>;  // how many steps of each stream came before

/// Where in a capture an event was recorded.
struct CapturedPoint : Kept {
  Capture* capture = nullptr;
  std::size_t mark = 0;
  Clock clock;
};

struct Event : Kept {
  static constexpr std::uint32_t kMagic = 0x45564e54;
  Event(int on_device, unsigned with_flags) : device(on_device), flags(with_flags) {}

  const std::uint32_t magic = kMagic;
  const int device;
  const unsigned flags;
  std::atomic<bool> alive{true};
  std::atomic<Moment*> latest{nullptr};
  std::atomic<CapturedPoint*> captured{nullptr};
};

// ---- capture (fake_cudart_capture.cpp)

void capture_work(Capture& capture, Stream& stream, Work work);
CapturedPoint* capture_record(Capture& capture, Stream& stream);
CudaError capture_wait(Stream& stream, const CapturedPoint& point);
/// For a call that a captured stream cannot answer: the capture is lost.
CudaError spoil(Capture& capture, const char* call);
/// Whether work on the default stream of `device` would make it depend on a capture, which is lost.
bool spoiled_by_default_stream(int device);

// ---- memory (fake_cudart_memory.cpp)

/// Whether a word is an address of device memory.
bool is_device_address(std::uintptr_t word);

}  // namespace ddprun::doubles
