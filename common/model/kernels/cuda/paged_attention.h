// Launches attention over a paged cache on a CUDA device: FlashInfer's tensor-core kernel or, over
// latents, one of our own, if they support the shape, else our plain kernel. All queue on `stream`,
// whose device must be current, allocate nothing, and read the batch on the device, so a launch can be
// captured in a CUDA graph and replayed over another batch of the same shape.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_PAGED_ATTENTION_H_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_PAGED_ATTENTION_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/model/kernels/alibi.h"
#include "common/model/kernels/cuda/element.h"
#include "common/model/kernels/window.h"

namespace tandem::model::cuda {

// An AttentionPlan (attention_plan.h) on the device. A page is a block of the cache.
struct PagedBatch {
  int64_t num_rows = 0;
  int64_t num_sequences = 0;
  int64_t num_pieces = 0;  // blocks of the launch for each KV head
  int tile_rows = 0;       // query rows (tokens times heads of a group) of a piece
  bool split = false;      // keys of a sequence are split into chunks, whose results are merged

  const int32_t* row_sequence = nullptr;  // [rows]
  const int32_t* row_position = nullptr;  // [rows]: keys 0 .. position are visible
  // [rows]: the last visible key, where it is not the row's position; null: it is. Only for the plain
  // kernel.
  const int32_t* row_last_key = nullptr;
  const int32_t* row_starts = nullptr;        // [sequences + 1]
  const int32_t* page_starts = nullptr;       // [sequences + 1], into pages
  const int32_t* pages = nullptr;             // block ids
  const int32_t* last_page_length = nullptr;  // [sequences]
  const int32_t* piece_sequence = nullptr;    // [pieces], like the next two
  const int32_t* piece_tile = nullptr;
  const int32_t* piece_chunk = nullptr;
  const uint8_t* piece_is_real = nullptr;   // [pieces]
  const int32_t* partial_starts = nullptr;  // [sequences + 1]: rows of partial results
  const int32_t* merge_starts = nullptr;    // [rows + 1]: likewise
  const int32_t* chunk_length = nullptr;    // [1], in keys
  const uint32_t* total_rows = nullptr;     // [1]
};

struct PagedAttention {
  PagedBatch batch;
  Element type = Element::kFloat32;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;    // of queries and keys
  int v_head_dim = 0;  // of values; 0: head_dim
  // One key-value head, whose value is the first v_head_dim elements of its key; `values` is not read.
  bool shared = false;
  int block_size = 0;
  int64_t block_stride =
      0;  // elements from a block to the next, of keys and values; 0: side by side
  const void* q = nullptr;  // [rows, num_heads, head_dim]
  int64_t q_row_stride = 0;
  int64_t q_head_stride = 0;
  void* keys = nullptr;                  // [blocks, num_kv_heads, block_size, head_dim]
  void* values = nullptr;                // [blocks, num_kv_heads, block_size, v_head_dim]
  void* out = nullptr;                   // [rows, num_heads, v_head_dim]
  void* partial_out = nullptr;           // [partial rows, num_heads, v_head_dim], if split
  float* partial_log_sum_exp = nullptr;  // [partial rows, num_heads]
  float scale = 1.0f;
  // Only for the plain kernel:
  float softcap = 0.0f;
  Alibi alibi;
  Window window;
  const float* sinks = nullptr;  // [num_heads], or null
};

// The largest head_dim and v_head_dim of LaunchPlain(), which takes any up to it; keys that are shared
// with values may be longer, up to kMaxSharedHeadDim.
inline constexpr int kMaxPlainHeadDim = 512;
inline constexpr int kMaxSharedHeadDim = 576;
cudaError_t LaunchPlain(const PagedAttention& args, cudaStream_t stream);

// LaunchLatents() takes bfloat16 with shared keys and values, both dims multiples of 8, without softcap,
// ALiBi, window and sinks, in tiles of these many rows; q's strides are multiples of 8, q and keys
// aligned to 16 bytes.
inline constexpr int64_t kLatentTiles[] = {16, 32, 64};
bool LatentsTake(Element type, int head_dim, int v_head_dim);
// Bytes of shared memory that a block needs.
int64_t LatentSharedBytes(int64_t tile_rows, int head_dim);
cudaError_t LaunchLatents(const PagedAttention& args, cudaStream_t stream);

// FlashInfer takes bfloat16 with a head_dim of 64 or 128, without softcap, ALiBi, window and sinks. May
// throw flashinfer::Error, a std::exception, if the device cannot run it.
bool FlashInferTakes(Element type, int head_dim);
cudaError_t LaunchFlashInfer(const PagedAttention& args, cudaStream_t stream);

// Instances for LaunchFlashInfer(), one file each.
cudaError_t LaunchFlashInfer64(const PagedAttention& args, cudaStream_t stream);
cudaError_t LaunchFlashInfer128(const PagedAttention& args, cudaStream_t stream);

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_PAGED_ATTENTION_H_
