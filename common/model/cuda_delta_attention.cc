// Implements device_delta_attention.h for builds with CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "common/device/upload.h"
#include "common/model/cpu_dispatch.h"
#include "common/model/cuda_delta_backward.h"
#include "common/model/cuda_delta_forward.h"
#include "common/model/delta_sizes.h"
#include "common/model/device_delta_attention.h"
#include "common/model/device_row_ops.h"

namespace tandem::model::device {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct DeltaFunction : torch::autograd::Function<DeltaFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& projected,
                            const at::Tensor& convolution, const at::Tensor& a_log,
                            const at::Tensor& dt_bias, const at::Tensor& norm,
                            const at::Tensor& ints, const DeltaPlaces& places,
                            const DeltaSpec& spec) {
    ctx->save_for_backward({projected, convolution, a_log, dt_bias, norm, ints});
    ctx->saved_data["sizes"] =
        std::vector<int64_t>{spec.num_key_heads,   spec.num_value_heads, spec.key_dim,
                             spec.value_dim,       spec.kernel_size,     places.num_rows,
                             places.num_sequences, places.num_chunks,    places.boundary_bytes};
    ctx->saved_data["norm_eps"] = spec.norm_eps;
    return DeltaForwardOf(spec, {projected, convolution, a_log, dt_bias, norm},
                          CudaDeltaBatchOf(places));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const c10::cuda::CUDAGuard guard(saved[0].device());
    const DeltaTensors tensors{saved[0], saved[1], saved[2], saved[3], saved[4]};
    const std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    const DeltaSpec spec{sizes[0], sizes[1], sizes[2],
                         sizes[3], sizes[4], ctx->saved_data["norm_eps"].toDouble()};
    const DeltaPlaces places{saved[5], sizes[5], sizes[6], sizes[7], sizes[8]};
    if (places.num_rows == 0) {
      variable_list zeros;
      for (int i = 0; i < 5; ++i) zeros.push_back(at::zeros_like(saved[i]));
      zeros.resize(8);
      return zeros;
    }
    const DeltaTensors of = DeltaBackwardOf(spec, tensors, places, grads[0].contiguous());
    return {of.projected, of.convolution, of.a_log,     of.dt_bias,
            of.norm,      at::Tensor(),   at::Tensor(), at::Tensor()};
  }
};

}  // namespace

bool DeltaAttentionTakes(const DeltaSpec& spec, const DeltaTensors& tensors) {
  return KernelsTake({tensors.projected, tensors.convolution, tensors.a_log, tensors.dt_bias,
                      tensors.norm}) &&
         spec.key_dim <= kMaxDeltaHeadDimOnGpu && spec.value_dim <= kMaxDeltaHeadDimOnGpu;
}

DeltaPlaces DeltaPlacesOf(const at::Tensor& cu_seqlens, at::Device device) {
  const int64_t* const ends = cu_seqlens.const_data_ptr<int64_t>();
  DeltaPlaces places;
  places.num_rows = ends[cu_seqlens.numel() - 1];
  std::vector<int32_t> row_sequence, chunk_sequence;
  std::vector<int32_t> row_starts = {0}, place_starts = {0};
  for (int64_t i = 0; i + 1 < cu_seqlens.numel(); ++i) {
    const int64_t length = ends[i + 1] - ends[i];
    if (length == 0) continue;
    const auto sequence = static_cast<int32_t>(places.num_sequences++);
    row_sequence.insert(row_sequence.end(), length, sequence);
    chunk_sequence.insert(chunk_sequence.end(), (length + kDeltaChunkOnGpu - 1) / kDeltaChunkOnGpu,
                          sequence);
    row_starts.push_back(static_cast<int32_t>(ends[i + 1]));
    place_starts.push_back(static_cast<int32_t>(chunk_sequence.size() * kDeltaChunkOnGpu));
  }
  places.num_chunks = static_cast<int64_t>(chunk_sequence.size());
  std::vector<int32_t> all;
  for (const std::vector<int32_t>* part :
       {&row_sequence, &row_starts, &place_starts, &chunk_sequence}) {
    all.insert(all.end(), part->begin(), part->end());
  }
  at::Tensor here = at::empty({static_cast<int64_t>(all.size())}, at::kInt);
  std::copy(all.begin(), all.end(), here.mutable_data_ptr<int32_t>());
  places.ints = ::tandem::device::Upload(here, device);
  return places;
}

at::Tensor DeltaAttention(const DeltaSpec& spec, const DeltaTensors& in,
                          const DeltaPlaces& places) {
  const c10::cuda::CUDAGuard guard(in.projected.device());
  const at::Tensor projected = in.projected.contiguous();
  const at::Tensor convolution = in.convolution.contiguous();
  const at::Tensor a_log = in.a_log.contiguous();
  const at::Tensor dt_bias = in.dt_bias.contiguous();
  const at::Tensor norm = in.norm.contiguous();
  if (!NeedsGraph({projected, convolution, a_log, dt_bias, norm})) {
    return DeltaForwardOf(spec, {projected, convolution, a_log, dt_bias, norm},
                          CudaDeltaBatchOf(places));
  }
  return DeltaFunction::apply(projected, convolution, a_log, dt_bias, norm, places.ints, places,
                              spec);
}

}  // namespace tandem::model::device
