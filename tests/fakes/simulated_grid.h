// SimulatedGrid: the kernels' own code, thread after thread on the CPU, as a device's grid runs it:
// any number of blocks, in an order that is not that of their numbers.
#ifndef TANDEM_TESTS_FAKES_SIMULATED_GRID_H_
#define TANDEM_TESTS_FAKES_SIMULATED_GRID_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/weights/additive_digest.h"
#include "common/weights/additive_digest_kernel.h"
#include "common/weights/run_kernels.h"

namespace tandem::testing {

struct SimulatedGrid {
  int64_t blocks = 3;

  void Copy(absl::Span<const weights::CopyRun> runs) const {
    const int64_t threads = blocks * weights::kRunThreads;
    for (const weights::CopyRun& run : runs) {
      for (int64_t thread = threads - 1; thread >= 0; --thread) {
        weights::CopyThread(run, thread, threads);
      }
    }
  }

  void Cast(weights::WireElement element, absl::Span<const weights::CastRun> runs) const {
    const int64_t threads = blocks * weights::kRunThreads;
    for (const weights::CastRun& run : runs) {
      for (int64_t thread = threads - 1; thread >= 0; --thread) {
        weights::CastThread(run, element, thread, threads);
      }
    }
  }

  // Adds to the sums.
  void Digest(absl::Span<const weights::DigestRun> runs,
              absl::Span<weights::DigestSum> sums) const {
    for (const weights::DigestRun& run : runs) {
      for (int64_t block = blocks - 1; block >= 0; --block) {
        for (int thread = 0; thread < weights::kDigestThreads; ++thread) {
          weights::DigestThread(run, block, blocks, thread, sums[run.slot].lanes);
        }
      }
    }
  }
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_SIMULATED_GRID_H_
