// Launches the products of kernels/cuda/row_product.h on tensors.
#ifndef TANDEM_COMMON_MODEL_CUDA_ROW_PRODUCT_H_
#define TANDEM_COMMON_MODEL_CUDA_ROW_PRODUCT_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>

#include <cstdint>

#include "common/model/cuda_tensor.h"
#include "common/model/kernels/cuda/row_product.h"
#include "common/model/optional_tensor.h"

namespace tandem::model::device {

// Fills in what the tensors say and the working memory. args: the weights, out_size, and the groups if
// there are any. x: contiguous [rows, in]; bias: may be undefined; out: [rows, out_size].
inline void LaunchRowProduct(const at::Tensor& x, const at::Tensor& bias, at::Tensor& out,
                             cuda::RowProduct args) {
  args.type = CudaElementOf(x);
  args.out_type = CudaElementOf(out);
  args.rows = x.size(0);
  args.in = x.size(1);
  args.x = x.const_data_ptr();
  args.bias = DataOrNull(bias);
  args.out = out.mutable_data_ptr();
  at::Tensor partial;
  if (const int64_t floats = cuda::PartialFloats(args); floats > 0) {
    partial = at::empty({floats}, x.options().dtype(at::kFloat).requires_grad(false));
    args.partial = partial.mutable_data_ptr<float>();
  }
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(x.device())));
}

}  // namespace tandem::model::device

#endif  // TANDEM_COMMON_MODEL_CUDA_ROW_PRODUCT_H_
