// Implements device_packed_attention.h for builds with CUDA.
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "common/device/upload.h"
#include "common/model/cuda_tensor.h"
#include "common/model/device_packed_attention.h"
#include "common/model/device_row_ops.h"
#include "common/model/kernels/cuda/paged_attention.h"
#include "common/model/numerics.h"
#include "common/model/packed_places.h"

namespace tandem::model::device {

static_assert(kMaxHeadDimOnGpu == cuda::kMaxPlainHeadDim);

bool PackedAttentionTakes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return CurrentNumerics() == Numerics::kExact && KernelsTake({q, k, v}) &&
         q.size(2) <= kMaxHeadDimOnGpu && v.size(2) <= kMaxHeadDimOnGpu &&
         q.size(0) <= std::numeric_limits<int32_t>::max() / 4;
}

namespace {

absl::Span<const int64_t> SpanOf(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.const_data_ptr<int64_t>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace

// Layout: the sequence of each row, its position, the last key that it sees, its block, and then the
// start of each sequence's blocks.
at::Tensor PackedPlaces(const at::Tensor& cu_seqlens, const at::Tensor& seen_ends,
                        at::Device device) {
  const AttentionPlan plan = PackedPlan(SpanOf(cu_seqlens), SpanOf(seen_ends));
  const int64_t rows = plan.num_tokens();
  const at::Tensor here =
      at::empty({4 * rows + static_cast<int64_t>(plan.page_starts.size())}, at::kInt);
  int32_t* to = here.mutable_data_ptr<int32_t>();
  const std::vector<int32_t>& last_key =
      plan.row_last_key.empty() ? plan.row_position : plan.row_last_key;
  for (const std::vector<int32_t>* part :
       {&plan.row_sequence, &plan.row_position, &last_key, &plan.pages, &plan.page_starts}) {
    to = std::copy(part->begin(), part->end(), to);
  }
  return ::tandem::device::Upload(here, device);
}

at::Tensor PackedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& places, const AttentionParams& params) {
  const c10::cuda::CUDAGuard guard(q.device());
  const at::Tensor keys = k.contiguous();
  const at::Tensor values = v.contiguous();
  const at::Tensor queries = q.stride(2) == 1 ? q : q.contiguous();
  const int64_t rows = q.size(0);
  at::Tensor out = at::empty({rows, q.size(1) * v.size(2)}, q.options());
  const int32_t* const ints = places.const_data_ptr<int32_t>();
  cuda::PagedAttention attend;
  attend.batch.num_rows = rows;
  attend.batch.row_sequence = ints;
  attend.batch.row_position = ints + rows;
  attend.batch.row_last_key = ints + 2 * rows;
  attend.batch.pages = ints + 3 * rows;
  attend.batch.page_starts = ints + 4 * rows;
  attend.type = CudaElementOf(q);
  attend.num_heads = static_cast<int>(q.size(1));
  attend.num_kv_heads = static_cast<int>(k.size(1));
  attend.head_dim = static_cast<int>(q.size(2));
  attend.v_head_dim = static_cast<int>(v.size(2));
  attend.block_size = 1;
  attend.q = queries.const_data_ptr();
  attend.q_row_stride = queries.stride(0);
  attend.q_head_stride = queries.stride(1);
  // The kernel only reads both.
  attend.keys = const_cast<void*>(keys.const_data_ptr());
  attend.values = const_cast<void*>(values.const_data_ptr());
  attend.out = out.mutable_data_ptr();
  attend.scale = static_cast<float>(params.scale);
  attend.softcap = static_cast<float>(params.softcap);
  attend.alibi = params.alibi;
  attend.window = params.window;
  at::Tensor sinks;
  if (params.sinks.has_value()) {
    sinks = params.sinks->to(q.device(), at::kFloat).contiguous();
    attend.sinks = sinks.const_data_ptr<float>();
  }
  C10_CUDA_CHECK(cuda::LaunchPlain(attend, CurrentStream(q.device())));
  return out;
}

}  // namespace tandem::model::device
