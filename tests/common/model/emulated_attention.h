// DeviceAttention through the kernels of a GPU, which run on a CPU (emulated_gpu).
#ifndef TANDEM_TESTS_COMMON_MODEL_EMULATED_ATTENTION_H_
#define TANDEM_TESTS_COMMON_MODEL_EMULATED_ATTENTION_H_

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "common/model/attention_plan.h"
#include "common/model/cuda_delta_forward.h"
#include "common/model/device_attention.h"
#include "common/model/kernels/cuda/paged_attention.h"
#include "common/model/kernels/cuda/row_kernels.h"

namespace tandem::model {

// Keys and values lie as they do on a GPU.
class EmulatedAttention : public DeviceAttention {
 public:
  EmulatedAttention(const PagedKvCache& cache, int64_t num_heads)
      : options_(cache.options()), states_(cache.states()), num_heads_(num_heads) {
    for (int64_t layer = 0; layer < options_.num_layers; ++layer) {
      const CacheSpec& spec = cache.layer(layer);
      layers_.push_back(spec);
      const auto spoiled = [&](int64_t dim) {
        return at::full({options_.num_blocks, spec.num_kv_heads, options_.block_size, dim}, NAN,
                        options_.dtype);
      };
      keys_.push_back(spoiled(spec.head_dim));
      values_.push_back(spec.shared ? at::Tensor() : spoiled(spec.v_head_dim));
    }
  }

  int64_t address_epoch() const override { return 0; }

  void Plan(absl::Span<const PagedSequence> sequences, int64_t) override {
    plan_ = PlanAttention(sequences, {.heads_per_kv_head = options_.shared ? num_heads_ : 1,
                                      .block_size = options_.block_size,
                                      .tiles = cuda::kLatentTiles});
    is_real_.assign(plan_.num_pieces(), 1);
    state_of_.clear();
    for (const PagedSequence& sequence : sequences) state_of_.push_back(sequence.state);
  }

  at::Tensor ForwardDelta(int64_t layer, const DeltaSpec& spec,
                          const DeltaTensors& tensors) override {
    cuda::DeltaBatch batch;
    batch.num_rows = plan_.num_tokens();
    batch.num_sequences = plan_.num_sequences();
    batch.row_sequence = plan_.row_sequence.data();
    batch.row_starts = plan_.row_starts.data();
    batch.row_position = plan_.row_position.data();
    batch.states = state_of_.data();
    batch.state = states_.State(layer, 0);
    batch.tail = states_.Tail(layer, 0);
    batch.state_stride = states_.bytes_between();
    return device::DeltaForwardOf(spec, tensors, batch);
  }

  at::Tensor Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionParams& params) override {
    Write(layer, k, v);
    return Attended(layer, q, params);
  }

  bool KeepsKeys() const override { return true; }

  at::Tensor ForwardQueries(int64_t kv_layer, const at::Tensor& q,
                            const AttentionParams& params) override {
    return Attended(kv_layer, q, params);
  }

  bool CachesLatents() const override { return options_.shared; }

  at::Tensor ForwardLatents(int64_t layer, const at::Tensor& q, const at::Tensor& latents,
                            const AttentionParams& params) override {
    Write(layer, latents.unsqueeze(1), {});
    return Attended(layer, q, params);
  }

 private:
  cuda::Element type() const {
    return options_.dtype == at::kFloat ? cuda::Element::kFloat32 : cuda::Element::kBFloat16;
  }

  void Write(int64_t layer, const at::Tensor& k, const at::Tensor& v) {
    cuda::WriteKv write;
    write.type = type();
    write.rows = k.size(0);
    write.num_kv_heads = static_cast<int>(layers_[layer].num_kv_heads);
    write.head_dim = static_cast<int>(layers_[layer].head_dim);
    write.v_head_dim = static_cast<int>(layers_[layer].v_head_dim);
    write.block_size = static_cast<int>(options_.block_size);
    write.k = k.const_data_ptr();
    write.k_row_stride = k.stride(0);
    write.k_head_stride = k.stride(1);
    write.keys = keys_[layer].mutable_data_ptr();
    if (v.defined()) {
      write.v = v.const_data_ptr();
      write.v_row_stride = v.stride(0);
      write.v_head_stride = v.stride(1);
      write.values = values_[layer].mutable_data_ptr();
    }
    write.slots = plan_.slots.data();
    EXPECT_EQ(cuda::Launch(write, nullptr), cudaSuccess);
  }

  at::Tensor Attended(int64_t layer, const at::Tensor& q, const AttentionParams& params) {
    const CacheSpec& spec = layers_[layer];
    at::Tensor out = at::empty({q.size(0), q.size(1) * spec.v_head_dim}, q.options());
    cuda::PagedAttention args;
    args.batch.num_rows = q.size(0);
    args.batch.num_sequences = plan_.num_sequences();
    args.batch.num_pieces = plan_.num_pieces();
    args.batch.tile_rows = static_cast<int>(plan_.tile_rows);
    args.batch.row_sequence = plan_.row_sequence.data();
    args.batch.row_position = plan_.row_position.data();
    args.batch.row_starts = plan_.row_starts.data();
    args.batch.page_starts = plan_.page_starts.data();
    args.batch.pages = plan_.pages.data();
    args.batch.piece_sequence = plan_.piece_sequence.data();
    args.batch.piece_tile = plan_.piece_tile.data();
    args.batch.piece_chunk = plan_.piece_chunk.data();
    args.batch.piece_is_real = is_real_.data();
    args.batch.merge_starts = plan_.merge_starts.data();
    const int32_t whole = int32_t{1} << 30;
    args.batch.chunk_length = &whole;
    args.type = type();
    args.num_heads = static_cast<int>(q.size(1));
    args.num_kv_heads = static_cast<int>(spec.num_kv_heads);
    args.head_dim = static_cast<int>(spec.head_dim);
    args.v_head_dim = static_cast<int>(spec.v_head_dim);
    args.shared = spec.shared;
    args.block_size = static_cast<int>(options_.block_size);
    args.q = q.const_data_ptr();
    args.q_row_stride = q.stride(0);
    args.q_head_stride = q.stride(1);
    args.keys = keys_[layer].mutable_data_ptr();
    args.values = spec.shared ? nullptr : values_[layer].mutable_data_ptr();
    args.out = out.mutable_data_ptr();
    args.scale = static_cast<float>(params.scale);
    if (spec.shared && params.window == 0 &&
        cuda::LatentsTake(args.type, args.head_dim, args.v_head_dim)) {
      EXPECT_EQ(cuda::LaunchLatents(args, nullptr), cudaSuccess);
      return out;
    }
    args.window = params.window;
    at::Tensor sinks;
    if (params.sinks.has_value()) {
      sinks = params.sinks->to(at::kFloat).contiguous();
      args.sinks = sinks.const_data_ptr<float>();
    }
    EXPECT_EQ(cuda::LaunchPlain(args, nullptr), cudaSuccess);
    return out;
  }

  const PagedKvCacheOptions options_;
  const RecurrentStates& states_;  // which lie on the CPU as on a GPU
  const int64_t num_heads_;
  std::vector<CacheSpec> layers_;
  std::vector<at::Tensor> keys_, values_;  // of each layer
  AttentionPlan plan_;
  std::vector<uint8_t> is_real_;
  std::vector<int32_t> state_of_;  // of each sequence
};

inline absl::StatusOr<std::unique_ptr<DeviceAttention>> MakeEmulated(const PagedKvCache& cache,
                                                                     int64_t num_heads) {
  return std::make_unique<EmulatedAttention>(cache, num_heads);
}

}  // namespace tandem::model

#endif  // TANDEM_TESTS_COMMON_MODEL_EMULATED_ATTENTION_H_
