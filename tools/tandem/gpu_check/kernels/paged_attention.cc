// Attention over a paged cache: FlashInfer's kernel for bfloat16 heads of 64 and 128, our own over
// latents in bfloat16, the plain one for the others. Prompts in chunks beside sequences that decode.
#include "common/model/paged_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/device_attention.h"
#include "tools/tandem/gpu_check/kernels/attention_reference.h"
#include "tools/tandem/gpu_check/kernels/comparison.h"

namespace tandem::gpu_check {
namespace {

constexpr int64_t kBlockSize = 16;
constexpr int64_t kNumBlocks = 300;

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}

struct CacheShape {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t v_head_dim;
  bool shared = false;  // latents
};

// A cache in shuffled blocks, and sequences that grow in it.
class PagedSequences {
 public:
  PagedSequences(Comparer& comparer, const CacheShape& shape)
      : comparer_(comparer),
        shape_(shape),
        cache_(ValueOrThrow(model::PagedKvCache::Create({.num_layers = 1,
                                                         .num_blocks = kNumBlocks,
                                                         .block_size = kBlockSize,
                                                         .num_kv_heads = shape.num_kv_heads,
                                                         .head_dim = shape.head_dim,
                                                         .v_head_dim = shape.v_head_dim,
                                                         .shared = shape.shared,
                                                         .dtype = comparer.dtype(),
                                                         .device = comparer.device()}))) {
    // What was there before must not matter.
    cache_.keys(0).fill_(NAN);
    cache_.values(0).fill_(NAN);
    if (comparer.device().is_cuda()) {
      on_device_ = ValueOrThrow(model::CreateCudaAttention(cache_, shape.num_heads));
    }
    free_blocks_.resize(kNumBlocks);
    std::iota(free_blocks_.begin(), free_blocks_.end(), 0);
    std::mt19937_64 random(1);
    std::shuffle(free_blocks_.begin(), free_blocks_.end(), random);
  }

  // Adds tokens to sequences: pairs of a sequence's number and a count.
  void Step(const std::vector<std::pair<size_t, int64_t>>& added, int64_t padded_to = 0,
            model::AttentionParams params = {}) {
    std::vector<model::PagedSequence> batch;
    int64_t rows = 0;
    for (const auto& [index, tokens] : added) {
      sequences_.resize(std::max(sequences_.size(), index + 1));
      Grow(sequences_[index], tokens);
    }
    for (const auto& [index, tokens] : added) {
      const Sequence& sequence = sequences_[index];
      batch.push_back({.first_token = rows,
                       .num_tokens = tokens,
                       .context_length = sequence.length,
                       .blocks = sequence.blocks.data()});
      rows += tokens;
    }
    params.scale = 1.0 / std::sqrt(static_cast<double>(shape_.head_dim));
    // Views of one fused tensor, as the projection gives them.
    const int64_t kv_heads = shape_.num_kv_heads;
    const int64_t heads = shape_.num_heads + 2 * kv_heads;
    const int64_t widest = std::max(shape_.head_dim, shape_.v_head_dim);
    const at::Tensor fused = comparer_.Random({std::max(rows, padded_to), heads, widest});
    const at::Tensor q = fused.narrow(1, 0, shape_.num_heads).narrow(2, 0, shape_.head_dim);
    const at::Tensor k = fused.narrow(1, shape_.num_heads, kv_heads).narrow(2, 0, shape_.head_dim);
    const at::Tensor v = shape_.shared ? k.narrow(2, 0, shape_.v_head_dim)
                                       : fused.narrow(1, shape_.num_heads + kv_heads, kv_heads)
                                             .narrow(2, 0, shape_.v_head_dim);
    const at::Tensor found = Attend(batch, padded_to, q, k, v, params);
    for (size_t i = 0; i < added.size(); ++i) {
      Sequence& sequence = sequences_[added[i].first];
      const auto part = [&](const at::Tensor& all) {
        return all.narrow(0, batch[i].first_token, batch[i].num_tokens);
      };
      const auto append = [&](at::Tensor& past, const at::Tensor& all) {
        past = past.defined() ? at::cat({past, part(all)}) : part(all).clone();
      };
      append(sequence.keys, k);
      append(sequence.values, v);
      comparer_.Expect(
          part(found), AttentionReference(part(q), sequence.keys, sequence.values, params),
          comparer_.dtype() == at::kFloat ? 1e-5 : 2e-2,
          absl::StrCat(shape_.num_heads, " and ", kv_heads, " heads of ", shape_.head_dim, " and ",
                       shape_.v_head_dim, shape_.shared ? ", shared, " : ", ", added[i].second,
                       " tokens of ", sequence.length, ", ", rows, " rows padded to ", padded_to,
                       params.softcap > 0 ? ", softcap, window" : "",
                       params.sinks.has_value() ? ", sinks" : ""));
    }
  }

 private:
  struct Sequence {
    int64_t length = 0;
    std::vector<int32_t> blocks;
    at::Tensor keys, values;  // all so far
  };

  void Grow(Sequence& sequence, int64_t tokens) {
    sequence.length += tokens;
    while (std::ssize(sequence.blocks) * kBlockSize < sequence.length) {
      sequence.blocks.push_back(free_blocks_.back());
      free_blocks_.pop_back();
    }
  }

  at::Tensor Attend(const std::vector<model::PagedSequence>& batch, int64_t padded_to,
                    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const model::AttentionParams& params) {
    if (on_device_ != nullptr) {
      on_device_->Plan(batch, padded_to);
      const at::Tensor result = Forward(*on_device_, q, k, v, params);
      // The next plan overwrites what this one reads.
      result.narrow(0, 0, 1).cpu();
      return result;
    }
    const int64_t rows = batch.back().first_token + batch.back().num_tokens;
    const auto used = [rows](const at::Tensor& all) { return all.narrow(0, 0, rows); };
    model::PagedAttention attention(cache_, batch);
    return Forward(attention, used(q), used(k), used(v), params);
  }

  at::Tensor Forward(model::Attention& attention, const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v, const model::AttentionParams& params) const {
    return shape_.shared ? attention.ForwardLatents(0, q, k.select(1, 0), params)
                         : attention.Forward(0, q, k, v, params);
  }

  Comparer& comparer_;
  const CacheShape shape_;
  model::PagedKvCache cache_;
  std::unique_ptr<model::DeviceAttention> on_device_;
  std::vector<int32_t> free_blocks_;
  std::vector<Sequence> sequences_;
};

void Compare(Comparer& comparer, const std::vector<CacheShape>& shapes) {
  for (const CacheShape& shape : shapes) {
    PagedSequences sequences(comparer, shape);
    sequences.Step({{0, 5}});
    sequences.Step({{0, 1}});
    sequences.Step({{1, comparer.small() ? 40 : 700}, {0, 1}});
    sequences.Step({{0, 1}, {1, comparer.small() ? 9 : 300}, {2, 64}});
    sequences.Step({{3, 1}, {0, 1}, {1, 1}, {2, 1}});
    if (!comparer.small()) sequences.Step({{1, 1200}});
    sequences.Step({{1, 1}, {0, 1}});
    // As graphs are captured.
    sequences.Step({{1, 1}, {0, 1}, {2, 1}}, 3);
    sequences.Step({{1, 1}, {0, 1}, {2, 1}}, 8);
    model::AttentionParams params;
    params.softcap = 2.0;
    params.window = 37;
    sequences.Step({{0, 90}, {1, 20}}, 0, params);
    params.sinks = at::randn({shape.num_heads}).to(comparer.device());
    sequences.Step({{0, 1}, {1, 40}}, 0, params);
  }
}

}  // namespace

void ComparePagedAttention(Comparer& comparer) {
  if (comparer.small()) {
    Compare(comparer, {{14, 2, 64, 64}, {4, 2, 128, 128}, {6, 2, 12, 12}, {6, 2, 24, 16}});
    return;
  }
  Compare(comparer, {{14, 2, 64, 64},
                     {12, 2, 128, 128},
                     {28, 4, 128, 128},
                     {4, 4, 64, 64},
                     {6, 2, 12, 12},
                     {2, 1, 256, 256},
                     {8, 8, 192, 128},
                     {6, 3, 24, 40}});
}

void CompareLatentAttention(Comparer& comparer) {
  if (comparer.small()) {
    Compare(comparer, {{20, 1, 80, 64, true}, {3, 1, 44, 40, true}});
    return;
  }
  // More heads than a tile has rows, DeepSeek's of one of 8 ranks, GLM-4.7-Flash's and MiniCPM3's.
  Compare(comparer, {{72, 1, 576, 512, true},
                     {16, 1, 576, 512, true},
                     {20, 1, 576, 512, true},
                     {40, 1, 288, 256, true},
                     {3, 1, 44, 40, true}});
}

}  // namespace tandem::gpu_check
