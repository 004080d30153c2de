// Attention over sequences whose tokens are split over ranks (Ulysses, 2309.14509): each rank has a
// slice of the tokens with all heads; an all-to-all gives it all tokens with a slice of the heads;
// it attends, and a second all-to-all reverses the exchange.
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
  // `whole` attends over all tokens of all ranks, in rank order. `whole` and `group` must outlive
  // this.
  SequenceParallelAttention(Attention& whole, comm::ProcessGroup& group)
      : whole_(whole), group_(group) {}

  // q, k and v of this rank's tokens; every rank has the same number. Two all-to-alls forward, two
  // backward. Throws CollectiveError.
  at::Tensor Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionParams& params) override;

 private:
  Attention& whole_;
  comm::ProcessGroup& group_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_SEQUENCE_PARALLEL_ATTENTION_H_
