#include "services/trainer/optim/adamw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/fakes/local_process_group.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

// A model's shards without the model: the test says what the gradients are.
class FakeModel : public ShardedModel {
 public:
  explicit FakeModel(const std::vector<at::Tensor>& masters) : transformer_(SmallSpec()) {
    for (const at::Tensor& given : masters) {
      const at::Tensor master = given.clone();
      shards_.push_back(
          {master, master, at::zeros_like(master), master.numel(), master.numel(), 0});
    }
  }
  const model::Transformer& transformer() const override { return transformer_; }
  at::Device device() const override { return at::kCPU; }
  absl::Status Load(const io::ModelFolder&) override { return absl::OkStatus(); }
  absl::Status RandomInit(uint64_t) override { return absl::OkStatus(); }
  absl::StatusOr<model::LogProbs> Forward(const PackedBatch&) override { return model::LogProbs{}; }
  absl::StatusOr<model::LogProbs> ForwardWithSquares(const PackedBatch&) override {
    return model::LogProbs{};
  }
  absl::StatusOr<at::Tensor> QueueForwardBackward(const PackedBatch&,
                                                  const LossFunction&) override {
    return at::Tensor();
  }
  absl::StatusOr<at::Tensor> ForwardValues(const PackedBatch&) override { return at::Tensor(); }
  absl::StatusOr<at::Tensor> QueueForwardBackwardValues(const PackedBatch&,
                                                        const ValueLossFunction&) override {
    return at::Tensor();
  }
  std::vector<UnitShard>& shards() override { return shards_; }
  absl::Status ReduceGradients() override { return absl::OkStatus(); }
  void ZeroGradients() override {
    for (UnitShard& shard : shards_) shard.grad.zero_();
  }
  void MastersChanged() override { FAIL() << "the optimizer tells of each unit"; }
  void MasterChanged(int unit, int64_t begin, int64_t end) override {
    // Of each unit all of it, from 0 on.
    EXPECT_EQ(begin, begin == 0 ? 0 : told_);
    told_ = end;
    if (end == shards_[unit].master.numel()) changed.push_back(unit);
  }
  at::Tensor NewState(int64_t numel) override { return at::zeros({numel}); }
  MemoryBytes memory_bytes() const override { return {}; }
  int64_t peak_tensor_bytes() const override { return 0; }
  int peak_gathered_units() const override { return 0; }
  std::vector<std::pair<std::string, double>> TakePhaseSeconds() override { return {}; }

  std::vector<int> changed;

 private:
  model::Transformer transformer_;
  std::vector<UnitShard> shards_;
  int64_t told_ = 0;
};

// AdamW in float64, written from the paper's algorithm 2.
struct ReferenceAdamW {
  AdamWOptions options;
  std::vector<at::Tensor> parameters, first, second;
  int64_t steps = 0;

  explicit ReferenceAdamW(AdamWOptions o, const std::vector<at::Tensor>& start) : options(o) {
    for (const at::Tensor& p : start) {
      parameters.push_back(p.to(at::kDouble));
      first.push_back(at::zeros_like(parameters.back()));
      second.push_back(at::zeros_like(parameters.back()));
    }
  }

  double Step(const std::vector<at::Tensor>& gradients, double lr) {
    double squares = 0;
    for (const at::Tensor& g : gradients)
      squares += g.to(at::kDouble).square().sum().item<double>();
    const double norm = std::sqrt(squares);
    const double factor =
        options.grad_clip > 0 ? std::min(1.0, options.grad_clip / (norm + 1e-6)) : 1.0;
    ++steps;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor g = gradients[i].to(at::kDouble) * factor;
      first[i] = options.beta1 * first[i] + (1 - options.beta1) * g;
      second[i] = options.beta2 * second[i] + (1 - options.beta2) * g * g;
      const at::Tensor m = first[i] / (1 - std::pow(options.beta1, steps));
      const at::Tensor v = second[i] / (1 - std::pow(options.beta2, steps));
      parameters[i] = parameters[i] - lr * (m / (v.sqrt() + options.eps)) -
                      lr * options.weight_decay * parameters[i];
    }
    return norm;
  }
};

std::vector<at::Tensor> Gradients(int step, double scale) {
  const auto wave = [&](int64_t n, double phase) {
    return ((at::arange(n, at::kDouble) * (0.7 + 0.1 * step) + phase).sin() * scale).to(at::kFloat);
  };
  return {wave(1000, 0.3 * step), wave(37, 1.0), wave(20000, -0.2 * step)};
}

void CompareWithReference(AdamWOptions options, double gradient_scale) {
  const std::vector<at::Tensor> start = Gradients(9, 0.5);
  FakeModel model(start);
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  const comm::DeviceMesh mesh(*group);
  AdamW optimizer(options, model, mesh);
  ReferenceAdamW reference(options, start);
  for (int step = 0; step < 10; ++step) {
    const std::vector<at::Tensor> gradients = Gradients(step, gradient_scale);
    for (size_t i = 0; i < gradients.size(); ++i) model.shards()[i].grad.copy_(gradients[i]);
    const double lr = 1e-2 / (1 + step);

    ASSERT_OK_AND_ASSIGN(const AdamW::StepResult result, optimizer.Step(lr));
    const double norm = reference.Step(gradients, lr);

    EXPECT_NEAR(result.grad_norm, norm, 1e-6 * norm);
    EXPECT_FALSE(result.skipped);
    for (size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_LT(
          RelativeDifference(model.shards()[i].master.to(at::kDouble), reference.parameters[i]),
          2e-6)
          << "step " << step << ", shard " << i;
      EXPECT_EQ(model.shards()[i].grad.abs().max().item<float>(), 0.0f);
    }
  }
  EXPECT_EQ(model.changed.size(), 30u);
  EXPECT_EQ(std::vector<int>(model.changed.begin(), model.changed.begin() + 4),
            (std::vector<int>{0, 1, 2, 0}));
  EXPECT_EQ(optimizer.num_steps(), 10);
}

TEST(AdamW, FollowsTheFormulaWithoutClipping) {
  CompareWithReference({.weight_decay = 0.1, .grad_clip = 0}, 0.05);
}

TEST(AdamW, FollowsTheFormulaWhereTheNormIsClipped) {
  CompareWithReference({.beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.01, .grad_clip = 1}, 3.0);
}

TEST(AdamW, LeavesSmallGradientsUnclipped) { CompareWithReference({.grad_clip = 1}, 1e-4); }

TEST(AdamW, ClipsByTheNormOverAllRanks) {
  testing::LocalWorld world(2);
  std::vector<double> norms(2);
  std::vector<float> moments(2);
  world.Run([&](comm::ProcessGroup& group) {
    FakeModel model({at::zeros({4})});
    const comm::DeviceMesh mesh(group);
    AdamW optimizer({.beta1 = 0.0, .grad_clip = 1}, model, mesh);
    model.shards()[0].grad.fill_(group.rank() == 0 ? 1.5 : 2.0);

    ASSERT_OK_AND_ASSIGN(const AdamW::StepResult result, optimizer.Step(1e-3));

    norms[group.rank()] = result.grad_norm;
    moments[group.rank()] = optimizer.first_moments()[0][0].item<float>();
  });
  EXPECT_DOUBLE_EQ(norms[0], 5.0);
  EXPECT_DOUBLE_EQ(norms[1], 5.0);
  EXPECT_NEAR(moments[0], 1.5 / 5.0, 1e-6);
  EXPECT_NEAR(moments[1], 2.0 / 5.0, 1e-6);
}

TEST(AdamW, SkipsTheStepOnEveryRankWhereOneHasANonFiniteGradient) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    testing::LocalWorld world(3);
    world.Run([&](comm::ProcessGroup& group) {
      FakeModel model({at::full({5}, 0.25)});
      const comm::DeviceMesh mesh(group);
      AdamW optimizer({}, model, mesh);
      model.shards()[0].grad.fill_(0.1);
      if (group.rank() == 1) model.shards()[0].grad[3] = bad;

      ASSERT_OK_AND_ASSIGN(const AdamW::StepResult result, optimizer.Step(1e-3));

      EXPECT_TRUE(result.skipped);
      EXPECT_EQ(result.cause, "non-finite gradient in embed (model.embed_tokens.weight) on rank 1");
      EXPECT_EQ(optimizer.num_steps(), 0);
      EXPECT_TRUE(model.changed.empty());
      EXPECT_TRUE(model.shards()[0].master.equal(at::full({5}, 0.25)));
      EXPECT_EQ(model.shards()[0].grad.abs().max().item<float>(), 0.0f);
    });
  }
}

}  // namespace
}  // namespace tandem::trainer
