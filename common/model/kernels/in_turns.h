// Distributes tasks of similar size dynamically among threads.
#ifndef TANDEM_COMMON_MODEL_KERNELS_IN_TURNS_H_
#define TANDEM_COMMON_MODEL_KERNELS_IN_TURNS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "common/model/kernels/gemm.h"

namespace tandem::model::kernels {

// A thread takes 1 / kTurns of its share at a time.
constexpr int64_t kTurns = 4;

// Calls the body(begin, end) that make_body() returns for each thread, for ranges that cover [0,
// count). A thread takes the next few tasks when it finishes its own, so a delayed thread does not
// hold up the others for long.
template <typename MakeBody>
void InTurnsWith(int64_t count, int64_t num_threads, int64_t turns, const ParallelFor& parallel_for,
                 const MakeBody& make_body) {
  const int64_t threads = std::min(num_threads, count);
  if (threads <= 1) return make_body()(int64_t{0}, count);
  const int64_t at_once = std::max<int64_t>(1, count / (threads * turns));
  std::atomic<int64_t> next{0};
  parallel_for(threads, [&](int64_t, int64_t) {
    int64_t i = next.fetch_add(at_once);
    // A thread that comes too late makes no body, which may pack an operand first.
    if (i >= count) return;
    for (auto body = make_body(); i < count; i = next.fetch_add(at_once)) {
      body(i, std::min(count, i + at_once));
    }
  });
}

// The same with one body.
template <typename Body>
void InTurns(int64_t count, int64_t num_threads, const ParallelFor& parallel_for,
             const Body& body) {
  InTurnsWith(count, num_threads, kTurns, parallel_for, [&body]() -> const Body& { return body; });
}

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_IN_TURNS_H_
