// Linear attention by the CUDA kernels, which run on a CPU: results and gradients against plain ATen in
// float64; and a row has the same bits however its sequence is cut into steps, and whatever shares them.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/model/cpu_dispatch.h"
#include "common/model/cuda_tensor.h"
#include "common/model/delta_attention.h"
#include "common/model/delta_sizes.h"
#include "common/model/recurrent_states.h"
#include "tests/common/model/delta_cases.h"
#include "tests/support/cuda_emulation.h"
#include "tests/support/status_matchers.h"
// After it.
namespace c10::cuda {
struct EmulatedGuard {
  explicit EmulatedGuard(at::Device) {}
};
}  // namespace c10::cuda
#define CUDAGuard EmulatedGuard
#define CurrentStream(device) nullptr
#undef C10_CUDA_CHECK
#define C10_CUDA_CHECK(call) TORCH_CHECK((call) == cudaSuccess, #call)
#include "common/model/cuda_delta_attention.cc"
#include "common/model/cuda_delta_backward.cc"
#include "common/model/cuda_delta_forward.cc"
#include "common/model/kernels/cuda/delta_backward.cu"
#include "common/model/kernels/cuda/delta_convolution_backward.cu"
#include "common/model/kernels/cuda/delta_forward.cu"
#include "common/model/kernels/cuda/delta_inputs.cu"

namespace tandem::model {
namespace {

using Case = DeltaCase;

std::vector<Case> Cases() {
  std::vector<Case> cases = DeltaCases();
  // Beyond a warp's elements of a head and a block's columns; more key heads than one turn has.
  cases.push_back({"LargeHeads", DeltaSpecOf(1, 1, 136, 150, 2), {67}});
  cases.push_back({"MiddleHeads", DeltaSpecOf(1, 2, 128, 34, 4), {3, 66}});
  cases.push_back({"ThreeChunks", DeltaSpecOf(2, 2, 40, 9, 4), {130, 64}});
  return cases;
}

class CudaDeltaAttention : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { at::manual_seed(7); }

  static at::Tensor Reference(const DeltaTensorList& in) {
    return eager::DeltaAttention(GetParam().spec, TensorsOf(in), EndsOf(GetParam().lengths));
  }
  static at::Tensor Kernels(const DeltaTensorList& in) {
    return device::DeltaAttention(GetParam().spec, TensorsOf(in), Places());
  }
  static device::DeltaPlaces Places() {
    return device::DeltaPlacesOf(EndsOf(GetParam().lengths), at::kCPU);
  }
};

TEST_P(CudaDeltaAttention, AgreesWithAtenAndItsGradients) {
  const DeltaTensorList inputs = DeltaInputsOf(GetParam(), at::kDouble);
  ExpectDeltaClose(DeltaResults(inputs, at::kFloat, Kernels),
                   DeltaResults(inputs, at::kDouble, Reference), 1e-5);
}

TEST_P(CudaDeltaAttention, AgreesInBfloat16) {
  const DeltaTensorList inputs = DeltaInputsOf(GetParam(), at::kBFloat16);
  ExpectDeltaClose(DeltaResults(inputs, at::kBFloat16, Kernels),
                   DeltaResults(inputs, at::kDouble, Reference), 1e-2);
}

TEST_P(CudaDeltaAttention, HasTheSameBitsWithGradientsAndInTurns) {
  const DeltaTensorList inputs = DeltaInputsOf(GetParam(), at::kFloat);
  const DeltaTensorList together = DeltaResults(inputs, at::kFloat, Kernels);
  const DeltaTensorList in_turns = DeltaResults(inputs, at::kFloat, [](const DeltaTensorList& in) {
    device::DeltaPlaces places = Places();
    places.boundary_bytes = 1;  // one key head at a time
    return device::DeltaAttention(GetParam().spec, TensorsOf(in), places);
  });
  for (size_t i = 0; i < together.size(); ++i) {
    // Products of fewer matrices may be others of the CPU's library.
    ExpectDeltaClose({in_turns[i]}, {together[i].to(at::kDouble)}, 1e-6);
  }
  EXPECT_TRUE(at::equal(in_turns[0], together[0]));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(Kernels(inputs), together[0]));
}

// Strong decays, after which little is left of a state, beside none.
TEST_P(CudaDeltaAttention, AgreesWhereStatesAreForgotten) {
  DeltaTensorList inputs = DeltaInputsOf(GetParam(), at::kDouble);
  inputs[2] = inputs[2] * 2 + 2;
  inputs[0].slice(0, 0, at::indexing::None, 3) *= 8;
  ExpectDeltaClose(DeltaResults(inputs, at::kFloat, Kernels),
                   DeltaResults(inputs, at::kDouble, Reference), 2e-5);
}

// Rows of steps, as a rollout's plan lays them.
struct Step {
  cuda::DeltaBatch batch;
  std::vector<int32_t> row_sequence, row_starts = {0}, row_position, states;

  void Add(int32_t position, int32_t tokens, int32_t state) {
    const auto sequence = static_cast<int32_t>(states.size());
    for (int32_t i = 0; i < tokens; ++i) {
      row_sequence.push_back(sequence);
      row_position.push_back(position + i);
    }
    row_starts.push_back(static_cast<int32_t>(row_sequence.size()));
    states.push_back(state);
  }
  const cuda::DeltaBatch& Batch(const RecurrentStates& memory) {
    batch.num_rows = static_cast<int64_t>(row_sequence.size());
    batch.num_sequences = static_cast<int64_t>(states.size());
    batch.row_sequence = row_sequence.data();
    batch.row_starts = row_starts.data();
    batch.row_position = row_position.data();
    batch.states = states.data();
    batch.state = memory.State(1, 0);
    batch.tail = memory.Tail(1, 0);
    batch.state_stride = memory.bytes_between();
    return batch;
  }
};

TEST_P(CudaDeltaAttention, StepsGiveTheBitsOfWholeSequencesAndTheCpusStates) {
  std::mt19937 random(5);
  const Case& c = GetParam();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const DeltaTensorList inputs = DeltaInputsOf(c, type);
    const at::Tensor expected = Kernels(inputs);
    const auto count = static_cast<int32_t>(c.lengths.size());
    // The second layer of two; one state more, from which a sequence forks.
    ASSERT_OK_AND_ASSIGN(
        RecurrentStates states,
        RecurrentStates::Create({.layers = {c.spec, c.spec}, .count = count + 1, .dtype = type}));
    std::vector<int64_t> first_rows = {0};
    for (const int64_t length : c.lengths) first_rows.push_back(first_rows.back() + length);
    std::vector<int64_t> done(count, 0);
    for (;;) {
      Step step;
      std::vector<std::pair<int32_t, int64_t>> members;
      std::vector<at::Tensor> rows;
      for (int32_t i = 0; i < count; ++i) {
        const int64_t left = c.lengths[i] - done[i];
        if (left == 0 || random() % 3 == 0) continue;
        const int64_t tokens = random() % 2 == 0 ? 1 : 1 + static_cast<int64_t>(random() % left);
        // It leaves its state in another place from time to time.
        if (done[i] > 0 && random() % 4 == 0) {
          states.Copy(i, count);
          states.Copy(count, i);
        }
        step.Add(static_cast<int32_t>(done[i]), static_cast<int32_t>(tokens), i);
        rows.push_back(inputs[0].narrow(0, first_rows[i] + done[i], tokens));
        members.emplace_back(i, tokens);
      }
      if (members.empty()) {
        if (std::equal(done.begin(), done.end(), c.lengths.begin())) break;
        continue;
      }
      // Rows that pad the batch touch no state.
      step.Add(0, 1, -1);
      step.Add(0, 1, -1);
      rows.push_back(at::randn({2, c.spec.projected_size()}).to(type));
      DeltaTensors tensors = TensorsOf(inputs);
      tensors.projected = at::cat(rows);
      const at::Tensor found = device::DeltaForwardOf(c.spec, tensors, step.Batch(states));
      int64_t row = 0;
      for (const auto& [i, tokens] : members) {
        EXPECT_TRUE(at::equal(found.narrow(0, row, tokens),
                              expected.narrow(0, first_rows[i] + done[i], tokens)))
            << "sequence " << i << ", " << tokens << " tokens from " << done[i];
        row += tokens;
        done[i] += tokens;
      }
    }
    // What is left is what the CPU's kernels leave.
    const DeltaTensors tensors = TensorsOf(inputs);
    const kernels::DeltaShape shape = DeltaShapeOf(c.spec, tensors);
    at::Tensor unused = at::empty_like(expected);
    for (int32_t i = 0; i < count; ++i) {
      if (c.lengths[i] == 0) continue;
      at::Tensor state = at::zeros({shape.state_floats()});
      at::Tensor tail = at::zeros({shape.tail_elements()}, type);
      kernels::DeltaForward(shape,
                            {{.first_row = first_rows[i],
                              .num_rows = c.lengths[i],
                              .begins = true,
                              .state = state.mutable_data_ptr<float>(),
                              .tail = tail.mutable_data_ptr()}},
                            unused.mutable_data_ptr(), 1,
                            [](int64_t tasks, const kernels::RangeBody& body) { body(0, tasks); });
      const std::vector<int64_t> sizes = {shape.num_value_heads, shape.key_dim,
                                          shape.padded_value_dim()};
      const auto heads = [&](const at::Tensor& x) {
        return x.view(sizes).narrow(2, 0, shape.value_dim);
      };
      const at::Tensor left = at::from_blob(states.State(1, i), {shape.state_floats()}, at::kFloat);
      EXPECT_TRUE(at::allclose(heads(left), heads(state), 1e-4, 1e-5)) << "sequence " << i;
      EXPECT_TRUE(at::equal(at::from_blob(states.Tail(1, i), {shape.tail_elements()}, type), tail))
          << "sequence " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaDeltaAttention, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(CudaDeltaAttentionLimits, LargerHeadsAreRefused) {
  cuda::DeltaConvolve args;
  args.shape = {.num_key_heads = 1,
                .num_value_heads = 1,
                .key_dim = cuda::kMaxDeltaDim + 1,
                .value_dim = 8,
                .kernel_size = 4};
  EXPECT_EQ(cuda::Launch(args, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace tandem::model
