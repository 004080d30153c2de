#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/attention_backward.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <cmath>

#include "common/model/kernels/attention-inl.h"
#include "common/model/kernels/attention.h"
#include "common/model/kernels/attention_tasks.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

// Turns raw scores into probabilities, and the probabilities' gradients into those of the raw
// scores: p = exp(score - log_sum_exp), dscore = p (dp - delta). kPlain: raw scores are the scores.
template <bool kPlain>
void SoftmaxRowBackward(float* scores, float* grads, int64_t cols, Visible visible,
                        float log_sum_exp, float delta, const ScoreRule& rule, int64_t distance) {
  const Floats d;
  const FloatVec offset = hn::Set(d, log_sum_exp);
  const FloatVec deltas = hn::Set(d, delta);
  const int64_t first = visible.begin / kLanes * kLanes;
  int64_t j = 0;
  for (; j < cols; j += kLanes) {
    if (j < first || j >= visible.end) {
      // Zeros, because the products that follow read every key of the block.
      hn::StoreU(hn::Zero(d), d, scores + j);
      hn::StoreU(hn::Zero(d), d, grads + j);
      continue;
    }
    const auto seen = LanesBetween(j, visible.begin, visible.end);
    FloatVec score = hn::LoadU(d, scores + j);
    FloatVec slope = hn::Set(d, 1.0f);
    if constexpr (!kPlain) {
      if (rule.softcap > 0.0f) score = Capped(score, rule.softcap, slope);
      if (rule.slope != 0.0f) score = Biased(score, rule.slope, distance + j);
    }
    const FloatVec e = hn::Exp(d, hn::Sub(score, offset));
    const FloatVec p = hn::IfThenElseZero(seen, e);
    hn::StoreU(p, d, scores + j);
    FloatVec grad = hn::Mul(p, hn::Sub(hn::LoadU(d, grads + j), deltas));
    if constexpr (!kPlain) grad = hn::Mul(grad, slope);
    hn::StoreU(grad, d, grads + j);
  }
}

template <typename T>
float Dot(const T* a, const T* b, int64_t size) {
  const Floats d;
  FloatVec sums = hn::Zero(d);
  int64_t j = 0;
  for (; j + static_cast<int64_t>(kLanes) <= size; j += kLanes) {
    sums = hn::MulAdd(LoadFloats(d, a + j), LoadFloats(d, b + j), sums);
  }
  float total = Sum(sums);
  for (; j < size; ++j) total += ToFloat(a[j]) * ToFloat(b[j]);
  return total;
}

int64_t BackwardScratch(const AttentionShape& shape, int64_t length) {
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  const int64_t rows = std::max(kQueryRows, group);
  const int64_t width = RoundUp(shape.head_dim, kWidth);
  const int64_t v_width = RoundUp(shape.v_head_dim, kWidth);
  const int64_t dims = shape.head_dim + shape.v_head_dim;
  const int64_t of_family = shape.prefixes == nullptr ? 0 : width + v_width;
  return RoundUp(length, kWidth) * (dims + 2 * width + v_width + of_family) +
         rows * (dims + 2 * width + v_width + 2 * kKeyBlock + 2) + 2 * group;
}

// Gradients of shared keys and values from the sequences that do not own them.
struct PrefixGradients {
  float* keys = nullptr;    // [length of the owner, width]; null: nothing is shared
  float* values = nullptr;  // [length of the owner, v_width]
};

// A sequence that begins with another's tokens adds to `shared`; the owner of these tokens starts
// from it.
template <typename T>
void BackwardSequence(const AttentionShape& shape, int64_t sequence, int64_t kv_head,
                      const AttentionGradients& gradients, const PrefixGradients& shared,
                      float* scratch) {
  const Extent e = ExtentOf(shape, sequence);
  const int64_t head = kv_head * e.group;
  const int64_t max_rows = e.block_tokens * e.group;
  // Buffers for the sequence.
  float* const key_panels = scratch;
  float* const value_panels = key_panels + e.padded * e.dim;
  float* const keys = value_panels + e.padded * e.v_dim;      // [length, width]
  float* const grad_keys = keys + e.padded * e.width;         // [length, width]
  float* const grad_values = grad_keys + e.padded * e.width;  // [length, v_width]
  // Buffers for the block of queries. The first of each pair is the left side of a product, the
  // second a right side, whose rows fill whole panels.
  float* const queries = grad_values + e.padded * e.v_width;         // [rows, dim]
  float* const query_rows = queries + max_rows * e.dim;              // [rows, width]
  float* const grad_outs = query_rows + max_rows * e.width;          // [rows, v_dim]
  float* const grad_out_rows = grad_outs + max_rows * e.v_dim;       // [rows, v_width]
  float* const grad_queries = grad_out_rows + max_rows * e.v_width;  // [rows, width]
  float* const scores = grad_queries + max_rows * e.width;           // [rows, kKeyBlock]
  float* const grad_scores = scores + max_rows * kKeyBlock;          // [rows, kKeyBlock]
  float* const log_sums = grad_scores + max_rows * kKeyBlock;        // [rows]
  float* const deltas = log_sums + max_rows;                         // [rows]
  // Of the group's heads.
  float* const slopes = deltas + max_rows;     // [group]
  float* const grad_sinks = slopes + e.group;  // [group]

  const T* const k = static_cast<const T*>(shape.k) + kv_head * e.dim;
  const T* const v = static_cast<const T*>(shape.v) + kv_head * e.v_dim;
  const T* const q = static_cast<const T*>(shape.q);
  const T* const out = static_cast<const T*>(gradients.out);
  const T* const grad_out = static_cast<const T*>(gradients.grad_out);
  const int64_t out_stride = shape.num_heads * e.v_dim;
  UnpackTransposed(k, shape.k_stride, e, e.dim, key_panels);
  UnpackTransposed(v, shape.v_stride, e, e.v_dim, value_panels);
  UnpackRows(k, shape.k_stride, e, e.dim, e.width, keys);
  std::fill(grad_keys, grad_values + e.padded * e.v_width, 0.0f);
  if (shared.keys != nullptr && e.prefix == 0) {
    std::copy_n(shared.keys, e.length * e.width, grad_keys);
    std::copy_n(shared.values, e.length * e.v_width, grad_values);
  }

  const float* const sinks = shape.sinks == nullptr ? nullptr : shape.sinks + head;
  for (int64_t g = 0; g < e.group; ++g) {
    slopes[g] = SlopeOf(shape.alibi, head + g);
    grad_sinks[g] = 0.0f;
  }

  for (int64_t token = e.prefix; token < e.length; token += e.block_tokens) {
    const int64_t tokens = std::min(e.block_tokens, e.length - token);
    const int64_t rows = tokens * e.group;
    const auto unpack_queries = [&](int64_t width, float* to) {
      UnpackQueries(q, shape.q_stride, head, token, tokens, e, shape.scale, e.dim, width, to);
    };
    const auto unpack_grad_outs = [&](int64_t width, float* to) {
      UnpackQueries(grad_out, out_stride, head, token, tokens, e, 1.0f, e.v_dim, width, to);
    };
    unpack_queries(e.dim, queries);
    unpack_queries(e.width, query_rows);
    unpack_grad_outs(e.v_dim, grad_outs);
    unpack_grad_outs(e.v_width, grad_out_rows);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = (e.first + token + i / e.group) * shape.num_heads + head + i % e.group;
      log_sums[i] = gradients.log_sum_exp[row];
      // The sum over keys of p * dp equals dot(out, grad_out), which needs no pass over the keys.
      deltas[i] = Dot(out + row * e.v_dim, grad_out + row * e.v_dim, e.v_dim);
      // A sink's probability has no value: its dp is 0.
      if (sinks != nullptr) {
        grad_sinks[i % e.group] -= std::exp(sinks[i % e.group] - log_sums[i]) * deltas[i];
      }
    }
    std::fill(grad_queries, grad_queries + rows * e.width, 0.0f);
    const int64_t oldest = shape.window.OldestSeen(token);
    const int64_t end = KeysOf(shape, e, token + tokens);
    for (int64_t key = oldest / kKeyBlock * kKeyBlock; key < end; key += kKeyBlock) {
      const int64_t num_keys = std::min(kKeyBlock, end - key);
      const int64_t cols = RoundUp(num_keys, kWidth);
      MultiplyPanels(queries, rows, e.dim, key_panels + key * e.dim, cols, scores, kKeyBlock);
      MultiplyPanels(grad_outs, rows, e.v_dim, value_panels + key * e.v_dim, cols, grad_scores,
                     kKeyBlock);
      for (int64_t i = 0; i < rows; ++i) {
        const Visible visible = VisibleTo(shape, e, token + i / e.group, key, num_keys);
        const ScoreRule rule{shape.softcap, slopes[i % e.group]};
        const auto backward = rule.IsPlain() ? SoftmaxRowBackward<true> : SoftmaxRowBackward<false>;
        backward(scores + i * kKeyBlock, grad_scores + i * kKeyBlock, cols, visible, log_sums[i],
                 deltas[i], rule, key - (token + i / e.group));
      }
      MultiplyRows<false>(grad_scores, kKeyBlock, 1, rows, num_keys, keys + key * e.width, e.width,
                          grad_queries);
      // Transposed: a row of the result is a key. The queries are already scaled.
      MultiplyRows<false>(grad_scores, 1, kKeyBlock, num_keys, rows, query_rows, e.width,
                          grad_keys + key * e.width);
      MultiplyRows<false>(scores, 1, kKeyBlock, num_keys, rows, grad_out_rows, e.v_width,
                          grad_values + key * e.v_width);
    }
    T* const grad_q = static_cast<T*>(gradients.grad_q);
    const Floats d;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = (e.first + token + i / e.group) * shape.num_heads + head + i % e.group;
      float* const from = grad_queries + i * e.width;
      for (int64_t j = 0; j < e.width; j += kLanes) {
        // The keys' gradients took this factor from the scaled queries; the queries' get it here.
        hn::StoreU(hn::Mul(hn::LoadU(d, from + j), hn::Set(d, shape.scale)), d, from + j);
      }
      CopyRow(from, e.dim, grad_q + row * e.dim);
    }
  }
  if (sinks != nullptr) {
    std::copy_n(grad_sinks, e.group, gradients.grad_sinks + sequence * shape.num_heads + head);
  }
  // float32 sums, so that a shared key's gradient is rounded once, by the sequence that owns it.
  for (int64_t i = 0; i < e.prefix * e.width; ++i) shared.keys[i] += grad_keys[i];
  for (int64_t i = 0; i < e.prefix * e.v_width; ++i) shared.values[i] += grad_values[i];
  for (int64_t t = e.prefix; t < e.length; ++t) {
    const int64_t row = (e.first + t) * shape.num_kv_heads + kv_head;
    CopyRow(grad_keys + t * e.width, e.dim, static_cast<T*>(gradients.grad_k) + row * e.dim);
    CopyRow(grad_values + t * e.v_width, e.v_dim,
            static_cast<T*>(gradients.grad_v) + row * e.v_dim);
  }
}

// Runs the sequence and those that begin with its tokens.
template <typename T>
void BackwardTask(const AttentionShape& shape, const AttentionTask& task,
                  const AttentionGradients& gradients, float* scratch) {
  int64_t end = task.sequence + 1;
  while (end < shape.num_sequences && PrefixLength(shape, end) > 0) ++end;
  PrefixGradients shared;
  if (end > task.sequence + 1) {
    const Extent e = ExtentOf(shape, task.sequence);
    shared.keys = scratch;
    shared.values = shared.keys + e.padded * e.width;
    scratch = shared.values + e.padded * e.v_width;
    std::fill(shared.keys, scratch, 0.0f);
  }
  // One thread adds the sequences' parts in their order, so the bits do not depend on the number of
  // threads. The owner comes last: it starts from the sums and writes them.
  for (int64_t s = task.sequence + 1; s < end; ++s) {
    BackwardSequence<T>(shape, s, task.kv_head, gradients, shared, scratch);
  }
  BackwardSequence<T>(shape, task.sequence, task.kv_head, gradients, shared, scratch);
}

void RunBackwardTask(const AttentionShape& shape, const AttentionTask& task,
                     const AttentionGradients& gradients, float* scratch) {
  if (shape.type == Element::kFloat32) return BackwardTask<float>(shape, task, gradients, scratch);
  BackwardTask<BFloat16>(shape, task, gradients, scratch);
}

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {
namespace {

HWY_EXPORT(BackwardScratch);
HWY_EXPORT(RunBackwardTask);

}  // namespace

void AttentionBackward(const AttentionShape& shape, const AttentionGradients& gradients,
                       int num_threads, const ParallelFor& parallel_for) {
  // The keys' gradients are sums over all queries, so a sequence's queries stay together.
  RunAttentionTasks(
      shape, /*max_queries=*/0, num_threads, parallel_for,
      [&](int64_t length) { return HWY_DYNAMIC_DISPATCH(BackwardScratch)(shape, length); },
      [&](const AttentionTask& task, float* scratch) {
        HWY_DYNAMIC_DISPATCH(RunBackwardTask)(shape, task, gradients, scratch);
      });
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
