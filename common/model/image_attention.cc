#include "common/model/image_attention.h"

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include "common/model/cpu_attention.h"
#include "common/model/cpu_dispatch.h"
#include "common/model/device_packed_attention.h"

namespace tandem::model {

ImageAttention::ImageAttention(const std::vector<int64_t>& ends)
    : cu_seqlens_(at::tensor(ends, at::kLong)) {}

at::Tensor ImageAttention::Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const AttentionParams& params) {
  const int64_t num_tokens = cu_seqlens_.const_data_ptr<int64_t>()[cu_seqlens_.numel() - 1];
  TORCH_CHECK(q.size(1) == k.size(1) && num_tokens == q.size(0), "images' attention: expected ",
              q.size(1), " heads of ", num_tokens, " tokens, found ", k.size(1), " of ", q.size(0));
  AttentionParams scaled;
  scaled.scale = params.scale;
  const bool exact_on_device = device::PackedAttentionTakes(q, k, v);
  if (!exact_on_device && KernelsTake({q, k, v})) {
    return CpuAttention(q, k, v, {.cu_seqlens = cu_seqlens_, .causal = false}, scaled);
  }
  if (!exact_on_device && FusedAttentionTakes(q, k, v, scaled)) {
    if (!sequences_.starts.defined()) {
      sequences_ = FusedSequencesOf(cu_seqlens_, q.device());
      sequences_.causal = false;
    }
    return FusedAttention(q, k, v, sequences_, scaled);
  }
  if (!packed_.has_value()) {
    packed_.emplace(cu_seqlens_, PackedAttention::Implementation::kFast, /*prefixes=*/at::Tensor(),
                    /*seen_ends=*/PackedLengths(cu_seqlens_));
  }
  return packed_->Forward(layer, q, k, v, scaled);
}

}  // namespace tandem::model
