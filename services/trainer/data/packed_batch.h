// PackedBatch: sequences concatenated without padding, as one micro-batch of one rank.
#ifndef TANDEM_SERVICES_TRAINER_DATA_PACKED_BATCH_H_
#define TANDEM_SERVICES_TRAINER_DATA_PACKED_BATCH_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "services/trainer/data/batch_images.h"

namespace tandem::trainer {

struct PackedBatch {
  at::Tensor token_ids;  // int64 [num_tokens]
  // int64 [num_tokens], from 0 in each sequence; with images [3, num_tokens], by time, height and
  // width.
  at::Tensor positions;
  std::vector<int64_t> cu_seqlens;  // [num_sequences + 1], first 0, last num_tokens
  // Empty, or [2 * num_sequences]: row, count, row, count, ... Sequence i leaves out its first
  // `count` tokens and reuses those of another sequence, from `row` on. See shared_prefix.h.
  std::vector<int64_t> prefixes;
  // Predicted tokens, in order of sequence and position: row `rows[i]` of the residual stream
  // predicts `targets[i]`, the token after it. Rows that no loss needs are left out.
  at::Tensor rows;          // int64 [num_rows]
  at::Tensor targets;       // int64 [num_rows]
  at::Tensor temperatures;  // float32 [num_rows]
  // Undefined, or [num_rows, K]: tokens beside targets[i], or in their place, int64, and their
  // weights, float32 (common/model/soft_targets.h).
  at::Tensor soft_ids;
  at::Tensor soft_weights;
  bool soft_targets_only = false;  // nothing is computed for `targets`
  // Tokens of all batches of the same update, on all ranks, prefixes not shared; 0: this one's on all
  // ranks. Losses of routers are means over them.
  double update_tokens = 0;
  // Undefined, or the experts that sampling routed the tokens to: int32 [num_tokens, layers with
  // experts * experts per token] (common/model/routed_experts.h), negative where they are unknown.
  at::Tensor routed_experts;
  // Without images undefined and empty. image_rows: int64 [num_tokens], the row that takes the
  // token's place in the embedding, of those that a vision tower makes of images[image_indices], one
  // after another; negative for text.
  at::Tensor image_rows;
  std::vector<int64_t> image_indices;
  std::shared_ptr<BatchImages> images;

  int64_t num_tokens() const { return cu_seqlens.empty() ? 0 : cu_seqlens.back(); }
  int64_t num_sequences() const {
    return cu_seqlens.empty() ? 0 : static_cast<int64_t>(cu_seqlens.size()) - 1;
  }
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_PACKED_BATCH_H_
