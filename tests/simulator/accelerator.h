// SimulatedAccelerator: devices on a CPU that behave like GPUs as far as order is concerned. Streams
// are threads that run their queue in order, with random delays; device memory cannot be read by the
// host (memory.h); operators of LibTorch on tensors of "simulated:0" to "simulated:3" are queued
// (operators.cc) and run by the CPU's kernels, with the CPU's bits.
//
//   SimulatedAccelerator& accelerator = SimulatedAccelerator::Get();
//   accelerator.Restart({.seed = 7});
//   at::Tensor x = at::ones({4}, accelerator.device(0));     // returns before the stream has run it
//   EXPECT_EQ(x.cpu().sum().item<float>(), 4);                // waits
//   EXPECT_THAT(accelerator.TakeFaults(), IsEmpty());
//
// A mistake in ordering is found in two ways: the delays let it corrupt results, as on a GPU; and
// every access is checked against the earlier ones of its bytes (order_log.h), which finds it in
// every run and names both operations. A host's synchronization orders everything that is queued
// later on the same device, by any thread: mistakes between the host's own threads are not found.
//
// Any thread. A device is used by one rank.
#ifndef TANDEM_TESTS_SIMULATOR_ACCELERATOR_H_
#define TANDEM_TESTS_SIMULATOR_ACCELERATOR_H_

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tests/simulator/memory.h"
#include "tests/simulator/order_log.h"
#include "tests/simulator/stream_thread.h"

namespace tandem::testing {

class SimulatedAccelerator {
 public:
  static constexpr int kDevices = SimulatedMemory::kDevices;
  static constexpr int kStreamsOfPool = 32;  // as on CUDA; then they are handed out again

  struct Options {
    uint64_t seed = 1;
    absl::Duration longest_delay = absl::Microseconds(400);
  };

  // Of the process; never destroyed. The first call registers it as LibTorch's PrivateUse1, which
  // has to happen before the process's first backward pass.
  static SimulatedAccelerator& Get();

  c10::Device device(int index) const {
    return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)};
  }

  // Waits for all streams, forgets faults and accesses, and draws new delays.
  void Restart(const Options& options);

  // Mistakes in ordering since the last call: what, where, and the operation that it conflicts with.
  std::vector<std::string> TakeFaults();

  // What was asked of a device since Restart().
  struct Counts {
    int64_t operations = 0;  // queued
    int64_t host_waits = 0;  // a thread of the host waited for the device
    int64_t host_bytes = 0;  // copied between the device and the host
  };
  Counts CountsOf(int device);

  // Bytes of device or pinned memory that an operation touches, by the host's addresses.
  struct Span {
    const void* begin = nullptr;
    size_t size_bytes = 0;
  };
  struct Operation {
    std::string what;
    std::vector<Span> reads, writes;
    std::function<void()> run;  // on the stream; uses SimulatedMemory::OnStream()
    int64_t host_bytes = 0;     // copied between the device and the host
  };
  // Queues an operation. If it throws, the device has failed: the next synchronization throws that.
  void Enqueue(const c10::Stream& stream, Operation operation);

  // A point in a stream.
  struct Point {
    int stream = -1;  // number
    uint64_t time = 0;
    Clock clock;
    std::shared_ptr<std::atomic<int64_t>> reached_ns;
  };
  Point Record(const c10::Stream& stream);
  void Wait(const c10::Stream& stream, const Point& point);
  // True if the stream has reached the point; the host then knows it. Threads that never queue
  // anything are told false: what a watchdog learns orders nothing that others queue.
  bool Query(const Point& point);
  void Synchronize(const Point& point);
  void Synchronize(const c10::Stream& stream) { Synchronize(Record(stream)); }
  void SynchronizeDevice(int device);

  c10::Stream StreamFromPool(int device);
  // The calling thread's.
  static c10::Stream CurrentStream(int device);
  static c10::Stream ExchangeStream(const c10::Stream& stream);
  static int& current_device();

 private:
  struct StreamState {
    int number = 0;
    int device = 0;
    std::string name;  // "simulated:0 stream 3"
    Clock clock;       // what is certainly done before its next operation
    std::unique_ptr<StreamThread> thread;
  };
  // Work that touches pinned memory and that the host does not know to be done.
  struct PinnedUse {
    const void* block = nullptr;
    int stream = -1;
    uint64_t time = 0;
    bool writes = false;
  };

  SimulatedAccelerator() = default;
  StreamState& StateOf(const c10::Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Appends to the stream; returns its time.
  uint64_t Append(StreamState& state, std::function<void()> run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckSpan(const StreamState& state, const OrderLog::Access& access, const Span& span,
                 bool writes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddFault(std::string fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UsePinned(const PinnedUse& use) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The host has learnt that the point has been reached.
  void HostKnows(const Point& point);
  void Protect(const void* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  Options options_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<StreamState>> streams_ ABSL_GUARDED_BY(mu_);  // by number
  // By device and id; ids count from 0, the default stream.
  std::vector<int> numbers_[kDevices] ABSL_GUARDED_BY(mu_);
  int next_of_pool_[kDevices] ABSL_GUARDED_BY(mu_) = {};
  Counts counts_[kDevices] ABSL_GUARDED_BY(mu_);
  Clock host_[kDevices] ABSL_GUARDED_BY(mu_);  // what the host knows to be done
  OrderLog log_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> faults_ ABSL_GUARDED_BY(mu_);
  std::vector<PinnedUse> pinned_uses_ ABSL_GUARDED_BY(mu_);
  std::string failure_ ABSL_GUARDED_BY(mu_);  // of an operation
};

// Registers devices, streams, events and memory (torch_device.cc), and the operators
// (operators.cc), with LibTorch. Once.
void RegisterTorchDevice();
void RegisterOperators();

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SIMULATOR_ACCELERATOR_H_
