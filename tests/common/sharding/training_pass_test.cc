#include "common/sharding/training_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/sharding/tiny_model.h"
#include "tests/support/status_matchers.h"

namespace tandem::sharding {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Tensors are names, which live as long as one of their copies; `alive` has those alive.
class NamingOps {
 public:
  using Tensor = std::shared_ptr<const std::string>;
  struct Graph {};
  using Boundary = StageBoundary<NamingOps>;

  explicit NamingOps(bool is_empty = false) : is_empty_(is_empty) {}

  bool empty() const { return is_empty_; }
  static bool IsDefined(const Tensor& tensor) { return tensor != nullptr; }
  absl::Status EnterForward(int stage) { return Note(absl::StrCat("enter ", stage)); }
  absl::Status EnterBackward(int stage) { return Note(absl::StrCat("back to ", stage)); }
  static int TimeForward(int) { return 0; }
  static int TimeBackward(int) { return 0; }
  Tensor RunStage(int stage, const Tensor& input, Saves saves, Graph&) {
    EXPECT_EQ(input == nullptr, stage == 0);
    Note(absl::StrCat("run ", stage, saves == Saves::kNothing ? "" : " with a graph"))
        .IgnoreError();
    return New(absl::StrCat("x", stage));
  }
  static Tensor Detach(const Tensor& x, bool) { return x; }
  absl::StatusOr<Tensor> Head(Tensor x) {
    alive_at_head = alive;
    return x == nullptr ? x : New("dx");
  }
  Tensor Backward(int stage, Boundary& boundary, const Tensor&, std::vector<Tensor>&) {
    EXPECT_EQ(*boundary.output, absl::StrCat("x", stage));
    EXPECT_EQ(boundary.input == nullptr, stage == 0);
    return stage == 0 ? nullptr : New("dx");
  }
  absl::Status AddGradients(int stage, const std::vector<Tensor>&) {
    return Note(absl::StrCat("add ", stage));
  }
  absl::Status FinishGradients() { return Note("finish"); }

  std::vector<std::string> alive, alive_at_head, events;

 private:
  absl::Status Note(std::string event) {
    events.push_back(std::move(event));
    return absl::OkStatus();
  }
  Tensor New(const std::string& name) {
    alive.push_back(name);
    return Tensor(new std::string(name), [this](const std::string* gone) {
      alive.erase(std::find(alive.begin(), alive.end(), *gone));
      delete gone;
    });
  }

  const bool is_empty_;
};

TEST(TrainingPass, RunsForwardThroughAllStagesAndBackAndFreesThem) {
  const model::ParameterTable table(TwoLayers(/*tied=*/false));
  const PassStages stages(table, Saves::kEverything, 1);
  NamingOps ops;
  ASSERT_OK(TrainingPass(ops, stages));
  EXPECT_THAT(ops.events,
              ElementsAre("enter 0", "run 0 with a graph", "enter 1", "run 1 with a graph",
                          "enter 2", "run 2 with a graph", "enter 3", "back to 2", "add 2",
                          "back to 1", "add 1", "back to 0", "add 0", "finish"));
  EXPECT_THAT(ops.alive_at_head, ElementsAre("x0", "x1", "x2"));
  EXPECT_THAT(ops.alive, IsEmpty());
}

TEST(TrainingPass, ComputesAStageAgainThatSavedNothing) {
  const model::ParameterTable table(TwoLayers(/*tied=*/false));
  const PassStages stages(table, Saves::kNothing, 2);
  NamingOps ops;
  ASSERT_OK(TrainingPass(ops, stages));
  EXPECT_THAT(ops.events,
              ElementsAre("enter 0", "run 0 with a graph", "enter 1", "run 1", "enter 2",
                          "run 2 with a graph", "enter 3", "back to 2", "add 2", "back to 1",
                          "run 1 with a graph", "add 1", "back to 0", "add 0", "finish"));
}

TEST(TrainingPass, KeepsNothingOfStagesBeforeTheFirstTrainableParameter) {
  const model::ParameterTable table(
      TwoLayers(/*tied=*/false),
      {.frozen_parameters = {"model.embed_tokens.weight", "*layers.0*"}});
  const PassStages stages(table, Saves::kEverything, 1);
  NamingOps ops;
  ASSERT_OK(TrainingPass(ops, stages));
  EXPECT_THAT(ops.events,
              ElementsAre("enter 0", "run 0", "enter 1", "run 1", "enter 2", "run 2 with a graph",
                          "enter 3", "back to 2", "add 2", "finish"));
  EXPECT_THAT(ops.alive_at_head, ElementsAre("x1", "x2"));
}

TEST(TrainingPass, EntersEveryStageOfABatchWithoutTokens) {
  const model::ParameterTable table(TwoLayers(/*tied=*/false));
  const PassStages stages(table, Saves::kEverything, 1);
  NamingOps ops(/*is_empty=*/true);
  ASSERT_OK(TrainingPass(ops, stages));
  EXPECT_THAT(ops.events,
              ElementsAre("enter 0", "enter 1", "enter 2", "enter 3", "back to 2", "add 2",
                          "back to 1", "add 1", "back to 0", "add 0", "finish"));
}

TEST(ForwardPass, KeepsOneStagesOutput) {
  const model::ParameterTable table(TwoLayers(/*tied=*/false));
  const PassStages stages(table, Saves::kEverything, 1);
  NamingOps ops;
  ASSERT_OK_AND_ASSIGN(const NamingOps::Tensor x, ForwardPass(ops, stages));
  EXPECT_EQ(*x, "x2");
  EXPECT_THAT(ops.alive, ElementsAre("x2"));
  EXPECT_THAT(ops.events,
              ElementsAre("enter 0", "run 0", "enter 1", "run 1", "enter 2", "run 2", "enter 3"));
}

}  // namespace
}  // namespace tandem::sharding
