// PackedAttention: causal attention over whole sequences that lie one after another in the batch,
// without padding. Training and scoring use it.
#ifndef TANDEM_COMMON_MODEL_PACKED_ATTENTION_H_
#define TANDEM_COMMON_MODEL_PACKED_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <optional>

#include "common/model/attention.h"
#include "common/model/device_delta_attention.h"
#include "common/model/fused_attention.h"

namespace tandem::model {

class PackedAttention : public Attention {
 public:
  enum class Implementation {
    // Our kernels on a CPU, for linear attention also on a GPU, and there with exact numerics forward;
    // elsewhere fused kernels (fused_attention.h) or chunks of queries (chunked_attention.h).
    kFast,
    kEager,  // plain ATen with a matrix of scores, the reference
  };

  // cu_seqlens: int64 [num_sequences + 1] on the CPU: 0, the end of the first sequence, ..., the
  // number of tokens; never decreasing. prefixes: undefined, or int64 [num_sequences, 2] on the
  // CPU: the prefix that each sequence shares with an earlier one (kernels/attention.h); only our
  // kernels support it. seen_ends: undefined, or int64 [num_tokens] on the CPU: behind the last token
  // that each token sees, counted in its sequence with the prefix; never falls in a sequence.
  // Undefined: a token sees up to itself. None is copied.
  explicit PackedAttention(at::Tensor cu_seqlens,
                           Implementation implementation = Implementation::kFast,
                           at::Tensor prefixes = {}, at::Tensor seen_ends = {})
      : cu_seqlens_(std::move(cu_seqlens)),
        prefixes_(std::move(prefixes)),
        seen_ends_(std::move(seen_ends)),
        implementation_(implementation) {}

  // Differentiable. Score memory is that of one block of queries.
  at::Tensor Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionParams& params) override;
  // Not with shared prefixes.
  at::Tensor ForwardDelta(int64_t layer, const DeltaSpec& spec,
                          const DeltaTensors& tensors) override;

 private:
  at::Tensor cu_seqlens_;
  at::Tensor prefixes_;
  at::Tensor seen_ends_;
  Implementation implementation_;
  // Made of cu_seqlens_ at the first layer: PackedPlaces() (device_packed_attention.h), what
  // FusedAttention() reads, and what linear attention does.
  at::Tensor places_;
  FusedSequences sequences_;
  std::optional<device::DeltaPlaces> delta_places_;
};

// Returns the positions of the tokens of packed sequences, each counted from 0: int64 [num_tokens].
at::Tensor PackedPositions(const at::Tensor& cu_seqlens);
// Returns the number of tokens of each token's sequence: int64 [num_tokens].
at::Tensor PackedLengths(const at::Tensor& cu_seqlens);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PACKED_ATTENTION_H_
