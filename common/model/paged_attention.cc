#include "common/model/paged_attention.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "common/model/cpu_dispatch.h"
#include "common/model/kernels/in_turns.h"
#include "common/model/kernels/round_up.h"
#include "common/model/kernels/row_ops.h"
#include "common/model/paged_attention_kernel.h"
#include "common/model/step_memory.h"
#include "common/model/worker_pool.h"

namespace tandem::model {
namespace {

// Rows of q (tokens times heads of a group) that share one pass over the keys.
constexpr int64_t kRowsPerTile = 32;
// Query heads of a task over latents: enough that reading the latents costs little beside the
// products, few enough that a single sequence keeps several threads busy.
constexpr int64_t kHeadsOfLatent = 16;
// Below this many pairs of query row and key, waking other threads costs more than it saves.
constexpr int64_t kMinParallelScores = 4096;

// Heads of some rows of the batch. Strides in elements.
template <typename T>
struct HeadsView {
  const T* At(int64_t row, int64_t head) const {
    return data + row * token_stride + head * head_stride;
  }
  const T* data;
  int64_t token_stride;
  int64_t head_stride;
};

// Returns a view of a tensor [tokens, heads, head_dim].
template <typename T>
HeadsView<T> ViewOf(const at::Tensor& heads) {
  return {static_cast<const T*>(heads.const_data_ptr()), heads.stride(0), heads.stride(1)};
}

// Takes q, k and v as given.
template <typename T>
class GivenHeads {
 public:
  static constexpr bool kHasKeys = true;

  GivenHeads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)
      : q_(ViewOf<T>(q)), k_(ViewOf<T>(k)), v_(ViewOf<T>(v)) {}

  const T* Key(int64_t row, int64_t kv_head) const { return k_.At(row, kv_head); }
  const T* Value(int64_t row, int64_t kv_head) const { return v_.At(row, kv_head); }
  HeadsView<T> Queries(int64_t row, int64_t /*count*/, int64_t head, int64_t /*num_heads*/) const {
    return {q_.At(row, head), q_.token_stride, q_.head_stride};
  }

 private:
  HeadsView<T> q_, k_, v_;
};

// Takes queries alone, as given: the cache has the keys and values.
template <typename T>
class GivenQueries {
 public:
  static constexpr bool kHasKeys = false;

  explicit GivenQueries(const at::Tensor& q) : q_(ViewOf<T>(q)) {}

  HeadsView<T> Queries(int64_t row, int64_t /*count*/, int64_t head, int64_t /*num_heads*/) const {
    return {q_.At(row, head), q_.token_stride, q_.head_stride};
  }

 private:
  HeadsView<T> q_;
};

// Takes the heads of a fused projection and rotates them, plainly, on access: a returned pointer is valid
// until this thread's next call.
template <typename T>
class ProjectedHeads {
 public:
  static constexpr bool kHasKeys = true;

  ProjectedHeads(const at::Tensor& qkv, const HeadRotation& rotation)
      : data_(static_cast<const T*>(qkv.const_data_ptr())),
        row_stride_(qkv.stride(0)),
        k_column_(rotation.shape.num_heads * rotation.shape.head_dim),
        v_column_(k_column_ + rotation.shape.num_kv_heads * rotation.shape.head_dim),
        value_dim_(rotation.shape.value_dim()) {
    forward_.type = ElementOf(qkv);
    forward_.head_dim = rotation.shape.head_dim;
    forward_.in_row_stride = row_stride_;
    forward_.out_row_stride = 0;  // row by row, into this thread's buffer
    forward_.cos = rotation.angles.cos.const_data_ptr<float>();
    forward_.sin = rotation.angles.sin.const_data_ptr<float>();
    if (!rotation.norm.has_value()) return;
    forward_.eps = static_cast<float>(rotation.norm->norm.eps);
    q_norm_ = rotation.q_norm.weight.const_data_ptr();
    k_norm_ = rotation.k_norm.weight.const_data_ptr();
  }

  const T* Key(int64_t row, int64_t kv_head) const {
    T* const room = Room(forward_.head_dim);
    Rotate(row, k_column_ + kv_head * forward_.head_dim, 1, k_norm_, room);
    return room;
  }
  const T* Value(int64_t row, int64_t kv_head) const {
    return data_ + row * row_stride_ + v_column_ + kv_head * value_dim_;
  }
  HeadsView<T> Queries(int64_t row, int64_t count, int64_t head, int64_t num_heads) const {
    const int64_t width = num_heads * forward_.head_dim;
    T* const room = Room(count * width);
    for (int64_t i = 0; i < count; ++i) {
      Rotate(row + i, head * forward_.head_dim, num_heads, q_norm_, room + i * width);
    }
    return {room, width, forward_.head_dim};
  }

 private:
  static T* Room(int64_t elements) {
    thread_local std::vector<T> room;
    if (static_cast<int64_t>(room.size()) < elements) room.resize(elements);
    return room.data();
  }

  void Rotate(int64_t row, int64_t column, int64_t num_heads, const void* norm, T* out) const {
    kernels::RotateForward forward = forward_;
    forward.num_heads = num_heads;
    forward.in = data_ + column;
    forward.out = out;
    forward.norm_weight = norm;
    kernels::RotateRows(forward, row, row + 1);
  }

  const T* data_;
  int64_t row_stride_;
  int64_t k_column_;
  int64_t v_column_;
  int64_t value_dim_;
  kernels::RotateForward forward_;  // except heads, location and norm
  const void* q_norm_ = nullptr;
  const void* k_norm_ = nullptr;
};

// The cache of one layer.
template <typename T>
struct LayerCache {
  LayerCache(const PagedKvCache& cache, int64_t layer)
      : block_size(cache.options().block_size),
        num_kv_heads(cache.layer(layer).num_kv_heads),
        head_dim(cache.layer(layer).head_dim),
        value_dim(cache.layer(layer).v_head_dim),
        padded_value_dim(kernels::RoundUp(value_dim, kKvTile)),
        shared(cache.layer(layer).shared),
        value_stride(shared ? head_dim : padded_value_dim),
        num_groups(cache.groups().num_groups()),
        group(cache.groups().layers[layer].group),
        keys(static_cast<T*>(cache.keys(layer).mutable_data_ptr())),
        values(static_cast<T*>(cache.values(layer).mutable_data_ptr())),
        key_block_stride(cache.keys(layer).stride(0)),
        value_block_stride(cache.values(layer).stride(0)) {}

  // Returns the block that holds a position.
  int64_t BlockOf(const PagedSequence& sequence, int64_t position) const {
    return sequence.blocks[position / block_size * num_groups + group];
  }

  void Write(int64_t block, int64_t within, int64_t kv_head, const T* k, const T* v) const {
    if (shared) {
      std::memcpy(keys + block * key_block_stride + within * head_dim, k, head_dim * sizeof(T));
      return;
    }
    T* key = keys + block * key_block_stride + kv_head * block_size * head_dim +
             within / kKvTile * kKvTile * head_dim + within % kKvTile;
    for (int64_t i = 0; i < head_dim; ++i) key[i * kKvTile] = k[i];
    T* value =
        values + block * value_block_stride + (kv_head * block_size + within) * padded_value_dim;
    std::memcpy(value, v, value_dim * sizeof(T));
    std::memset(value + value_dim, 0, (padded_value_dim - value_dim) * sizeof(T));
  }

  // Prefetches the first tile of keys that a sequence sees and the tile that is being written.
  // Blocks lie anywhere in the cache, so the hardware cannot foresee them.
  void FetchSoon(const PagedSequence& sequence, int64_t kv_head, const Window& window) const {
    const int64_t position = sequence.context_length - sequence.num_tokens;
    const int64_t first = window.OldestSeen(position) / kKvTile * kKvTile;
    const int64_t last = (sequence.context_length - 1) / kKvTile * kKvTile;
    for (const int64_t at : {first, last}) {
      const char* const tile =
          reinterpret_cast<const char*>(keys + BlockOf(sequence, at) * key_block_stride +
                                        (kv_head * block_size + at % block_size) * head_dim);
      const int64_t bytes = kKvTile * head_dim * static_cast<int64_t>(sizeof(T));
      for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(tile + byte);
      if (last == first) break;
    }
  }

  int64_t block_size;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t value_dim;
  int64_t padded_value_dim;
  bool shared;           // CacheSpec::shared
  int64_t value_stride;  // from token to token
  int64_t num_groups;
  int64_t group;  // of the layer
  T* keys;
  T* values;
  int64_t key_block_stride;
  int64_t value_block_stride;
};

template <typename T>
void WriteTokens(const LayerCache<T>& cache, const PagedSequence& sequence, int64_t first,
                 int64_t count, int64_t kv_head, const auto& heads) {
  const int64_t start = sequence.context_length - sequence.num_tokens;
  for (int64_t t = first; t < first + count; ++t) {
    const int64_t row = sequence.first_token + t;
    const int64_t position = start + t;
    cache.Write(cache.BlockOf(sequence, position), position % cache.block_size, kv_head,
                heads.Key(row, kv_head), heads.Value(row, kv_head));
  }
}

// A thread takes this fraction of its share at a time: 1 / kAttentionTurns. More turns than in
// products: sequences of different lengths make uneven tasks.
constexpr int64_t kAttentionTurns = 16;

// Calls fn(begin, end) for ranges that cover [0, n); threads take the next few when they finish,
// because the work is uneven.
template <typename Fn>
void ForSome(int64_t n, bool parallel, const Fn& fn) {
  static const kernels::ParallelFor parallel_for = ForTasks;
  kernels::InTurnsWith(n, parallel ? NumThreads() : 1, kAttentionTurns, parallel_for,
                       [&fn]() -> const Fn& { return fn; });
}

}  // namespace

PagedAttention::PagedAttention(const PagedKvCache& cache, absl::Span<const PagedSequence> sequences)
    : cache_(cache) {
  Begin(sequences);
}

void PagedAttention::Begin(absl::Span<const PagedSequence> sequences) {
  sequences_.assign(sequences.begin(), sequences.end());
  for (Tiling& tiling : tilings_) tiling.tiles.clear();
  num_scores_ = 0;
  decode_only_ = true;
  for (const PagedSequence& s : sequences_) {
    num_scores_ += s.num_tokens * s.context_length;
    decode_only_ = decode_only_ && s.num_tokens == 1;
  }
}

const std::vector<PagedAttention::Tile>& PagedAttention::TilesFor(int64_t heads_per_kv_head) {
  auto tiling = std::find_if(tilings_.begin(), tilings_.end(), [&](const Tiling& other) {
    return other.heads_per_kv_head == heads_per_kv_head;
  });
  if (tiling == tilings_.end()) {
    tiling = tilings_.insert(tiling, Tiling{heads_per_kv_head, {}});
  }
  std::vector<Tile>& tiles = tiling->tiles;
  if (!tiles.empty()) return tiles;
  const int64_t tokens = std::max<int64_t>(1, kRowsPerTile / heads_per_kv_head);
  for (int64_t s = 0; s < static_cast<int64_t>(sequences_.size()); ++s) {
    for (int64_t t = 0; t < sequences_[s].num_tokens; t += tokens) {
      tiles.push_back({static_cast<int32_t>(s), static_cast<int32_t>(t),
                       static_cast<int32_t>(std::min(tokens, sequences_[s].num_tokens - t))});
    }
  }
  return tiles;
}

template <typename T>
void PagedAttention::Run(int64_t layer, const std::vector<Tile>& tiles, const auto& heads,
                         const AttentionParams& params, const at::Tensor& sinks, bool parallel,
                         at::Tensor& out) const {
  constexpr bool kWrites = std::decay_t<decltype(heads)>::kHasKeys;
  const LayerCache<T> cache(cache_, layer);
  const int64_t kv_heads = cache.num_kv_heads;
  const int64_t width = out.size(1);
  const int64_t num_heads = width / cache.value_dim;
  // Query heads of one task: those of a key-value head, or some of the many that share a latent.
  const int64_t group = cache.shared ? std::min(kHeadsOfLatent, num_heads) : num_heads / kv_heads;
  const int64_t num_groups = (num_heads + group - 1) / group;
  const bool writes_alone = decode_only_ && !cache.shared;
  const auto num_tasks = static_cast<int64_t>(tiles.size()) * num_groups;

  // Writes all tokens first: a tile of a prompt reads keys that other tiles write. A decoding
  // sequence has one tile per head, which writes its own keys below.
  if constexpr (kWrites) {
    if (!writes_alone) {
      const auto num_writes = static_cast<int64_t>(tiles.size()) * kv_heads;
      ForSome(num_writes, parallel, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const Tile& tile = tiles[i / kv_heads];
          WriteTokens(cache, sequences_[tile.sequence], tile.first_token, tile.num_tokens,
                      i % kv_heads, heads);
        }
      });
    }
  }
  const auto attend = [&](int64_t i) {
    const Tile& tile = tiles[i / num_groups];
    const PagedSequence& sequence = sequences_[tile.sequence];
    const int64_t first_head = i % num_groups * group;
    const int64_t count = std::min(group, num_heads - first_head);
    const int64_t kv_head = cache.shared ? 0 : i % num_groups;
    if constexpr (kWrites) {
      if (writes_alone) WriteTokens(cache, sequence, 0, 1, kv_head, heads);
    }
    const int64_t row = sequence.first_token + tile.first_token;
    const HeadsView<T> q = heads.Queries(row, tile.num_tokens, first_head, count);
    AttendArgs<T> args;
    args.q = q.data;
    args.q_token_stride = q.token_stride;
    args.q_head_stride = q.head_stride;
    args.out_token_stride = width;
    args.out = static_cast<T*>(out.mutable_data_ptr()) + row * width + first_head * cache.value_dim;
    args.num_tokens = tile.num_tokens;
    args.heads_per_kv_head = count;
    args.head_dim = cache.head_dim;
    args.value_dim = cache.value_dim;
    args.padded_value_dim = cache.padded_value_dim;
    args.first_position = sequence.context_length - sequence.num_tokens + tile.first_token;
    args.keys = cache.keys + kv_head * cache.block_size * cache.head_dim;
    args.values = cache.values + kv_head * cache.block_size * cache.value_stride;
    args.value_stride = cache.value_stride;
    args.shared = cache.shared;
    args.key_block_stride = cache.key_block_stride;
    args.value_block_stride = cache.value_block_stride;
    args.block_size = cache.block_size;
    args.blocks = sequence.blocks + cache.group;
    args.blocks_stride = cache.num_groups;
    args.scale = static_cast<float>(params.scale);
    args.softcap = static_cast<float>(params.softcap);
    args.alibi = params.alibi;
    args.alibi.first_head += first_head;
    args.window = params.window;
    if (sequence.seen_ends != nullptr) args.seen_ends = sequence.seen_ends + tile.first_token;
    if (sinks.defined()) args.sinks = sinks.const_data_ptr<float>() + first_head;
    Attend(args);
  };
  ForSome(num_tasks, parallel, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + 1 < end) {
        const PagedSequence& next = sequences_[tiles[(i + 1) / num_groups].sequence];
        cache.FetchSoon(next, cache.shared ? 0 : (i + 1) % num_groups, params.window);
      }
      attend(i);
    }
  });
}

template <template <typename> typename Heads>
at::Tensor PagedAttention::Attended(int64_t layer, int64_t num_tokens, int64_t num_heads,
                                    const AttentionParams& params, const auto&... from) {
  const CacheSpec& cached = cache_.layer(layer);
  const std::vector<Tile>& tiles = TilesFor(cached.shared ? std::min(kHeadsOfLatent, num_heads)
                                                          : num_heads / cached.num_kv_heads);
  const at::ScalarType dtype = cache_.options().dtype;
  at::Tensor out = EmptyTensor({num_tokens, num_heads * cached.v_head_dim}, dtype);
  at::Tensor sinks;
  if (params.sinks.has_value()) sinks = params.sinks->to(at::kFloat).contiguous();
  const bool parallel = num_scores_ * num_heads >= kMinParallelScores;
  if (dtype == at::kBFloat16) {
    Run<uint16_t>(layer, tiles, Heads<uint16_t>(from...), params, sinks, parallel, out);
  } else {
    Run<float>(layer, tiles, Heads<float>(from...), params, sinks, parallel, out);
  }
  return out;
}

at::Tensor PagedAttention::Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const AttentionParams& params) {
  return Attended<GivenHeads>(layer, q.size(0), q.size(1), params, q, k, v);
}

at::Tensor PagedAttention::ForwardQueries(int64_t kv_layer, const at::Tensor& q,
                                          const AttentionParams& params) {
  return Attended<GivenQueries>(kv_layer, q.size(0), q.size(1), params, q);
}

at::Tensor PagedAttention::ForwardLatents(int64_t layer, const at::Tensor& q,
                                          const at::Tensor& latents,
                                          const AttentionParams& params) {
  const at::Tensor keys = latents.unsqueeze(1);
  return Attended<GivenHeads>(layer, q.size(0), q.size(1), params, q, keys, keys);
}

at::Tensor PagedAttention::ForwardDelta(int64_t layer, const DeltaSpec& spec,
                                        const DeltaTensors& tensors) {
  static const kernels::ParallelFor parallel_for = ForTasks;
  at::Tensor out =
      EmptyTensor({tensors.projected.size(0), spec.value_size()}, cache_.options().dtype);
  std::vector<kernels::DeltaSequence> sequences;
  sequences.reserve(sequences_.size());
  for (const PagedSequence& s : sequences_) {
    sequences.push_back({.first_row = s.first_token,
                         .num_rows = s.num_tokens,
                         .begins = s.context_length == s.num_tokens,
                         .state = cache_.states().State(layer, s.state),
                         .tail = cache_.states().Tail(layer, s.state)});
  }
  kernels::DeltaForward(DeltaShapeOf(spec, tensors), sequences, out.mutable_data_ptr(),
                        NumThreads(), parallel_for);
  return out;
}

at::Tensor PagedAttention::ForwardProjected(int64_t layer, const at::Tensor& qkv,
                                            const HeadRotation& rotation,
                                            const AttentionParams& params) {
  if (!rotation.IsPlain() || rotation.value_norm.has_value()) {
    return Attention::ForwardProjected(layer, qkv, rotation, params);
  }
  return Attended<ProjectedHeads>(layer, qkv.size(0), rotation.shape.num_heads, params,
                                  qkv.contiguous(), rotation);
}

}  // namespace tandem::model
