// The baseline for a weight update: bare collectives that move the same bytes in the same buckets
// between the same number of processes, with prebuilt buffers and no other work.
#ifndef TANDEM_TOOLS_TANDEM_BENCH_RAW_TRANSFER_H_
#define TANDEM_TOOLS_TANDEM_BENCH_RAW_TRANSFER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::bench {

struct RawTransfer {
  int trainer_ranks = 1;
  int rollouts = 1;
  int64_t size_bytes = 0;
  int64_t bucket_bytes = 0;
  // Trainer ranks send buckets in turn to the first rollout, which forwards them to the next; else
  // the first trainer rank gathers each bucket and broadcasts it.
  bool chain = false;
  std::string backend = "gloo";  // or shared_memory: see choose_group.h
  bool encrypted = false;        // every socket uses TLS
};

// Starts one process per rank and moves all buckets, back to back, five times; returns the median
// seconds.
absl::StatusOr<double> MeasureRawTransfer(const RawTransfer& transfer);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_RAW_TRANSFER_H_
