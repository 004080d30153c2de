// Describes packed sequences as a paged cache with one token per block: block i is row i of the
// batch.
//
//   const AttentionPlan plan = PackedPlan(cu_seqlens, {});   // of the paged kernel, block_size 1
#ifndef TANDEM_COMMON_MODEL_PACKED_PLACES_H_
#define TANDEM_COMMON_MODEL_PACKED_PLACES_H_

#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/types/span.h"
#include "common/model/attention_plan.h"

namespace tandem::model {

// cu_seqlens: 0, the end of the first sequence, ..., the number of tokens. Empty sequences are
// skipped. seen_ends: empty, or of each token as PagedSequence::seen_ends. Contiguous keys and values
// [num_tokens, num_kv_heads, head_dim] then serve as a cache [blocks, num_kv_heads, 1, head_dim].
inline AttentionPlan PackedPlan(absl::Span<const int64_t> cu_seqlens,
                                absl::Span<const int64_t> seen_ends) {
  std::vector<int32_t> rows(cu_seqlens.back());
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<PagedSequence> sequences;
  for (size_t i = 0; i + 1 < cu_seqlens.size(); ++i) {
    const int64_t length = cu_seqlens[i + 1] - cu_seqlens[i];
    if (length == 0) continue;
    sequences.push_back({.first_token = cu_seqlens[i],
                         .num_tokens = length,
                         .context_length = length,
                         .blocks = rows.data() + cu_seqlens[i],
                         .seen_ends = seen_ends.empty() ? nullptr : &seen_ends[cu_seqlens[i]]});
  }
  return PlanAttention(sequences, {.block_size = 1});
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PACKED_PLACES_H_
