// SimulatedDevice: DeviceOps of a device whose memory happens to be the host's, and whose work is
// done by the device's kernels (simulated_grid.h). Code that follows its addresses, or skips the
// way to the host, cannot be told here; what the kernels make of an update can.
#ifndef TANDEM_TESTS_FAKES_SIMULATED_DEVICE_H_
#define TANDEM_TESTS_FAKES_SIMULATED_DEVICE_H_

#include <atomic>

#include "common/weights/cpu_ops.h"
#include "tests/fakes/simulated_grid.h"

namespace tandem::testing {

// Any thread.
class SimulatedDevice : public weights::CpuDeviceOps {
 public:
  bool on_host() const override { return false; }
  absl::Status Copy(absl::Span<const weights::CopyRun> runs) override {
    grid_.Copy(runs);
    return absl::OkStatus();
  }
  absl::Status Cast(weights::WireElement element,
                    absl::Span<const weights::CastRun> runs) override {
    num_casts += static_cast<int>(runs.size());
    grid_.Cast(element, runs);
    return absl::OkStatus();
  }
  absl::Status Digest(absl::Span<const weights::DigestRun> runs,
                      absl::Span<weights::DigestSum> sums) override {
    num_digests += static_cast<int>(runs.size());
    grid_.Digest(runs, sums);
    return absl::OkStatus();
  }

  std::atomic<int> num_casts{0};  // runs of all calls
  std::atomic<int> num_digests{0};

 private:
  const SimulatedGrid grid_{2};
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_SIMULATED_DEVICE_H_
