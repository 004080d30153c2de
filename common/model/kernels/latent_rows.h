// The heads of latent attention (layers/latent_spec.h) on the CPU, forward and backward, for ranges
// of rows: rotates the last elements of each query and of the key part that all heads share, and
// joins that part to every head's key. Arithmetic is float32 and each element is rounded once; a
// row's result depends only on that row.
#ifndef TANDEM_COMMON_MODEL_KERNELS_LATENT_ROWS_H_
#define TANDEM_COMMON_MODEL_KERNELS_LATENT_ROWS_H_

#include <cstdint>

#include "common/model/kernels/element.h"

namespace tandem::model::kernels {

struct LatentRows {
  Element type = Element::kFloat32;
  int64_t num_heads = 0;
  int64_t nope_dim = 0;  // leading elements of a head, which do not rotate
  int64_t rope_dim = 0;  // the others
  int64_t v_dim = 0;
  const float* cos = nullptr;  // [rows, rope_dim / 2]; null: no rotation
  const float* sin = nullptr;
  bool interleaved = false;  // pairs (2i, 2i + 1) rotate, not (i, i + rope_dim / 2)

  int64_t head_dim() const { return nope_dim + rope_dim; }
};

// All are contiguous rows of the rows' type.
struct LatentInputs {
  const void* q = nullptr;       // [rows, num_heads, head_dim], not rotated
  const void* shared = nullptr;  // [rows, rope_dim], likewise
  const void* kv = nullptr;      // [rows, num_heads, nope_dim + v_dim]
};
struct LatentHeads {
  void* q = nullptr;  // [rows, num_heads, head_dim]
  void* k = nullptr;  // likewise
  void* v = nullptr;  // [rows, num_heads, v_dim]
};
void JoinLatentHeads(const LatentRows& rows, const LatentInputs& in, const LatentHeads& out,
                     int64_t begin, int64_t end);

// Of the results, and of the inputs.
struct LatentGradOutputs {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
};
struct LatentGradInputs {
  void* q = nullptr;
  void* shared = nullptr;
  void* kv = nullptr;
};
void JoinLatentHeadsBackward(const LatentRows& rows, const LatentGradOutputs& grads,
                             const LatentGradInputs& out, int64_t begin, int64_t end);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_LATENT_ROWS_H_
