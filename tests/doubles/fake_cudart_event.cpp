// SPDX-License-Identifier: MIT
// Fake CUDA runtime: events. A record is a point in the work of a stream of its own, so that one
// who waits for an earlier record of an event is not touched by a later one. An event that was
// never recorded is done. Destroying one that is pending is allowed.
// Stricter than reality: a destroyed event is refused wherever it is used.
#include "doubles/fake_cudart_state.h"

namespace ddprun::doubles {
namespace {

CudaError find_event(CudaEvent handle, Event*& event) {
  event = static_cast<Event*>(handle);
  if (event && event->magic == Event::kMagic && event->alive.load(std::memory_order_relaxed))
    return kSuccess;
  return refuse(kInvalidResourceHandle, "%p is not an event, or one that was destroyed", handle);
}

CudaError create(CudaEvent* handle, unsigned flags) {
  if (!handle || flags > 7) return kInvalidValue;
  *handle = make_kept<Event>(current_device(), flags);
  return kSuccess;
}

CudaError record(Event& event, Stream& stream) {
  if (event.device != stream.device)
    return refuse(kInvalidResourceHandle, "record: an event of device %d in a stream of device %d",
                  event.device, stream.device);
  if (Capture* capture = stream.capture.load(std::memory_order_relaxed)) {
    event.captured.store(capture_record(*capture, stream), std::memory_order_release);
    return kSuccess;
  }
  event.captured.store(nullptr, std::memory_order_relaxed);
  event.latest.store(submit_moment(stream), std::memory_order_release);
  return kSuccess;
}

CudaError wait(Stream& stream, const Event& event) {
  if (const CapturedPoint* point = event.captured.load(std::memory_order_acquire))
    return capture_wait(stream, *point);
  if (stream.capture.load(std::memory_order_relaxed))
    return refuse(kCaptureIsolation, "wait: a captured stream for an event outside of the capture");
  const Moment* const moment = event.latest.load(std::memory_order_acquire);
  return moment ? submit(stream, [moment] { moment->wait(); }) : kSuccess;
}

}  // namespace
}  // namespace ddprun::doubles

using namespace ddprun::doubles;

CudaError cudaEventCreateWithFlags(CudaEvent* event, unsigned flags) {
  return call(__func__, [&] { return create(event, flags); });
}

CudaError cudaEventCreate(CudaEvent* event) {
  return call(__func__, [&] { return create(event, 0); });
}

CudaError cudaEventDestroy(CudaEvent handle) {
  return call(__func__, [&] {
    Event* event = nullptr;
    const CudaError error = find_event(handle, event);
    if (error == kSuccess) event->alive.store(false, std::memory_order_relaxed);
    return error;
  });
}

CudaError cudaEventRecord(CudaEvent handle, CudaStream stream_handle) {
  return call(__func__, [&] {
    Event* event = nullptr;
    Stream* stream = nullptr;
    CudaError error = find_event(handle, event);
    if (error == kSuccess) error = find_stream(stream_handle, stream);
    return error != kSuccess ? error : record(*event, *stream);
  });
}

CudaError cudaStreamWaitEvent(CudaStream stream_handle, CudaEvent handle, unsigned) {
  return call(__func__, [&] {
    Event* event = nullptr;
    Stream* stream = nullptr;
    CudaError error = find_event(handle, event);
    if (error == kSuccess) error = find_stream(stream_handle, stream);
    return error != kSuccess ? error : wait(*stream, *event);
  });
}

CudaError cudaEventQuery(CudaEvent handle) {
  return call_outside_capture(__func__, [&] {
    Event* event = nullptr;
    const CudaError error = find_event(handle, event);
    if (error != kSuccess) return error;
    if (event->captured.load(std::memory_order_relaxed)) return kCapturedEvent;
    const Moment* const moment = event->latest.load(std::memory_order_acquire);
    return !moment || moment->reached() ? broken(event->device) : kNotReady;
  });
}

CudaError cudaEventSynchronize(CudaEvent handle) {
  return call_outside_capture(__func__, [&] {
    Event* event = nullptr;
    const CudaError error = find_event(handle, event);
    if (error != kSuccess) return error;
    if (event->captured.load(std::memory_order_relaxed)) return kCapturedEvent;
    if (const Moment* const moment = event->latest.load(std::memory_order_acquire)) moment->wait();
    return broken(event->device);
  });
}

CudaError cudaEventElapsedTime(float* milliseconds, CudaEvent start, CudaEvent end) {
  return call(__func__, [&] {
    Event *first = nullptr, *second = nullptr;
    CudaError error = find_event(start, first);
    if (error == kSuccess) error = find_event(end, second);
    if (error != kSuccess) return error;
    const Moment* const from = first->latest.load(std::memory_order_acquire);
    const Moment* const to = second->latest.load(std::memory_order_acquire);
    const bool untimed = ((first->flags | second->flags) & ddprun::kCudaEventDisableTiming) != 0;
    if (untimed || !from || !to || first->device != second->device) return kInvalidResourceHandle;
    if (!from->reached() || !to->reached()) return kNotReady;
    *milliseconds = static_cast<float>(static_cast<double>(to->time_ns() - from->time_ns()) * 1e-6);
    return kSuccess;
  });
}
