// Makes a new policy version for benchmarks to publish.
#ifndef TANDEM_TOOLS_TANDEM_BENCH_NEW_VERSION_H_
#define TANDEM_TOOLS_TANDEM_BENCH_NEW_VERSION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tools/tandem/driver/trainer_client.h"

namespace tandem::bench {

// Trains step `step` on one short sequence, after which the trainer has a new version.
absl::Status MakeNewVersion(driver::TrainerClient& trainer, int64_t step, int64_t vocab_size);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_NEW_VERSION_H_
