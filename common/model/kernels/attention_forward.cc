#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/attention_forward.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <cmath>

#include "common/model/kernels/attention-inl.h"
#include "common/model/kernels/attention.h"
#include "common/model/kernels/attention_tasks.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

void ScaleRow(float* row, int64_t width, float factor) {
  const Floats d;
  const FloatVec factors = hn::Set(d, factor);
  for (int64_t j = 0; j < width; j += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + j), factors), d, row + j);
  }
}

int64_t ForwardScratch(const AttentionShape& shape, int64_t length) {
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  const int64_t rows = std::max(kQueryRows, group);
  const int64_t v_width = RoundUp(shape.v_head_dim, kWidth);
  return RoundUp(length, kWidth) * (shape.head_dim + v_width) +
         rows * (shape.head_dim + kKeyBlock + v_width + 2) + group;
}

template <typename T>
void ForwardTask(const AttentionShape& shape, const AttentionTask& task, T* out, float* log_sum_exp,
                 float* scratch) {
  const Extent e = ExtentOf(shape, task.sequence);
  const int64_t head = task.kv_head * e.group;
  const int64_t max_rows = e.block_tokens * e.group;
  float* const keys = scratch;                           // panels
  float* const values = keys + e.padded * e.dim;         // [length, v_width]
  float* const queries = values + e.padded * e.v_width;  // [rows, dim]
  float* const scores = queries + max_rows * e.dim;      // [rows, kKeyBlock]
  float* const sums = scores + max_rows * kKeyBlock;     // [rows, v_width]
  Running* const running = reinterpret_cast<Running*>(sums + max_rows * e.v_width);
  float* const slopes = sums + max_rows * (e.v_width + 2);  // [group]

  const T* const q = static_cast<const T*>(shape.q);
  Extent seen = e;  // the keys that the task's last query sees
  seen.length = KeysOf(shape, e, task.end);
  UnpackTransposed(static_cast<const T*>(shape.k) + task.kv_head * e.dim, shape.k_stride, seen,
                   e.dim, keys);
  UnpackRows(static_cast<const T*>(shape.v) + task.kv_head * e.v_dim, shape.v_stride, seen, e.v_dim,
             e.v_width, values);

  for (int64_t g = 0; g < e.group; ++g) slopes[g] = SlopeOf(shape.alibi, head + g);
  const float* const sinks = shape.sinks == nullptr ? nullptr : shape.sinks + head;

  for (int64_t token = task.begin; token < task.end; token += e.block_tokens) {
    const int64_t tokens = std::min(e.block_tokens, task.end - token);
    const int64_t rows = tokens * e.group;
    UnpackQueries(q, shape.q_stride, head, token, tokens, e, shape.scale, e.dim, e.dim, queries);
    for (int64_t i = 0; i < rows; ++i) running[i] = InitialOf(sinks, i % e.group);
    std::fill(sums, sums + rows * e.v_width, 0.0f);
    const int64_t oldest = shape.window.OldestSeen(token);
    const int64_t end = KeysOf(shape, e, token + tokens);
    // Blocks count from the sequence's start, also with a window: where they are cut decides the
    // bits.
    for (int64_t key = oldest / kKeyBlock * kKeyBlock; key < end; key += kKeyBlock) {
      const int64_t num_keys = std::min(kKeyBlock, end - key);
      const int64_t cols = RoundUp(num_keys, kWidth);
      MultiplyPanels(queries, rows, e.dim, keys + key * e.dim, cols, scores, kKeyBlock);
      for (int64_t i = 0; i < rows; ++i) {
        const Visible visible = VisibleTo(shape, e, token + i / e.group, key, num_keys);
        const ScoreRule rule{shape.softcap, slopes[i % e.group]};
        if (!rule.IsPlain()) {
          AdjustScores(scores + i * kKeyBlock, 0, cols, rule, key - (token + i / e.group));
        }
        const float shrunk = SoftmaxBlock(scores + i * kKeyBlock, cols, visible, running[i]);
        // After the first blocks the maximum seldom moves; a factor of 1 would change no bit.
        if (shrunk != 1.0f) ScaleRow(sums + i * e.v_width, e.v_width, shrunk);
      }
      MultiplyRows<false>(scores, kKeyBlock, 1, rows, num_keys, values + key * e.v_width, e.v_width,
                          sums);
    }
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = (e.first + token + i / e.group) * shape.num_heads + head + i % e.group;
      ScaleRow(sums + i * e.v_width, e.v_width, 1.0f / running[i].sum);
      CopyRow(sums + i * e.v_width, e.v_dim, out + row * e.v_dim);
      if (log_sum_exp != nullptr) log_sum_exp[row] = running[i].most + std::log(running[i].sum);
    }
  }
}

void RunForwardTask(const AttentionShape& shape, const AttentionTask& task, void* out,
                    float* log_sum_exp, float* scratch) {
  if (shape.type == Element::kFloat32) {
    return ForwardTask(shape, task, static_cast<float*>(out), log_sum_exp, scratch);
  }
  ForwardTask(shape, task, static_cast<BFloat16*>(out), log_sum_exp, scratch);
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {
namespace {

HWY_EXPORT(ForwardScratch);
HWY_EXPORT(RunForwardTask);

// Queries per task; each task unpacks the keys again. Enough queries that this costs little, and
// few enough that one long sequence feeds several threads.
constexpr int64_t kMaxQueries = 1024;

}  // namespace

void AttentionForward(const AttentionShape& shape, void* out, float* log_sum_exp, int num_threads,
                      const ParallelFor& parallel_for) {
  RunAttentionTasks(
      shape, kMaxQueries, num_threads, parallel_for,
      [&](int64_t length) { return HWY_DYNAMIC_DISPATCH(ForwardScratch)(shape, length); },
      [&](const AttentionTask& task, float* scratch) {
        HWY_DYNAMIC_DISPATCH(RunForwardTask)(shape, task, out, log_sum_exp, scratch);
      });
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
