// Implements device_latents.h for builds with CUDA.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "common/model/cuda_tensor.h"
#include "common/model/device_latents.h"
#include "common/model/kernels/cuda/latent_rows.h"

namespace tandem::model::device {

void WriteLatentRows(const at::Tensor& q, const at::Tensor& latent, const at::Tensor& shared,
                     const LatentShape& shape, const RotaryAngles& angles, AbsorbedHeads& out) {
  const c10::cuda::CUDAGuard guard(q.device());
  const at::Tensor queries = q.contiguous();
  const at::Tensor of_tokens = latent.contiguous();
  const at::Tensor keys = shared.contiguous();
  at::Tensor cos, sin;
  cuda::LatentRows args;
  args.type = CudaElementOf(queries);
  args.rows = queries.size(0);
  args.num_heads = static_cast<int>(shape.num_heads);
  args.nope_dim = static_cast<int>(shape.nope_dim);
  args.rope_dim = static_cast<int>(shape.rope_dim);
  args.kv_rank = static_cast<int>(of_tokens.size(1));
  args.q = queries.const_data_ptr();
  args.latent = of_tokens.const_data_ptr();
  args.shared = keys.const_data_ptr();
  if (angles.cos.defined()) {
    cos = angles.cos.contiguous();
    sin = angles.sin.contiguous();
    args.half = static_cast<int>(cos.size(1));
    args.cos = cos.const_data_ptr<float>();
    args.sin = sin.const_data_ptr<float>();
    args.interleaved = angles.interleaved;
  }
  args.absorbed_q = out.q.mutable_data_ptr();
  args.latents = out.latents.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(queries.device())));
}

}  // namespace tandem::model::device
