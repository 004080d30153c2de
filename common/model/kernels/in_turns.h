// Tasks of about the same size, shared out among threads while they run.
#ifndef TANDEM_COMMON_MODEL_KERNELS_IN_TURNS_H_
#define TANDEM_COMMON_MODEL_KERNELS_IN_TURNS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "common/model/kernels/gemm.h"

namespace tandem::model::kernels {

// A thread takes its share in so many turns.
constexpr int64_t kTurns = 4;

// Calls body(begin, end) for ranges that cover [0, count). Each thread takes the next few as it is
// done with its own, so one that is held up does not hold up the others for long.
template <typename Body>
void InTurns(int64_t count, int num_threads, const ParallelFor& parallel_for, const Body& body) {
  const int64_t threads = std::min<int64_t>(num_threads, count);
  if (threads <= 1) return body(int64_t{0}, count);
  const int64_t at_once = std::max<int64_t>(1, count / (threads * kTurns));
  std::atomic<int64_t> next{0};
  parallel_for(threads, [&](int64_t, int64_t) {
    for (int64_t i = next.fetch_add(at_once); i < count; i = next.fetch_add(at_once)) {
      body(i, std::min(count, i + at_once));
    }
  });
}

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_IN_TURNS_H_
