#include "common/device/launch.cuh"
#include "common/model/kernels/cuda/device_math.cuh"
#include "common/model/kernels/cuda/latent_rows.h"

namespace tandem::model::cuda {
namespace {

constexpr int kLatentRowThreads = 256;

// A block for each row.
template <typename T>
__global__ void __launch_bounds__(kLatentRowThreads) LatentRowsKernel(const LatentRows args) {
  device::AwaitPredecessor();
  const int64_t row = blockIdx.x;
  const int64_t head_dim = args.nope_dim + args.rope_dim;
  const int64_t width = args.kv_rank + args.rope_dim;
  const T* const q = static_cast<const T*>(args.q) + row * args.num_heads * head_dim;
  T* const absorbed = static_cast<T*>(args.absorbed_q) + row * args.num_heads * width;
  T* const latents = static_cast<T*>(args.latents) + row * width;
  const int pairs = (args.rope_dim + 1) / 2;
  // Those of the heads, then those of the key.
  const int first = static_cast<int>(threadIdx.x);
  for (int i = first; i < (args.num_heads + 1) * pairs; i += kLatentRowThreads) {
    const int head = i / pairs;
    const int pair = i % pairs;
    const bool is_key = head == args.num_heads;
    const T* const from = is_key ? static_cast<const T*>(args.shared) + row * args.rope_dim
                                 : q + head * head_dim + args.nope_dim;
    T* const to = (is_key ? latents : absorbed + head * width) + args.kv_rank;
    if (pair >= args.half) {
      to[2 * pair] = from[2 * pair];
      if (2 * pair + 1 < args.rope_dim) to[2 * pair + 1] = from[2 * pair + 1];
      continue;
    }
    const int a = args.interleaved ? 2 * pair : pair;
    const int b = args.interleaved ? 2 * pair + 1 : args.half + pair;
    const float cos = args.cos[row * args.half + pair];
    const float sin = args.sin[row * args.half + pair];
    const float x = ToFloat(from[a]);
    const float y = ToFloat(from[b]);
    FromFloat(x * cos - y * sin, to[a]);
    FromFloat(y * cos + x * sin, to[b]);
  }
  const T* const latent = static_cast<const T*>(args.latent) + row * args.kv_rank;
  for (int i = first; i < args.kv_rank; i += kLatentRowThreads) latents[i] = latent[i];
}

}  // namespace

cudaError_t Launch(const LatentRows& args, cudaStream_t stream) {
  if (args.rows == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(args.rows);
  if (args.type == Element::kFloat32) {
    TANDEM_LAUNCH_EARLY((LatentRowsKernel<float>), blocks, kLatentRowThreads, 0, stream, args);
  } else {
    TANDEM_LAUNCH_EARLY((LatentRowsKernel<__nv_bfloat16>), blocks, kLatentRowThreads, 0, stream,
                        args);
  }
  return cudaGetLastError();
}

}  // namespace tandem::model::cuda
