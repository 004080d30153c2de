#include "common/model/kernels/attention_tasks.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "common/model/kernels/scratch.h"

namespace tandem::model::kernels {
namespace {

// Below this many multiplications a second thread costs more than it saves.
constexpr int64_t kParallelWork = int64_t{1} << 18;

// Number of pairs of a query and a key that it sees, without a window.
int64_t Pairs(const AttentionShape& shape, const AttentionTask& task) {
  const int64_t queries = task.end - task.begin;
  if (shape.causal) return queries * (task.begin + task.end + 1) / 2;
  return queries * (shape.cu_seqlens[task.sequence + 1] - shape.cu_seqlens[task.sequence]);
}

}  // namespace

void RunAttentionTasks(const AttentionShape& shape, int64_t max_queries, int num_threads,
                       const ParallelFor& parallel_for,
                       const std::function<int64_t(int64_t length)>& scratch_floats,
                       const std::function<void(const AttentionTask&, float* scratch)>& run) {
  std::vector<AttentionTask> tasks;
  int64_t longest = 0;
  int64_t pairs = 0;
  for (int64_t s = 0; s < shape.num_sequences; ++s) {
    const int64_t prefix = PrefixLength(shape, s);
    const int64_t length = prefix + shape.cu_seqlens[s + 1] - shape.cu_seqlens[s];
    longest = std::max(longest, length);
    const int64_t step = max_queries > 0 ? max_queries : std::max<int64_t>(length, 1);
    for (int64_t begin = prefix; begin < length; begin += step) {
      for (int64_t head = 0; head < shape.num_kv_heads; ++head) {
        const AttentionTask task{s, head, begin, std::min(length, begin + step)};
        pairs += Pairs(shape, task);
        // Unsplit, the owner of the prefix covers this sequence in its own task.
        if (max_queries > 0 || prefix == 0) tasks.push_back(task);
      }
    }
  }
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  const bool small = pairs * group * shape.head_dim < kParallelWork;
  if (num_threads > 1 && !small) {
    // A long task that is taken last would leave the other threads idle.
    std::stable_sort(tasks.begin(), tasks.end(),
                     [&shape](const AttentionTask& a, const AttentionTask& b) {
                       return Pairs(shape, a) > Pairs(shape, b);
                     });
  }
  const int64_t floats = scratch_floats(longest);
  std::atomic<size_t> next{0};
  const auto work = [&](int64_t, int64_t) {
    float* const scratch = ThreadScratch(floats);
    for (size_t i = next++; i < tasks.size(); i = next++) run(tasks[i], scratch);
  };
  const int64_t workers = small ? 1 : std::min<int64_t>(num_threads, tasks.size());
  if (workers <= 1) return work(0, 1);
  parallel_for(workers, work);
}

}  // namespace tandem::model::kernels
