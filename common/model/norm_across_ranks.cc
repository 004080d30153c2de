#include "common/model/norm_across_ranks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>

#include <vector>

#include "common/model/eager_ops.h"
#include "common/model/tensor_collectives.h"

namespace tandem::model {
namespace {

// Ranks that hold the first of this rank's key-value heads. With more ranks than heads, several
// hold the same one.
int64_t CopiesOfKvHead(const AttentionSpec& spec, comm::ProcessGroup& group) {
  if (group.size() <= spec.num_kv_heads) return 1;
  const int64_t head = PartOf(spec, {group.rank(), group.size()}).kv_heads.begin;
  int64_t copies = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    copies += PartOf(spec, {rank, group.size()}).kv_heads.begin == head;
  }
  return copies;
}

at::Tensor Scaled(const at::Tensor& x, const at::Tensor& inverse_rms, const NormSpec& spec,
                  const NormTensors& norm, at::ScalarType type) {
  at::Tensor out = x * inverse_rms.unsqueeze(1);
  if (norm.weight.defined()) {
    const at::Tensor weight = eager::Wide(norm.weight);
    out = out * (spec.unit_offset ? weight + 1.0 : weight);
  }
  if (norm.bias.defined()) out = out + eager::Wide(norm.bias);
  return out.to(type);
}

}  // namespace

at::Tensor NormAcrossRanks(const at::Tensor& qkv, const HeadRotation& rotation,
                           const AttentionSpec& spec, comm::ProcessGroup& group) {
  const NormSpec& norm = rotation.norm->norm;
  const int64_t q_size = rotation.shape.num_heads * rotation.shape.head_dim;
  const int64_t k_size = rotation.shape.num_kv_heads * rotation.shape.head_dim;
  const std::vector<at::Tensor> parts =
      qkv.split_with_sizes({q_size, k_size, rotation.shape.v_size()}, -1);
  const at::Tensor q = eager::Wide(parts[0]);
  const at::Tensor k = eager::Wide(parts[1]);
  const at::Tensor own = at::stack(
      {q.square().sum(-1), k.square().sum(-1) / static_cast<double>(CopiesOfKvHead(spec, group))});
  // Every rank uses the sums, so their gradient is a sum over the ranks too.
  const at::Tensor sums = CopyToRanks(SumOverRanks(own, &group, "q_norm and k_norm"), &group,
                                      "q_norm and k_norm, sums");
  const auto inverse_rms = [&](int64_t which, int64_t size) {
    return at::rsqrt(sums[which] / static_cast<double>(size) + norm.eps);
  };
  return at::cat(
      {Scaled(q, inverse_rms(0, spec.q_size()), norm, rotation.q_norm, qkv.scalar_type()),
       Scaled(k, inverse_rms(1, spec.kv_size()), norm, rotation.k_norm, qkv.scalar_type()),
       parts[2]},
      -1);
}

}  // namespace tandem::model
