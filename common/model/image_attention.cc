#include "common/model/image_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/softmax.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "common/model/cpu_attention.h"
#include "common/model/cpu_dispatch.h"
#include "common/model/linear.h"

namespace tandem::model {
namespace {

// q, k, v: [num_tokens, head_dim] of one head of a segment.
at::Tensor AttendHead(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale) {
  const at::Tensor keys = k.contiguous();
  const at::Tensor values = v.t().contiguous();  // [head_dim, num_tokens], as products read it
  const int64_t num_tokens = q.size(0);
  const int64_t num_rows = std::max<int64_t>(1, ImageAttention::kMaxScores / num_tokens);
  std::vector<at::Tensor> out;
  for (int64_t begin = 0; begin < num_tokens; begin += num_rows) {
    const at::Tensor rows = q.narrow(0, begin, std::min(num_rows, num_tokens - begin)).contiguous();
    const at::Tensor scores = LinearInFloat32(rows, keys) * scale;
    out.push_back(Linear(at::softmax(scores, -1).to(q.scalar_type()), values));
  }
  return out.size() == 1 ? out.front() : at::cat(out);
}

}  // namespace

at::Tensor ImageAttention::Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const AttentionParams& params) {
  const int64_t num_segments = cu_seqlens_.numel() - 1;
  const int64_t* const ends = cu_seqlens_.const_data_ptr<int64_t>();
  TORCH_CHECK(q.size(1) == k.size(1) && ends[num_segments] == q.size(0),
              "images' attention: expected ", q.size(1), " heads of ", ends[num_segments],
              " tokens, found ", k.size(1), " of ", q.size(0));
  if (KernelsTake({q, k, v})) {
    return CpuAttention(q, k, v, {.cu_seqlens = cu_seqlens_, .causal = false}, params);
  }
  std::vector<at::Tensor> segments;
  for (int64_t s = 0; s < num_segments; ++s) {
    const int64_t begin = ends[s];
    const int64_t size = ends[s + 1] - begin;
    if (size == 0) continue;
    std::vector<at::Tensor> heads;
    for (int64_t head = 0; head < q.size(1); ++head) {
      const auto part = [&](const at::Tensor& x) {
        return x.narrow(0, begin, size).select(1, head);
      };
      heads.push_back(AttendHead(part(q), part(k), part(v), params.scale));
    }
    segments.push_back(at::cat(heads, 1));
  }
  return at::cat(segments);
}

}  // namespace tandem::model
