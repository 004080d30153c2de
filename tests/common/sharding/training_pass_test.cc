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

  // stages: of a model that carries tensors; it then notes what is made of their gradients.
  explicit NamingOps(bool is_empty = false, const PassStages* stages = nullptr)
      : is_empty_(is_empty), stages_(stages) {}

  bool empty() const { return is_empty_; }
  static bool IsDefined(const Tensor& tensor) { return tensor != nullptr; }
  absl::Status EnterForward(int stage) { return Note(absl::StrCat("enter ", stage)); }
  absl::Status EnterBackward(int stage) { return Note(absl::StrCat("back to ", stage)); }
  static int TimeForward(int) { return 0; }
  static int TimeBackward(int) { return 0; }
  Tensor RunStage(int stage, const StageInputs<Tensor>& inputs, Saves saves, Graph&,
                  std::vector<Tensor>& made) {
    EXPECT_EQ(inputs.x == nullptr, stage == 0);
    std::string event = absl::StrCat("run ", stage);
    for (const Tensor& read : inputs.reads) absl::StrAppend(&event, " reads ", *read);
    Note(absl::StrCat(event, saves == Saves::kNothing ? "" : " with a graph")).IgnoreError();
    if (stages_ != nullptr) {
      for (const int i : stages_->MadeBy(stage)) made.push_back(New(absl::StrCat("c", i)));
    }
    return New(absl::StrCat("x", stage));
  }
  static Tensor Detach(const Tensor& x, bool) { return x; }
  Tensor Add(int carried, const Tensor& sum, const Tensor& gradient) {
    EXPECT_EQ(sum->substr(0, 3), absl::StrCat("dc", carried));
    return New(absl::StrCat(*sum, "+", *gradient));
  }
  absl::StatusOr<Tensor> Head(Tensor x) {
    alive_at_head = alive;
    return x == nullptr ? x : New("dx");
  }
  StageInputs<Tensor> Backward(int stage, Boundary& boundary, const StageOutputs<Tensor>& gradients,
                               std::vector<Tensor>&) {
    EXPECT_EQ(*boundary.out.x, absl::StrCat("x", stage));
    EXPECT_EQ(boundary.in.x == nullptr, stage == 0);
    EXPECT_EQ(boundary.out.made.size(), gradients.made.size());
    std::string event = absl::StrCat("differentiate ", stage);
    for (const Tensor& of_made : gradients.made) absl::StrAppend(&event, " with ", *of_made);
    if (stages_ != nullptr) Note(event).IgnoreError();
    StageInputs<Tensor> of_inputs{stage == 0 ? nullptr : New("dx"), {}};
    for (const Tensor& read : boundary.in.reads) {
      of_inputs.reads.push_back(New(absl::StrCat("d", *read, " of ", stage)));
    }
    return of_inputs;
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
  const PassStages* const stages_;
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

// Four layers, of which the last two read the keys and values of the second one.
model::ModelSpec SharedKeys() {
  model::ModelSpec spec = TwoLayers(/*tied=*/false);
  spec.layers.assign(4, model::LayerSpec(spec.layers.front()));
  for (const int layer : {2, 3}) spec.layers[layer].attention.kv_layer = 1;
  return spec;
}

TEST(TrainingPass, HandsCarriedTensorsToTheirReadersAndTheSumOfTheirGradientsToTheMaker) {
  const model::ParameterTable table(SharedKeys());
  for (const Saves saves : {Saves::kEverything, Saves::kNothing}) {
    const PassStages stages(table, saves, 1);
    NamingOps ops(/*is_empty=*/false, &stages);
    ASSERT_OK(TrainingPass(ops, stages));
    std::vector<std::string> events;
    for (const std::string& event : ops.events) {
      if (event.starts_with("run") || event.starts_with("differentiate")) events.push_back(event);
    }
    if (saves == Saves::kEverything) {
      EXPECT_THAT(events, ElementsAre("run 0 with a graph", "run 1 with a graph",
                                      "run 2 with a graph", "run 3 reads c0 with a graph",
                                      "run 4 reads c0 with a graph", "differentiate 4",
                                      "differentiate 3", "differentiate 2 with dc0 of 4+dc0 of 3",
                                      "differentiate 1", "differentiate 0"));
    } else {
      EXPECT_THAT(events,
                  ElementsAre("run 0 with a graph", "run 1", "run 2", "run 3 reads c0",
                              "run 4 reads c0", "run 4 reads c0 with a graph", "differentiate 4",
                              "run 3 reads c0 with a graph", "differentiate 3",
                              "run 2 with a graph", "differentiate 2 with dc0 of 4+dc0 of 3",
                              "run 1 with a graph", "differentiate 1", "differentiate 0"));
    }
    // One, however many read it.
    EXPECT_EQ(std::count(ops.alive_at_head.begin(), ops.alive_at_head.end(), "c0"), 1);
    EXPECT_THAT(ops.alive, IsEmpty());
  }
}

TEST(ForwardPass, FreesACarriedTensorBehindItsLastReader) {
  model::ModelSpec spec = SharedKeys();
  spec.layers[3].attention.kv_layer = 0;
  spec.layers[2].attention.kv_layer = 0;
  const model::ParameterTable table(spec);
  const PassStages stages(table, Saves::kEverything, 1);
  NamingOps ops(/*is_empty=*/false, &stages);
  ASSERT_OK(ForwardPass(ops, stages).status());
  EXPECT_THAT(ops.events,
              ElementsAre("enter 0", "run 0", "enter 1", "run 1", "enter 2", "run 2", "enter 3",
                          "run 3 reads c0", "enter 4", "run 4 reads c0", "enter 5"));
  EXPECT_THAT(ops.alive, IsEmpty());
}

}  // namespace
}  // namespace tandem::sharding
