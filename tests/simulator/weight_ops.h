// SimulatedWeightOps: the weight operations of a simulated device: the GPU's kernels
// (tests/fakes/simulated_grid.h), queued on its streams. Threads: as DeviceOps.
#ifndef TANDEM_TESTS_SIMULATOR_WEIGHT_OPS_H_
#define TANDEM_TESTS_SIMULATOR_WEIGHT_OPS_H_

#include <atomic>
#include <memory>
#include <utility>

#include "common/weights/device_ops.h"
#include "tests/fakes/simulated_grid.h"

namespace tandem::testing {

class SimulatedWeightOps : public weights::DeviceOps {
 public:
  explicit SimulatedWeightOps(std::shared_ptr<device::Device> device)
      : DeviceOps(std::move(device)) {}
  absl::Status Copy(absl::Span<const weights::CopyRun> runs) override;
  absl::Status Cast(weights::WireElement element, absl::Span<const weights::CastRun> runs) override;
  absl::Status Digest(absl::Span<const weights::DigestRun> runs,
                      absl::Span<weights::DigestSum> sums) override;

  std::atomic<int> num_digests{0};  // runs of all calls

 private:
  const SimulatedGrid grid_{2};
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SIMULATOR_WEIGHT_OPS_H_
