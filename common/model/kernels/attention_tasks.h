// Distributes the tasks of attention among threads.
#ifndef TANDEM_COMMON_MODEL_KERNELS_ATTENTION_TASKS_H_
#define TANDEM_COMMON_MODEL_KERNELS_ATTENTION_TASKS_H_

#include <cstdint>
#include <functional>

#include "common/model/kernels/attention.h"

namespace tandem::model::kernels {

// Returns the number of a sequence's leading tokens that are stored elsewhere.
inline int64_t PrefixLength(const AttentionShape& shape, int64_t sequence) {
  return shape.prefixes == nullptr ? 0 : shape.prefixes[2 * sequence + 1];
}

// One sequence, one key-value head, and its queries [begin, end).
struct AttentionTask {
  int64_t sequence;
  int64_t kv_head;
  int64_t begin;
  int64_t end;
};

// Calls run(task, scratch) for every task, the long ones first, in up to num_threads threads; a
// thread that becomes free takes the next task. scratch holds scratch_floats(length of the
// sequence) floats and is aligned to 64 bytes. Sequences longer than max_queries are split, so that
// one long sequence keeps several threads busy. 0: never split, and a sequence's task also covers
// the sequences that begin with its tokens.
void RunAttentionTasks(const AttentionShape& shape, int64_t max_queries, int num_threads,
                       const ParallelFor& parallel_for,
                       const std::function<int64_t(int64_t length)>& scratch_floats,
                       const std::function<void(const AttentionTask&, float* scratch)>& run);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_ATTENTION_TASKS_H_
