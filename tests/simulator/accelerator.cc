#include "tests/simulator/accelerator.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tandem::testing {
namespace {

constexpr size_t kMostFaults = 100;

// Whether the calling thread has queued work or waited for it.
thread_local bool takes_part = false;
thread_local std::array<c10::StreamId, SimulatedAccelerator::kDevices> current_streams{};

OrderLog::Bytes BytesOf(const SimulatedAccelerator::Span& span) {
  const auto begin = reinterpret_cast<uintptr_t>(span.begin);
  return {begin, begin + span.size_bytes};
}

}  // namespace

SimulatedAccelerator& SimulatedAccelerator::Get() {
  static SimulatedAccelerator& accelerator = []() -> SimulatedAccelerator& {
    auto* const made = new SimulatedAccelerator();
    SimulatedMemory::Get();
    RegisterTorchDevice();
    RegisterOperators();
    return *made;
  }();
  return accelerator;
}

int& SimulatedAccelerator::current_device() {
  thread_local int device = 0;
  return device;
}

c10::Stream SimulatedAccelerator::CurrentStream(int device) {
  return c10::Stream(c10::Stream::UNSAFE, Get().device(device), current_streams[device]);
}

c10::Stream SimulatedAccelerator::ExchangeStream(const c10::Stream& stream) {
  const c10::Stream before = CurrentStream(stream.device_index());
  current_streams[stream.device_index()] = stream.id();
  return before;
}

c10::Stream SimulatedAccelerator::StreamFromPool(int device) {
  absl::MutexLock lock(&mu_);
  const int id = 1 + next_of_pool_[device]++ % kStreamsOfPool;
  return c10::Stream(c10::Stream::UNSAFE, this->device(device), id);
}

SimulatedAccelerator::StreamState& SimulatedAccelerator::StateOf(const c10::Stream& stream) {
  std::vector<int>& numbers = numbers_[stream.device_index()];
  while (static_cast<int64_t>(numbers.size()) <= stream.id()) numbers.push_back(-1);
  int& number = numbers[stream.id()];
  if (number < 0) {
    number = static_cast<int>(streams_.size());
    auto state = std::make_unique<StreamState>();
    state->number = number;
    state->device = stream.device_index();
    state->name = absl::StrCat("simulated:", static_cast<int>(stream.device_index()), " stream ",
                               stream.id());
    state->thread = std::make_unique<StreamThread>();
    state->thread->SetDelays(options_.seed * 1000 + number, options_.longest_delay);
    streams_.push_back(std::move(state));
  }
  StreamState& state = *streams_[number];
  // What the host knows to be done is done before anything that it queues from now on.
  Join(state.clock, host_[stream.device_index()]);
  return state;
}

uint64_t SimulatedAccelerator::Append(StreamState& state, std::function<void()> run) {
  if (state.clock.size() <= static_cast<size_t>(state.number)) {
    state.clock.resize(state.number + 1);
  }
  state.thread->Push(std::move(run));
  return ++state.clock[state.number];
}

void SimulatedAccelerator::AddFault(std::string fault) {
  if (faults_.size() < kMostFaults) faults_.push_back(std::move(fault));
}

void SimulatedAccelerator::CheckSpan(const StreamState& state, const OrderLog::Access& access,
                                     const Span& span, bool writes) {
  if (span.size_bytes == 0) return;
  const std::string how =
      absl::StrCat(*access.what, writes ? " writes " : " reads ", span.size_bytes, " bytes");
  if (!SimulatedMemory::Get().IsAllocated(span.begin, span.size_bytes)) {
    AddFault(absl::StrCat(how, " of memory that is not allocated: freed while still in use?"));
    return;
  }
  const OrderLog::Bytes bytes = BytesOf(span);
  const auto conflict =
      writes ? log_.Write(access, state.clock, bytes) : log_.Read(access, state.clock, bytes);
  if (conflict.has_value()) {
    AddFault(absl::StrCat(how, ", but is not ordered after ", *conflict->earlier.what, ", which ",
                          conflict->earlier_writes ? "writes" : "reads",
                          " some of them: an event to wait for, or a synchronization, is missing"));
  }
  if (SimulatedMemory::Get().IsPinned(span.begin)) {
    UsePinned(
        {SimulatedMemory::Get().PinnedBlockOf(span.begin), access.stream, access.time, writes});
  }
}

void SimulatedAccelerator::Enqueue(const c10::Stream& stream, Operation operation) {
  takes_part = true;
  absl::MutexLock lock(&mu_);
  StreamState& state = StateOf(stream);
  const OrderLog::Access access{
      state.number, TimeOf(state.clock, state.number) + 1,
      std::make_shared<const std::string>(absl::StrCat(operation.what, " on ", state.name))};
  Counts& counts = counts_[stream.device_index()];
  ++counts.operations;
  counts.host_bytes += operation.host_bytes;
  for (const Span& span : operation.reads) CheckSpan(state, access, span, /*writes=*/false);
  for (const Span& span : operation.writes) CheckSpan(state, access, span, /*writes=*/true);
  Append(state, [this, what = access.what, run = std::move(operation.run)] {
    try {
      run();
    } catch (const std::exception& error) {
      absl::MutexLock lock(&mu_);
      if (failure_.empty()) failure_ = absl::StrCat(*what, ": ", error.what());
    }
  });
}

SimulatedAccelerator::Point SimulatedAccelerator::Record(const c10::Stream& stream) {
  absl::MutexLock lock(&mu_);
  StreamState& state = StateOf(stream);
  Point point;
  point.stream = state.number;
  point.reached_ns = std::make_shared<std::atomic<int64_t>>(0);
  point.time =
      Append(state, [reached = point.reached_ns] { *reached = absl::GetCurrentTimeNanos(); });
  point.clock = state.clock;
  return point;
}

void SimulatedAccelerator::Wait(const c10::Stream& stream, const Point& point) {
  absl::MutexLock lock(&mu_);
  StreamState& state = StateOf(stream);
  if (state.number == point.stream) return;
  StreamThread* const awaited = streams_[point.stream]->thread.get();
  Append(state, [awaited, time = point.time] { awaited->Await(time); });
  Join(state.clock, point.clock);
}

bool SimulatedAccelerator::Query(const Point& point) {
  StreamThread* thread = nullptr;
  {
    absl::MutexLock lock(&mu_);
    thread = streams_[point.stream]->thread.get();
  }
  if (!takes_part || !thread->IsDone(point.time)) return false;
  HostKnows(point);
  return true;
}

void SimulatedAccelerator::Synchronize(const Point& point) {
  takes_part = true;
  StreamThread* thread = nullptr;
  {
    absl::MutexLock lock(&mu_);
    thread = streams_[point.stream]->thread.get();
    ++counts_[streams_[point.stream]->device].host_waits;
  }
  thread->Await(point.time);
  HostKnows(point);
  std::string failure;
  {
    absl::MutexLock lock(&mu_);
    failure = failure_;
  }
  TORCH_CHECK(failure.empty(), "the simulated device has failed: ", failure);
}

SimulatedAccelerator::Counts SimulatedAccelerator::CountsOf(int device) {
  absl::MutexLock lock(&mu_);
  return counts_[device];
}

void SimulatedAccelerator::SynchronizeDevice(int device) {
  int streams = 0;
  {
    absl::MutexLock lock(&mu_);
    streams = static_cast<int>(numbers_[device].size());
  }
  for (int id = 0; id < streams; ++id) {
    Synchronize(c10::Stream(c10::Stream::UNSAFE, this->device(device), id));
  }
}

void SimulatedAccelerator::HostKnows(const Point& point) {
  absl::MutexLock lock(&mu_);
  for (int device = 0; device < kDevices; ++device) {
    const std::vector<int>& numbers = numbers_[device];
    if (std::find(numbers.begin(), numbers.end(), point.stream) == numbers.end()) continue;
    Join(host_[device], point.clock);
    std::vector<const void*> blocks;
    std::erase_if(pinned_uses_, [&](const PinnedUse& use) {
      if (use.time > TimeOf(host_[device], use.stream)) return false;
      blocks.push_back(use.block);
      return true;
    });
    for (const void* block : blocks) Protect(block);
  }
}

void SimulatedAccelerator::UsePinned(const PinnedUse& use) {
  pinned_uses_.push_back(use);
  Protect(use.block);
}

void SimulatedAccelerator::Protect(const void* block) {
  bool reads = false, writes = false;
  for (const PinnedUse& use : pinned_uses_) {
    if (use.block == block) (use.writes ? writes : reads) = true;
  }
  using HostAccess = SimulatedMemory::HostAccess;
  SimulatedMemory::Get().SetHostAccess(block, writes  ? HostAccess::kNone
                                              : reads ? HostAccess::kRead
                                                      : HostAccess::kAll);
}

void SimulatedAccelerator::Restart(const Options& options) {
  for (int device = 0; device < kDevices; ++device) {
    try {
      SynchronizeDevice(device);
    } catch (const std::exception&) {
      // A failure of the last test is not the next one's.
    }
  }
  absl::MutexLock lock(&mu_);
  options_ = options;
  faults_.clear();
  failure_.clear();
  log_.Clear();
  std::fill(std::begin(counts_), std::end(counts_), Counts());
  for (const auto& state : streams_) {
    state->thread->SetDelays(options.seed * 1000 + state->number, options.longest_delay);
  }
}

std::vector<std::string> SimulatedAccelerator::TakeFaults() {
  absl::MutexLock lock(&mu_);
  return std::exchange(faults_, {});
}

}  // namespace tandem::testing
