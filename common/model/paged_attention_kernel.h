// The inner loops of PagedAttention, compiled for each instruction set and dispatched at run time.
#ifndef TANDEM_COMMON_MODEL_PAGED_ATTENTION_KERNEL_H_
#define TANDEM_COMMON_MODEL_PAGED_ATTENTION_KERNEL_H_

#include <cstdint>

#include "common/model/kernels/alibi.h"
#include "common/model/kernels/window.h"

namespace tandem::model {

// Consecutive new tokens of one sequence, and the query heads that share one KV head. Elements are
// float or bfloat16 bits (uint16_t). Strides are in elements; the last dim is contiguous.
template <typename T>
struct AttendArgs {
  const T* q = nullptr;  // first token, first head of the group
  int64_t q_token_stride = 0;
  int64_t q_head_stride = 0;
  T* out = nullptr;  // [num_tokens, .., heads_per_kv_head, value_dim]
  int64_t out_token_stride = 0;
  int64_t num_tokens = 0;
  int64_t heads_per_kv_head = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  int64_t padded_value_dim = 0;
  int64_t first_position = 0;  // position of the first token
  // [num_tokens], or null: behind the last key that each token sees. Null: its own.
  const int64_t* seen_ends = nullptr;

  const T* keys = nullptr;    // of the KV head, in block 0
  const T* values = nullptr;  // of the KV head, in block 0
  int64_t key_block_stride = 0;
  int64_t value_block_stride = 0;
  // From one token's value to the next: padded_value_dim, but in a cache with shared values, whose
  // keys are rows too and not tiles: head_dim.
  int64_t value_stride = 0;
  bool shared = false;
  int64_t block_size = 0;
  // Blocks of all tokens that are seen; those that have left the first token's window are not read.
  const int32_t* blocks = nullptr;
  int64_t blocks_stride = 1;  // entries from one block to the next

  float scale = 1.0f;
  float softcap = 0.0f;
  Alibi alibi;                   // its first head is the group's
  Window window;                 // tokens that each token sees
  const float* sinks = nullptr;  // of the group's heads, or null
};

void Attend(const AttendArgs<float>& args);
void Attend(const AttendArgs<uint16_t>& args);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PAGED_ATTENTION_KERNEL_H_
