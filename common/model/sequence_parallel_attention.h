// Attention over sequences whose tokens are split over ranks (Ulysses, 2309.14509): each rank
// brings a slice of the tokens with all heads, the ranks exchange them for all tokens with a slice
// of the heads, attend, and exchange back.
//
//   PackedAttention whole(cu_seqlens);                       // of all tokens
//   SequenceParallelAttention attention(whole, group);       // for Transformer::Block over a slice
#ifndef TANDEM_COMMON_MODEL_SEQUENCE_PARALLEL_ATTENTION_H_
#define TANDEM_COMMON_MODEL_SEQUENCE_PARALLEL_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include "common/comm/process_group.h"
#include "common/model/attention.h"

namespace tandem::model {

class SequenceParallelAttention : public Attention {
 public:
  // `whole` attends over all tokens of all ranks, in rank order; it and `group` outlive this.
  SequenceParallelAttention(Attention& whole, comm::ProcessGroup& group)
      : whole_(whole), group_(group) {}

  // q, k and v of this rank's tokens, as many on every rank. Two exchanges forward, two backward.
  // Throws CollectiveError.
  at::Tensor Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionParams& params) override;

 private:
  Attention& whole_;
  comm::ProcessGroup& group_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_SEQUENCE_PARALLEL_ATTENTION_H_
