// SPDX-License-Identifier: MIT
// Fake CUDA runtime: stream capture and graphs. A graph keeps which work came in which stream and
// which waited for which; a launch runs each captured stream as a thread, so that a dependency that
// was left out is missing in the replay too, for ThreadSanitizer to see. Error codes 900 to 908 as
// documented for cudaStreamBeginCapture and cudaThreadExchangeStreamCaptureMode.
// Laxer than reality: graphs cannot be built or changed by hand.
#include <algorithm>

#include "doubles/fake_cudart_state.h"

namespace ddprun::doubles {

struct Step {
  enum Kind { kWork, kMark, kWait };
  std::size_t lane;  // which of the captured streams
  Kind kind;
  std::size_t mark = 0;
  Work work = {};
};

struct Steps {
  std::vector<Step> list;
  std::size_t lanes = 1;
  std::size_t marks = 0;
};

class Capture : public Kept {
 public:
  enum Mode { kGlobal, kThreadLocal, kRelaxed };

  Capture(Stream& first, Mode its_mode) : mode(its_mode), origin(first) { join(first); }

  std::size_t join(Stream& stream) {
    const auto found = std::find(lanes.begin(), lanes.end(), &stream);
    if (found != lanes.end()) return static_cast<std::size_t>(found - lanes.begin());
    lanes.push_back(&stream);
    stream.capture.store(this, std::memory_order_relaxed);
    return lanes.size() - 1;
  }
  void add(Stream& stream, Step::Kind kind, std::size_t mark, Work work = {}) {
    steps.list.push_back({join(stream), kind, mark, std::move(work)});
    if (kind == Step::kWork) ++clocks[&stream][&stream];
  }
  /// Whether all work of `stream` comes before the end of the origin.
  bool joined(Stream& stream) { return clocks[&origin][&stream] >= clocks[&stream][&stream]; }

  const Mode mode;
  Stream& origin;
  const std::thread::id thread = std::this_thread::get_id();
  std::vector<Stream*> lanes;
  std::map<Stream*, Clock> clocks;
  Steps steps;
  bool lost = false;
};

namespace {

// Captures are rare; the counter lets every other call pass without the lock.
std::atomic<int> captures_under_way{0};
struct Captures {
  std::mutex mutex;
  std::vector<Capture*> list;  // guarded by mutex, as is what is in them
};
Captures& captures() {
  static auto& captures = *new Captures;
  return captures;
}

thread_local int thread_mode = Capture::kGlobal;

CudaError lose(Capture& capture, const char* name, CudaError error) {
  capture.lost = true;
  return refuse(error, "%s: not allowed while a stream is captured; the capture is lost", name);
}

/// Whether a call of this thread that may not be captured disturbs a capture.
bool disturbs(const Capture& capture) {
  if (thread_mode == Capture::kRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) return capture.mode != Capture::kRelaxed;
  return thread_mode == Capture::kGlobal && capture.mode == Capture::kGlobal;
}

struct Graph : Kept {
  explicit Graph(Steps captured) : steps(std::move(captured)) {}
  const Steps steps;
};

struct GraphExec : Kept {
  GraphExec(Steps captured, int device) : steps(std::move(captured)) {
    for (std::size_t lane = 1; lane < steps.lanes; ++lane)
      lanes.push_back(make_kept<Stream>(device, false));
  }

  const Steps steps;
  std::mutex mutex;
  std::vector<Stream*> lanes;           // of its own; guarded by mutex
  const Moment* last_launch = nullptr;  // guarded by mutex
};

void wait_in(Stream& stream, const Moment* moment) {
  submit(stream, [moment] { moment->wait(); });
}

/// Lane 0 is the stream of the launch.
void launch(GraphExec& exec, Stream& stream) {
  const std::lock_guard lock(exec.mutex);
  if (exec.last_launch) wait_in(stream, exec.last_launch);
  const Moment* const start = submit_moment(stream);
  for (Stream* lane : exec.lanes) wait_in(*lane, start);
  std::vector<Moment*> marks(exec.steps.marks);
  for (const Step& step : exec.steps.list) {
    Stream& lane = step.lane == 0 ? stream : *exec.lanes[step.lane - 1];
    if (step.kind == Step::kWork) submit(lane, step.work);
    if (step.kind == Step::kMark) marks[step.mark] = submit_moment(lane);
    if (step.kind == Step::kWait) wait_in(lane, marks[step.mark]);
  }
  for (Stream* lane : exec.lanes) wait_in(stream, lane->push_moment());
  exec.last_launch = submit_moment(stream);
}

/// Takes a capture from the list and its streams; its graph or why there is none.
CudaError end(Stream& stream, Steps& steps) {
  const std::lock_guard lock(captures().mutex);
  Capture* const capture = stream.capture.load(std::memory_order_relaxed);
  if (!capture) return refuse(kIllegalState, "cudaStreamEndCapture: nothing is captured");
  if (&capture->origin != &stream) return kCaptureUnmatched;
  if (capture->mode != Capture::kRelaxed && capture->thread != std::this_thread::get_id())
    return kCaptureWrongThread;
  bool unjoined = false;
  for (Stream* lane : capture->lanes) {
    unjoined = unjoined || !capture->joined(*lane);
    lane->capture.store(nullptr, std::memory_order_relaxed);
  }
  std::erase(captures().list, capture);
  captures_under_way.fetch_sub(1, std::memory_order_relaxed);
  if (capture->lost) return kCaptureInvalidated;
  if (unjoined) return kCaptureUnjoined;
  steps = std::move(capture->steps);
  steps.lanes = capture->lanes.size();
  return kSuccess;
}

CudaError begin(Stream& stream, int mode) {
  const std::lock_guard lock(captures().mutex);
  if (stream.capture.load(std::memory_order_relaxed)) return kIllegalState;
  captures().list.push_back(make_kept<Capture>(stream, static_cast<Capture::Mode>(mode)));
  captures_under_way.fetch_add(1, std::memory_order_relaxed);
  return kSuccess;
}

}  // namespace

void capture_work(Capture& capture, Stream& stream, Work work) {
  const std::lock_guard lock(captures().mutex);
  capture.add(stream, Step::kWork, 0, std::move(work));
}

CapturedPoint* capture_record(Capture& capture, Stream& stream) {
  const std::lock_guard lock(captures().mutex);
  auto* const point = make_kept<CapturedPoint>();
  point->capture = &capture;
  point->mark = capture.steps.marks++;
  capture.add(stream, Step::kMark, point->mark);
  point->clock = capture.clocks[&stream];
  return point;
}

CudaError capture_wait(Stream& stream, const CapturedPoint& point) {
  const std::lock_guard lock(captures().mutex);
  Capture& capture = *point.capture;
  const auto& list = captures().list;
  if (std::find(list.begin(), list.end(), &capture) == list.end()) return kCapturedEvent;
  const Capture* const own = stream.capture.load(std::memory_order_relaxed);
  if (own && own != &capture) return kCaptureMerge;
  capture.add(stream, Step::kWait, point.mark);
  for (const auto& [lane, steps] : point.clock) {
    std::size_t& known = capture.clocks[&stream][lane];
    known = std::max(known, steps);
  }
  return kSuccess;
}

CudaError spoil(Capture& capture, const char* name) {
  const std::lock_guard lock(captures().mutex);
  return lose(capture, name, kCaptureUnsupported);
}

CudaError refuse_in_capture(const char* name) {
  if (captures_under_way.load(std::memory_order_relaxed) == 0) return kSuccess;
  const std::lock_guard lock(captures().mutex);
  CudaError error = kSuccess;
  for (Capture* capture : captures().list)
    if (disturbs(*capture)) error = lose(*capture, name, kCaptureUnsupported);
  return error;
}

bool spoiled_by_default_stream(int device) {
  if (captures_under_way.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard lock(captures().mutex);
  bool spoiled = false;
  for (Capture* capture : captures().list)
    for (const Stream* lane : capture->lanes)
      if (lane->device == device && lane->blocking) spoiled = capture->lost = true;
  return spoiled;
}

}  // namespace ddprun::doubles

using namespace ddprun::doubles;

CudaError cudaThreadExchangeStreamCaptureMode(int* mode) {
  return call(__func__, [&] {
    if (!mode || *mode < Capture::kGlobal || *mode > Capture::kRelaxed) return kInvalidValue;
    std::swap(*mode, thread_mode);
    return kSuccess;
  });
}

CudaError cudaStreamBeginCapture(CudaStream handle, int mode) {
  return call(__func__, [&] {
    Stream* stream = nullptr;
    if (reinterpret_cast<std::uintptr_t>(handle) <= 1) return kCaptureUnsupported;
    const CudaError error = find_stream(handle, stream);
    if (error != kSuccess) return error;
    return mode < Capture::kGlobal || mode > Capture::kRelaxed ? kInvalidValue
                                                               : begin(*stream, mode);
  });
}

CudaError cudaStreamIsCapturing(CudaStream handle, int* status) {
  return call(__func__, [&] {
    Stream* stream = nullptr;
    const CudaError error = find_stream(handle, stream);
    if (error != kSuccess) return error;
    const Capture* const capture = stream->capture.load(std::memory_order_relaxed);
    if (!capture) return *status = 0, kSuccess;
    const std::lock_guard lock(captures().mutex);
    *status = capture->lost ? 2 : 1;
    return kSuccess;
  });
}

CudaError cudaStreamEndCapture(CudaStream handle, CudaGraph* graph) {
  return call(__func__, [&] {
    Stream* stream = nullptr;
    CudaError error = find_stream(handle, stream);
    if (error != kSuccess) return error;
    Steps steps;
    error = end(*stream, steps);
    *graph = error == kSuccess ? make_kept<Graph>(std::move(steps)) : nullptr;
    return error;
  });
}

CudaError cudaGraphInstantiate(CudaGraphExec* exec, CudaGraph graph, unsigned long long) {
  return call(__func__, [&] {
    if (!exec || !graph) return kInvalidValue;
    *exec = make_kept<GraphExec>(static_cast<Graph*>(graph)->steps, current_device());
    return kSuccess;
  });
}

CudaError cudaGraphInstantiateWithFlags(CudaGraphExec* exec, CudaGraph graph,
                                        unsigned long long flags) {
  return cudaGraphInstantiate(exec, graph, flags);
}

CudaError cudaGraphLaunch(CudaGraphExec exec, CudaStream handle) {
  return call(__func__, [&] {
    Stream* stream = nullptr;
    const CudaError error = find_stream(handle, stream);
    if (error != kSuccess) return error;
    if (!exec) return kInvalidValue;
    launch(*static_cast<GraphExec*>(exec), *stream);
    return kSuccess;
  });
}

CudaError cudaGraphDestroy(CudaGraph graph) {
  return call(__func__, [&] { return graph ? kSuccess : kInvalidValue; });
}

CudaError cudaGraphExecDestroy(CudaGraphExec handle) {
  return call(__func__, [&] {
    if (!handle) return kInvalidValue;
    auto& exec = *static_cast<GraphExec*>(handle);
    const std::lock_guard lock(exec.mutex);
    for (Stream* lane : exec.lanes) lane->close();
    exec.lanes.clear();
    return kSuccess;
  });
}
