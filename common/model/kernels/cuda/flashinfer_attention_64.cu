#include "common/model/kernels/cuda/flashinfer_attention.cuh"

namespace tandem::model::cuda {

cudaError_t LaunchFlashInfer64(const PagedAttention& args, cudaStream_t stream) {
  return LaunchFlashInferOf<64>(args, stream);
}

}  // namespace tandem::model::cuda
