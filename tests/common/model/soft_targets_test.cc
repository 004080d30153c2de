// The head's cross-entropy with several weighted targets for each row, against PyTorch's autograd in
// float64.
#include "common/model/soft_targets.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "common/model/tensor_parallel.h"
#include "tests/fakes/local_process_group.h"

namespace tandem::model {
namespace {

constexpr int64_t kVocab = 61;
constexpr int64_t kHidden = 12;
constexpr int64_t kTop = 5;

double Difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

std::vector<at::Tensor> Gradients(const at::Tensor& sum, const std::vector<at::Tensor>& of) {
  return torch::autograd::grad({sum}, of);
}

// A head and rows of random values; the first row states one id twice, and the last has weights 0.
struct Case {
  Case(int64_t rows, at::ScalarType type) {
    at::manual_seed(3);
    const auto options = at::TensorOptions(type);
    hidden = at::randn({rows, kHidden}, options).requires_grad_();
    head.weight = at::randn({kVocab, kHidden}, options).requires_grad_();
    head.bias = at::randn({kVocab}, options).requires_grad_();
    targets.ids = at::randint(kVocab, {rows, kTop}, at::kLong);
    targets.ids.index_put_({0, 1}, targets.ids.index({0, 0}));
    targets.weights = at::rand({rows, kTop}, options);
    targets.weights.select(0, rows - 1).zero_();
    temperatures = at::rand({rows}, options) + 0.5;
    factors = at::randn({rows}, options);
  }

  // The same by log_softmax() over all logits.
  at::Tensor Plain() const {
    at::Tensor logits = (hidden.matmul(head.weight.t()) + head.bias) * head.scale;
    if (head.softcap > 0) logits = head.softcap * (logits / head.softcap).tanh();
    const at::Tensor log_q = (logits / temperatures.unsqueeze(1)).log_softmax(1);
    return (log_q.gather(1, targets.ids) * targets.weights).sum(1);
  }
  std::vector<at::Tensor> leaves() const { return {hidden, head.weight, head.bias}; }

  at::Tensor hidden, temperatures, factors;
  LmHead head;
  SoftTargets targets;
};

void ExpectSame(const Case& c, double tolerance) {
  const at::Tensor actual = ChunkedSoftLogProbs(c.hidden, c.head, c.targets, c.temperatures);
  const at::Tensor expected = c.Plain();
  EXPECT_LT(Difference(actual, expected), tolerance);
  const auto gradients = Gradients((actual * c.factors).sum(), c.leaves());
  const auto reference = Gradients((expected * c.factors).sum(), c.leaves());
  for (size_t i = 0; i < reference.size(); ++i) {
    EXPECT_LT(Difference(gradients[i], reference[i]), tolerance) << i;
  }
}

TEST(SoftTargets, AndTheirGradientsAreThoseOfPyTorch) {
  Case c(70, at::kDouble);
  ExpectSame(c, 1e-11);
  c.head.scale = 0.5;
  c.head.softcap = 3.0;
  ExpectSame(c, 1e-11);
}

TEST(SoftTargets, OfManyChunksAreThoseOfOne) { ExpectSame(Case(2500, at::kDouble), 1e-10); }

TEST(SoftTargets, InFloat32AreCloseToThoseOfPyTorch) { ExpectSame(Case(70, at::kFloat), 2e-3); }

TEST(SoftTargets, OneOfWeightOneIsTheLogProbOfTheTarget) {
  Case c(70, at::kDouble);
  c.targets.ids = c.targets.ids.narrow(1, 0, 1).contiguous();
  c.targets.weights = at::ones({70, 1}, at::kDouble);
  const at::Tensor soft = ChunkedSoftLogProbs(c.hidden, c.head, c.targets, c.temperatures);
  const at::Tensor hard =
      ChunkedLogProbs(c.hidden, c.head, c.targets.ids.squeeze(1), c.temperatures).logprobs;
  EXPECT_LT(Difference(soft, hard), 1e-12);
}

TEST(SoftTargets, OverASplitVocabularyAreThoseOfTheWhole) {
  const Case whole(70, at::kDouble);
  const at::Tensor expected =
      ChunkedSoftLogProbs(whole.hidden, whole.head, whole.targets, whole.temperatures);
  const auto reference = Gradients((expected * whole.factors).sum(), whole.leaves());
  constexpr int kRanks = 3;
  std::vector<at::Tensor> hidden_gradients(kRanks);
  testing::LocalWorld world(kRanks);
  world.Run([&](comm::ProcessGroup& group) {
    const int rank = group.rank();
    const Range own = PartOf(kVocab, {rank, kRanks});
    LmHead head = whole.head;
    head.weight = whole.head.weight.detach().narrow(0, own.begin, own.size()).clone();
    head.bias = whole.head.bias.detach().narrow(0, own.begin, own.size()).clone();
    const at::Tensor hidden = whole.hidden.detach().clone().requires_grad_();
    head.weight.requires_grad_();
    head.bias.requires_grad_();
    const at::Tensor actual =
        ChunkedSoftLogProbs(hidden, head, whole.targets, whole.temperatures, {&group, own.begin});
    EXPECT_LT(Difference(actual, expected), 1e-11);
    const auto gradients =
        Gradients((actual * whole.factors).sum(), {hidden, head.weight, head.bias});
    hidden_gradients[rank] = gradients[0];
    EXPECT_LT(Difference(gradients[1], reference[1].narrow(0, own.begin, own.size())), 1e-11);
    EXPECT_LT(Difference(gradients[2], reference[2].narrow(0, own.begin, own.size())), 1e-11);
  });
  EXPECT_LT(
      Difference(hidden_gradients[0] + hidden_gradients[1] + hidden_gradients[2], reference[0]),
      1e-11);
}

}  // namespace
}  // namespace tandem::model
