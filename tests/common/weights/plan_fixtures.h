// Small models and fleets for tests of plans, and a fleet's memory on which a plan is carried out.
#ifndef TANDEM_TESTS_COMMON_WEIGHTS_PLAN_FIXTURES_H_
#define TANDEM_TESTS_COMMON_WEIGHTS_PLAN_FIXTURES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "common/comm/mesh_shape.h"
#include "common/model/parameter_table.h"
#include "common/weights/holdings.h"
#include "common/weights/model_layout.h"
#include "common/weights/reshard_plan.h"

namespace tandem::weights::testing {

using Rng = std::mt19937_64;

inline int Draw(Rng& rng, int least, int most) {
  return least + static_cast<int>(rng() % static_cast<uint64_t>(most - least + 1));
}

// Sizes that rarely divide by anything; splits over up to 4 ranks.
inline model::ModelSpec RandomSpec(Rng& rng) {
  model::ModelSpec spec;
  spec.hidden_size = Draw(rng, 3, 17);
  spec.vocab_size = Draw(rng, 5, 40);
  spec.tie_word_embeddings = Draw(rng, 0, 1) == 1;
  model::LayerSpec layer;
  layer.attention.num_kv_heads = Draw(rng, 4, 6);
  layer.attention.num_heads = layer.attention.num_kv_heads * Draw(rng, 1, 3);
  layer.attention.head_dim = Draw(rng, 1, 4);
  layer.feed_forward.intermediate_size = Draw(rng, 4, 23);
  layer.attention.qkv_bias = Draw(rng, 0, 1) == 1;
  if (Draw(rng, 0, 1) == 1) layer.attention.qk_norm.emplace();
  layer.attention.output_bias = Draw(rng, 0, 1) == 1;
  layer.feed_forward.bias = Draw(rng, 0, 1) == 1;
  spec.layers.assign(Draw(rng, 1, 3), layer);
  return spec;
}

inline model::UnitLimits RandomLimits(Rng& rng) {
  switch (Draw(rng, 0, 2)) {
    case 0:
      return {};
    case 1:
      return {.min_elements = Draw(rng, 1, 4000)};
    default:
      return {.max_elements = Draw(rng, 1, 1000)};
  }
}

inline comm::MeshShape RandomMesh(Rng& rng) {
  return {.dp_replicate = Draw(rng, 1, 3), .dp_shard = Draw(rng, 1, 5), .tp = Draw(rng, 1, 3)};
}

// An element is known by its value.
using Value = uint32_t;
inline constexpr int64_t kElementBytes = sizeof(Value);
inline Value ValueOf(int tensor, int64_t index) {
  return static_cast<Value>(tensor * 1000003 + index + 1);
}

// One rank's memory, block by block.
using Memory = std::map<int32_t, std::vector<Value>>;

inline void Write(Memory& memory, int32_t block, int64_t offset, Value value) {
  std::vector<Value>& values = memory[block];
  if (static_cast<int64_t>(values.size()) <= offset) values.resize(offset + 1);
  values[offset] = value;
}

// What the trainer's ranks hold, by the table of each and the rule that shards are cut by; made
// without the plan's pieces.
inline std::vector<Memory> TrainerMemory(const model::ModelSpec& spec,
                                         const model::UnitLimits& limits,
                                         const comm::MeshShape& mesh) {
  std::vector<Memory> out(mesh.size());
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const int tensor_rank = rank % mesh.tp;
    const int expert_rank = rank / mesh.tp % mesh.ep;
    const model::ParameterTable table(spec, limits, {tensor_rank, mesh.tp}, {expert_rank, mesh.ep});
    for (size_t i = 0; i < table.segments().size(); ++i) {
      const auto ref = table.segments()[i];
      const model::Segment& segment = table.segment(ref);
      const int unit = table.parameter(ref.parameter).unit;
      const bool of_experts = table.units()[unit].of_experts;
      const int shards = of_experts ? mesh.dp_shard : mesh.num_shards();
      const int shard = rank / mesh.tp / (of_experts ? mesh.ep : 1) % shards;
      const int64_t owned = (table.units()[unit].numel + shards - 1) / shards;
      const bool matrix = segment.shape.size() == 2;
      const int64_t columns = matrix ? segment.shape[1] : 1;
      for (int64_t e = 0; e < segment.numel; ++e) {
        const int64_t at = segment.offset + e;
        if (at / owned != shard) continue;
        const int64_t row = segment.start[0] + e / columns;
        const int64_t column = (matrix ? segment.start[1] : 0) + e % columns;
        const int64_t index = row * (matrix ? segment.global_shape[1] : 1) + column;
        Write(out[rank], unit, at % owned, ValueOf(static_cast<int>(i), index));
      }
    }
  }
  return out;
}

// What the ranks of a replica are to hold: their boxes, tensor by tensor.
inline std::vector<Memory> RolloutMemory(const model::ModelSpec& spec, int tp) {
  std::vector<Memory> out(tp);
  for (int rank = 0; rank < tp; ++rank) {
    const model::ParameterTable table(spec, {}, {rank, tp});
    for (size_t i = 0; i < table.segments().size(); ++i) {
      const model::Segment& segment = table.segment(table.segments()[i]);
      const bool matrix = segment.shape.size() == 2;
      const int64_t columns = matrix ? segment.shape[1] : 1;
      for (int64_t e = 0; e < segment.numel; ++e) {
        const int64_t row = segment.start[0] + e / columns;
        const int64_t column = (matrix ? segment.start[1] : 0) + e % columns;
        Write(out[rank], static_cast<int32_t>(i), e,
              ValueOf(static_cast<int>(i), row * (matrix ? segment.global_shape[1] : 1) + column));
      }
    }
  }
  return out;
}

// Memory of the same blocks and sizes with nothing in it.
inline std::vector<Memory> Empty(std::vector<Memory> memory) {
  for (Memory& rank : memory) {
    for (auto& [block, values] : rank) std::fill(values.begin(), values.end(), 0);
  }
  return memory;
}

// Packs a message's pieces, run by run, into a bucket of at most the plan's size.
inline void Pack(const Message& message, const Memory& from, std::vector<Value>& bucket) {
  bucket.clear();
  for (const MessagePiece& piece : message.pieces) {
    for (int64_t i = 0; i < piece.piece.repeat; ++i) {
      const Value* run =
          from.at(piece.from.block).data() + piece.from.offset + i * piece.from.stride;
      bucket.insert(bucket.end(), run, run + piece.piece.length);
    }
  }
}

inline void Unpack(const Message& message, const std::vector<Value>& bucket, Memory& to) {
  size_t at = 0;
  for (const MessagePiece& piece : message.pieces) {
    for (int64_t i = 0; i < piece.piece.repeat; ++i) {
      std::memcpy(to.at(piece.to.block).data() + piece.to.offset + i * piece.to.stride,
                  bucket.data() + at, piece.piece.length * sizeof(Value));
      at += piece.piece.length;
    }
  }
  EXPECT_EQ(at, bucket.size());
}

// Carries out a plan; two buckets alternate: one is packed while the other is yet to be unpacked.
inline void CarryOut(const ReshardPlan& plan, const std::vector<Memory>& from,
                     std::vector<Memory>& to) {
  std::vector<Value> buckets[2];
  for (size_t i = 0; i < plan.messages.size(); ++i) {
    const Message& message = plan.messages[i];
    Pack(message, from[message.from], buckets[i % 2]);
    EXPECT_EQ(buckets[i % 2].size() * sizeof(Value), message.size_bytes);
    EXPECT_LE(message.size_bytes, plan.bucket_bytes);
    if (i > 0) {
      const Message& before = plan.messages[i - 1];
      Unpack(before, buckets[(i - 1) % 2], to[before.to]);
    }
  }
  if (!plan.messages.empty()) {
    const size_t last = plan.messages.size() - 1;
    Unpack(plan.messages[last], buckets[last % 2], to[plan.messages[last].to]);
  }
}

}  // namespace tandem::weights::testing

#endif  // TANDEM_TESTS_COMMON_WEIGHTS_PLAN_FIXTURES_H_
