// The comparisons of exact_numerics_test.cc through the kernels of a GPU, which run on a CPU
// (emulated_gpu/model.cc): packed with and without gradients, and through a paged cache in random
// steps. What tensor cores make of a product is not shown.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/model/attention_plan.h"
#include "common/model/cuda_delta_forward.h"
#include "common/model/device_row_ops.h"
#include "common/model/kernels/cuda/paged_attention.h"
#include "common/model/kernels/cuda/row_kernels.h"
#include "common/model/numerics.h"
#include "tests/common/model/exact_numerics.h"

namespace tandem::model {
namespace {

// Keys and values lie as they do on a GPU.
class EmulatedAttention : public DeviceAttention {
 public:
  EmulatedAttention(const PagedKvCache& cache, int64_t num_heads)
      : cache_(cache.options()), states_(cache.states()), num_heads_(num_heads) {
    for (int64_t layer = 0; layer < cache_.num_layers; ++layer) {
      keys_.push_back(
          at::full({cache_.num_blocks, cache_.num_kv_heads, cache_.block_size, cache_.head_dim},
                   NAN, cache_.dtype));
      values_.push_back(keys_.back().clone());
    }
  }

  int64_t address_epoch() const override { return 0; }

  void Plan(absl::Span<const PagedSequence> sequences, int64_t) override {
    plan_ = PlanAttention(sequences, {.block_size = cache_.block_size});
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
    cuda::WriteKv write;
    write.type = cache_.dtype == at::kFloat ? cuda::Element::kFloat32 : cuda::Element::kBFloat16;
    write.rows = q.size(0);
    write.num_kv_heads = static_cast<int>(cache_.num_kv_heads);
    write.head_dim = static_cast<int>(cache_.head_dim);
    write.block_size = static_cast<int>(cache_.block_size);
    write.k = k.const_data_ptr();
    write.k_row_stride = k.stride(0);
    write.k_head_stride = k.stride(1);
    write.v = v.const_data_ptr();
    write.v_row_stride = v.stride(0);
    write.v_head_stride = v.stride(1);
    write.slots = plan_.slots.data();
    write.keys = keys_[layer].mutable_data_ptr();
    write.values = values_[layer].mutable_data_ptr();
    EXPECT_EQ(cuda::Launch(write, nullptr), cudaSuccess);
    at::Tensor out = at::empty({q.size(0), num_heads_ * cache_.head_dim}, q.options());
    cuda::PagedAttention args;
    args.batch.num_rows = write.rows;
    args.batch.row_sequence = plan_.row_sequence.data();
    args.batch.row_position = plan_.row_position.data();
    args.batch.page_starts = plan_.page_starts.data();
    args.batch.pages = plan_.pages.data();
    args.type = write.type;
    args.num_heads = static_cast<int>(num_heads_);
    args.num_kv_heads = write.num_kv_heads;
    args.head_dim = write.head_dim;
    args.block_size = write.block_size;
    args.q = q.const_data_ptr();
    args.q_row_stride = q.stride(0);
    args.q_head_stride = q.stride(1);
    args.keys = write.keys;
    args.values = write.values;
    args.out = out.mutable_data_ptr();
    args.scale = static_cast<float>(params.scale);
    args.window = params.window;
    EXPECT_EQ(cuda::LaunchPlain(args, nullptr), cudaSuccess);
    return out;
  }

 private:
  const PagedKvCacheOptions cache_;
  const RecurrentStates& states_;  // which lie on the CPU as on a GPU
  const int64_t num_heads_;
  std::vector<at::Tensor> keys_, values_;  // of each layer
  AttentionPlan plan_;
  std::vector<int32_t> state_of_;  // of each sequence
};

absl::StatusOr<std::unique_ptr<DeviceAttention>> MakeEmulated(const PagedKvCache& cache,
                                                              int64_t num_heads) {
  return std::make_unique<EmulatedAttention>(cache, num_heads);
}

// Types in turns.
std::vector<ExactCase> EmulatedCases() {
  std::vector<ExactCase> cases = {{kWideShape, at::kFloat, 1}, {kWideShape, at::kBFloat16, 1}};
  for (const std::vector<ExactShape>* shapes :
       {&ExactShapes(), &WindowedShapes(), &ExpertShapes(), &LinearShapes()}) {
    for (const ExactShape& shape : *shapes) {
      cases.push_back({shape, cases.size() % 2 == 0 ? at::kFloat : at::kBFloat16, 1});
    }
  }
  for (ExactCase& exact_case : cases) {
    exact_case.make_attention = &MakeEmulated;
    exact_case.longest = 40;
  }
  return cases;
}

class EmulatedExactNumericsTest : public ::testing::TestWithParam<ExactCase> {
 protected:
  void SetUp() override {
    SetNumerics(Numerics::kExact);
    // A block's threads share one thread of the CPU.
    at::set_num_threads(1);
    ASSERT_TRUE(device::ProductsTake({at::zeros({1, 1})}));
  }
  void TearDown() override { SetNumerics(Numerics::kFast); }
};

TEST_P(EmulatedExactNumericsTest, EveryWayThroughTheModelHasTheSameBits) {
  EXPECT_GE(CompareWays(GetParam(), 0), 4 * 3);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedExactNumericsTest, ::testing::ValuesIn(EmulatedCases()),
                         ExactCaseName);

}  // namespace
}  // namespace tandem::model
