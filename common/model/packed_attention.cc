#include "common/model/packed_attention.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "common/model/chunked_attention.h"
#include "common/model/cpu_attention.h"
#include "common/model/cpu_dispatch.h"
#include "common/model/device_packed_attention.h"
#include "common/model/eager_ops.h"
#include "common/model/kernel_function.h"

namespace tandem::model {
namespace {

using torch::autograd::variable_list;

}  // namespace

at::Tensor PackedAttention::Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& v, const AttentionParams& params) {
  const at::Tensor sinks = params.sinks.value_or(at::Tensor());
  if (implementation_ == Implementation::kFast && device::PackedAttentionTakes(q, k, v)) {
    TORCH_CHECK(!prefixes_.defined(), "shared prefixes are for the CPU's kernels");
    if (!places_.defined()) places_ = device::PackedPlaces(cu_seqlens_, seen_ends_, q.device());
    if (!NeedsGraph({q, k, v, sinks})) return device::PackedAttention(q, k, v, places_, params);
    variable_list inputs = {q, k, v};
    if (sinks.defined()) inputs.push_back(sinks);
    const auto with = [params](const variable_list& in) {
      AttentionParams given = params;
      if (given.sinks.has_value()) given.sinks = in[3];
      return given;
    };
    return RecordedKernels(
        inputs,
        [&](const variable_list& in) {
          return variable_list{device::PackedAttention(in[0], in[1], in[2], places_, with(in))};
        },
        [with, cu_seqlens = cu_seqlens_, seen_ends = seen_ends_](const variable_list& in) {
          return variable_list{ChunkedAttention(in[0], in[1], in[2], cu_seqlens, with(in),
                                                kScoresAtOnce, seen_ends)};
        })[0];
  }
  if (implementation_ == Implementation::kEager || !KernelsTake({q, k, v})) {
    TORCH_CHECK(!prefixes_.defined(), "shared prefixes are for the CPU's kernels");
    if (implementation_ == Implementation::kEager) {
      return eager::PackedAttention(q, k, v, cu_seqlens_, params, seen_ends_);
    }
    if (seen_ends_.defined() || !FusedAttentionTakes(q, k, v, params)) {
      return ChunkedAttention(q, k, v, cu_seqlens_, params, kScoresAtOnce, seen_ends_);
    }
    if (!sequences_.starts.defined()) sequences_ = FusedSequencesOf(cu_seqlens_, q.device());
    return FusedAttention(q, k, v, sequences_, params);
  }
  return CpuAttention(q, k, v, {cu_seqlens_, prefixes_, /*causal=*/true, seen_ends_}, params);
}

at::Tensor PackedAttention::ForwardDelta(int64_t layer, const DeltaSpec& spec,
                                         const DeltaTensors& tensors) {
  TORCH_CHECK(!prefixes_.defined(), "linear attention computes each sequence from its first token");
  if (implementation_ == Implementation::kEager) {
    return eager::DeltaAttention(spec, tensors, cu_seqlens_);
  }
  if (!device::DeltaAttentionTakes(spec, tensors)) {
    return DeltaAttention(spec, tensors, cu_seqlens_);
  }
  if (!delta_places_.has_value()) {
    delta_places_ = device::DeltaPlacesOf(cu_seqlens_, tensors.projected.device());
  }
  return device::DeltaAttention(spec, tensors, *delta_places_);
}

at::Tensor PackedPositions(const at::Tensor& cu_seqlens) {
  const int64_t num_sequences = cu_seqlens.numel() - 1;
  const int64_t* const starts = cu_seqlens.const_data_ptr<int64_t>();
  at::Tensor positions = at::empty({starts[num_sequences]}, at::kLong);
  int64_t* const out = positions.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < num_sequences; ++i) {
    for (int64_t t = starts[i]; t < starts[i + 1]; ++t) out[t] = t - starts[i];
  }
  return positions;
}

at::Tensor PackedLengths(const at::Tensor& cu_seqlens) {
  const int64_t num_sequences = cu_seqlens.numel() - 1;
  const int64_t* const starts = cu_seqlens.const_data_ptr<int64_t>();
  at::Tensor lengths = at::empty({starts[num_sequences]}, at::kLong);
  int64_t* const out = lengths.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < num_sequences; ++i) {
    std::fill(out + starts[i], out + starts[i + 1], starts[i + 1] - starts[i]);
  }
  return lengths;
}

}  // namespace tandem::model
