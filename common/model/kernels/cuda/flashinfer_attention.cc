#include "common/model/kernels/cuda/paged_attention.h"

namespace tandem::model::cuda {

bool FlashInferTakes(Element type, int head_dim) {
  return type == Element::kBFloat16 && (head_dim == 64 || head_dim == 128);
}

cudaError_t LaunchFlashInfer(const PagedAttention& args, cudaStream_t stream) {
  if (args.batch.num_pieces == 0) return cudaSuccess;
  return args.head_dim == 64 ? LaunchFlashInfer64(args, stream) : LaunchFlashInfer128(args, stream);
}

}  // namespace tandem::model::cuda
