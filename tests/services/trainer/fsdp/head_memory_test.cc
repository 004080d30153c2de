// The head of a large vocabulary never holds all logits.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "common/model/head.h"
#include "services/trainer/fsdp/tensor_memory.h"

namespace tandem::trainer {
namespace {

TEST(HeadMemory, OfAVocabularyOf150kIsBoundedForManyRows) {
  constexpr int64_t kVocab = 150000;
  constexpr int64_t kRows = 4096;
  constexpr int64_t kHidden = 8;
  TensorMemory::Install();
  const at::Tensor hidden = at::ones({kRows, kHidden}).requires_grad_();
  const at::Tensor weight = at::full({kVocab, kHidden}, 0.01).requires_grad_();
  const at::Tensor targets = at::zeros({kRows}, at::kLong);
  const at::Tensor temperatures = at::ones({kRows});
  const int64_t before = TensorMemory::current_bytes();
  TensorMemory::ResetPeak();

  const model::LogProbs out = model::ChunkedLogProbs(hidden, {weight}, targets, temperatures);
  const auto gradients =
      torch::autograd::grad({out.logprobs.sum()}, {hidden, weight}, {}, false, false, false);

  EXPECT_NEAR(out.entropy[kRows - 1].item<double>(), std::log(kVocab), 1e-3);
  constexpr int64_t kLogits = int64_t{64} << 20;
  // Besides the logits of a chunk: the two gradients, and a few numbers for each row.
  const int64_t results = (kVocab + kRows) * kHidden * 4;
  EXPECT_LT(TensorMemory::peak_bytes() - before, kLogits + results + kRows * 64);
  EXPECT_LT(TensorMemory::peak_bytes() - before, kRows * kVocab * 4 / 20);
}

}  // namespace
}  // namespace tandem::trainer
