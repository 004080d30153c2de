#include "common/model/paged_attention.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/model/cpu_dispatch.h"
#include "common/model/kernels/in_turns.h"
#include "common/model/paged_attention_kernel.h"
#include "common/model/worker_pool.h"

namespace tandem::model {
namespace {

// Rows of q (tokens times heads of a group) that share one walk over the keys.
constexpr int64_t kRowsPerTile = 32;
// Below so many pairs of query row and key, waking other threads costs more than it saves.
constexpr int64_t kMinParallelScores = 4096;

template <typename T>
struct HeadsView {  // of a tensor [tokens, heads, head_dim]
  explicit HeadsView(const at::Tensor& t)
      : data(static_cast<const T*>(t.const_data_ptr())),
        token_stride(t.stride(0)),
        head_stride(t.stride(1)) {}
  const T* data;
  int64_t token_stride;
  int64_t head_stride;
};

// The cache of one layer.
template <typename T>
struct LayerCache {
  LayerCache(const PagedKvCache& cache, int64_t layer)
      : block_size(cache.options().block_size),
        head_dim(cache.options().head_dim),
        padded_head_dim(cache.padded_head_dim()),
        keys(static_cast<T*>(cache.keys(layer).mutable_data_ptr())),
        values(static_cast<T*>(cache.values(layer).mutable_data_ptr())),
        key_block_stride(cache.options().num_kv_heads * block_size * head_dim),
        value_block_stride(cache.options().num_kv_heads * block_size * padded_head_dim) {}

  void Write(int64_t block, int64_t within, int64_t kv_head, const T* k, const T* v) const {
    T* key = keys + block * key_block_stride + kv_head * block_size * head_dim +
             within / kKvTile * kKvTile * head_dim + within % kKvTile;
    for (int64_t i = 0; i < head_dim; ++i) key[i * kKvTile] = k[i];
    T* value =
        values + block * value_block_stride + (kv_head * block_size + within) * padded_head_dim;
    std::memcpy(value, v, head_dim * sizeof(T));
    std::memset(value + head_dim, 0, (padded_head_dim - head_dim) * sizeof(T));
  }

  // Asks for a sequence's first tile of keys, and for the one that is written now.
  void FetchSoon(const PagedSequence& sequence, int64_t kv_head) const {
    const int64_t last = (sequence.context_length - 1) / kKvTile * kKvTile;
    for (const int64_t position : {int64_t{0}, last}) {
      const char* const tile = reinterpret_cast<const char*>(
          keys + sequence.blocks[position / block_size] * key_block_stride +
          (kv_head * block_size + position % block_size) * head_dim);
      const int64_t bytes = kKvTile * head_dim * static_cast<int64_t>(sizeof(T));
      for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(tile + byte);
      if (last == 0) break;
    }
  }

  int64_t block_size;
  int64_t head_dim;
  int64_t padded_head_dim;
  T* keys;
  T* values;
  int64_t key_block_stride;
  int64_t value_block_stride;
};

template <typename T>
void WriteTokens(const LayerCache<T>& cache, const PagedSequence& sequence, int64_t first,
                 int64_t count, int64_t kv_head, const HeadsView<T>& k, const HeadsView<T>& v) {
  const int64_t start = sequence.context_length - sequence.num_tokens;
  for (int64_t t = first; t < first + count; ++t) {
    const int64_t row = sequence.first_token + t;
    const int64_t position = start + t;
    cache.Write(sequence.blocks[position / cache.block_size], position % cache.block_size, kv_head,
                k.data + row * k.token_stride + kv_head * k.head_stride,
                v.data + row * v.token_stride + kv_head * v.head_stride);
  }
}

// What a thread takes at a time of its share: so many times less than all of it.
constexpr int64_t kAttentionTurns = 16;

// Calls fn(begin, end) for ranges that cover [0, n); threads take the next few as they finish, for
// the work is uneven.
template <typename Fn>
void ForSome(int64_t n, bool parallel, const Fn& fn) {
  static const kernels::ParallelFor parallel_for = ForTasks;
  kernels::InTurnsWith(n, parallel ? NumThreads() : 1, kAttentionTurns, parallel_for,
                       [&fn]() -> const Fn& { return fn; });
}

}  // namespace

PagedAttention::PagedAttention(const PagedKvCache& cache, std::vector<PagedSequence> sequences)
    : cache_(cache), sequences_(std::move(sequences)) {
  for (const PagedSequence& s : sequences_) {
    num_scores_ += s.num_tokens * s.context_length;
    decode_only_ = decode_only_ && s.num_tokens == 1;
  }
}

void PagedAttention::MakeTiles(int64_t heads_per_kv_head) {
  const int64_t tokens = std::max<int64_t>(1, kRowsPerTile / heads_per_kv_head);
  for (int64_t s = 0; s < static_cast<int64_t>(sequences_.size()); ++s) {
    for (int64_t t = 0; t < sequences_[s].num_tokens; t += tokens) {
      tiles_.push_back({static_cast<int32_t>(s), static_cast<int32_t>(t),
                        static_cast<int32_t>(std::min(tokens, sequences_[s].num_tokens - t))});
    }
  }
}

template <typename T>
static void Run(const PagedKvCache& paged, int64_t layer,
                const std::vector<PagedSequence>& sequences, int64_t num_tiles, const auto& tile_at,
                bool parallel, bool decode_only, const at::Tensor& q_tensor,
                const at::Tensor& k_tensor, const at::Tensor& v_tensor,
                const AttentionParams& params, const at::Tensor& sinks, at::Tensor& out) {
  const LayerCache<T> cache(paged, layer);
  const HeadsView<T> q(q_tensor), k(k_tensor), v(v_tensor);
  const int64_t kv_heads = paged.options().num_kv_heads;
  const int64_t group = q_tensor.size(1) / kv_heads;

  // A tile of a prompt reads what other tiles write.
  if (!decode_only) {
    ForSome(num_tiles * kv_heads, parallel, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto& tile = tile_at(i / kv_heads);
        WriteTokens(cache, sequences[tile.sequence], tile.first_token, tile.num_tokens,
                    i % kv_heads, k, v);
      }
    });
  }
  const auto attend = [&](int64_t i) {
    const auto& tile = tile_at(i / kv_heads);
    const PagedSequence& sequence = sequences[tile.sequence];
    const int64_t kv_head = i % kv_heads;
    if (decode_only) WriteTokens(cache, sequence, 0, 1, kv_head, k, v);
    const int64_t row = sequence.first_token + tile.first_token;
    AttendArgs<T> args;
    args.q = q.data + row * q.token_stride + kv_head * group * q.head_stride;
    args.q_token_stride = q.token_stride;
    args.q_head_stride = q.head_stride;
    args.out_token_stride = kv_heads * group * cache.head_dim;
    args.out = static_cast<T*>(out.mutable_data_ptr()) + row * args.out_token_stride +
               kv_head * group * cache.head_dim;
    args.num_tokens = tile.num_tokens;
    args.heads_per_kv_head = group;
    args.head_dim = cache.head_dim;
    args.padded_head_dim = cache.padded_head_dim;
    args.first_position = sequence.context_length - sequence.num_tokens + tile.first_token;
    args.keys = cache.keys + kv_head * cache.block_size * cache.head_dim;
    args.values = cache.values + kv_head * cache.block_size * cache.padded_head_dim;
    args.key_block_stride = cache.key_block_stride;
    args.value_block_stride = cache.value_block_stride;
    args.block_size = cache.block_size;
    args.blocks = sequence.blocks;
    args.scale = static_cast<float>(params.scale);
    args.softcap = static_cast<float>(params.softcap);
    args.window = params.window;
    if (sinks.defined()) args.sinks = sinks.const_data_ptr<float>() + kv_head * group;
    Attend(args);
  };
  ForSome(num_tiles * kv_heads, parallel, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + 1 < end) {
        const PagedSequence& next = sequences[tile_at((i + 1) / kv_heads).sequence];
        cache.FetchSoon(next, (i + 1) % kv_heads);
      }
      attend(i);
    }
  });
}

at::Tensor PagedAttention::Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const AttentionParams& params) {
  if (tiles_.empty()) MakeTiles(q.size(1) / cache_.options().num_kv_heads);
  at::Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
  at::Tensor sinks;
  if (params.sinks.has_value()) sinks = params.sinks->to(at::kFloat).contiguous();
  const bool parallel = num_scores_ * q.size(1) >= kMinParallelScores;
  const auto tile_at = [this](int64_t i) -> const Tile& { return tiles_[i]; };
  const int64_t num_tiles = static_cast<int64_t>(tiles_.size());
  if (q.scalar_type() == at::kBFloat16) {
    Run<uint16_t>(cache_, layer, sequences_, num_tiles, tile_at, parallel, decode_only_, q, k, v,
                  params, sinks, out);
  } else {
    Run<float>(cache_, layer, sequences_, num_tiles, tile_at, parallel, decode_only_, q, k, v,
               params, sinks, out);
  }
  return out;
}

}  // namespace tandem::model
