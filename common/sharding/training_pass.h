// The pass of one micro-batch over a sharded model, written once over the operations `Ops`:
//   - ShardedTransformer computes it;
//   - plan::ShardedMemory takes sizes in place of tensors, for the memory plan. Stages keep their
//     inputs, outputs and graphs as long there as here.
//
// Each stage has a graph of its own, so that the backward pass is a plain loop over the stages, the
// same on every rank, and no collective depends on the order in which autograd visits a graph.
//
// Ops declares
//   - Tensor; Graph: what a stage keeps besides its input and output;
//   - empty(): the rank has no tokens. It enters all stages all the same: its peers' collectives
//     wait for it;
//   - EnterForward(stage), EnterBackward(stage): gather units;
//   - TimeForward(stage), TimeBackward(stage): objects that live while a stage computes;
//   - RunStage(stage, input, saves, graph): [num_tokens, hidden], or more rows, what later stages read
//     beside the tokens;
//   - Detach(x, needs_gradient): the same values outside of their graph;
//   - Head(x): the head, the loss and the head's backward pass. Returns the gradient of x,
//     undefined if nothing depends on it;
//   - Backward(stage, boundary, gradient, gradients): fills in those of the stage's parameters and
//     returns that of its input, undefined for the embedding;
//   - AddGradients(stage, gradients), FinishGradients().
#ifndef TANDEM_COMMON_SHARDING_TRAINING_PASS_H_
#define TANDEM_COMMON_SHARDING_TRAINING_PASS_H_

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/sharding/pass_stages.h"
#include "common/status/status_macros.h"

namespace tandem::sharding {

// What is kept of a stage from its forward to its backward pass.
template <typename Ops>
struct StageBoundary {
  typename Ops::Tensor input{};   // undefined for the embedding
  typename Ops::Tensor output{};  // undefined if the stage saves nothing
  typename Ops::Graph graph{};
};

// Forward of all stages but the head, without a graph; enters the head. The result is undefined if
// the rank has no tokens.
template <typename Ops>
absl::StatusOr<typename Ops::Tensor> ForwardPass(Ops& ops, const PassStages& stages) {
  typename Ops::Tensor x{};  // [num_tokens, hidden]
  for (int s = 0; s < stages.head(); ++s) {
    RETURN_IF_ERROR(ops.EnterForward(s));
    if (ops.empty()) continue;
    [[maybe_unused]] const auto scope = ops.TimeForward(s);
    typename Ops::Graph graph{};
    x = ops.RunStage(s, x, Saves::kNothing, graph);
  }
  RETURN_IF_ERROR(ops.EnterForward(stages.head()));
  return x;
}

// Forward of all stages but the head. Fills `boundaries`, one for each of them.
template <typename Ops>
absl::StatusOr<typename Ops::Tensor> TrainingForward(Ops& ops, const PassStages& stages,
                                                     std::vector<StageBoundary<Ops>>& boundaries) {
  typename Ops::Tensor x{};  // [num_tokens, hidden]
  for (int s = 0; s < stages.head(); ++s) {
    RETURN_IF_ERROR(ops.EnterForward(s));
    if (ops.empty()) continue;
    [[maybe_unused]] const auto scope = ops.TimeForward(s);
    StageBoundary<Ops>& boundary = boundaries[s];
    const Saves saves = stages.SavesOf(s);
    if (s > 0) boundary.input = ops.Detach(x, stages.HasBackward(s - 1));
    x = ops.RunStage(s, boundary.input, saves, boundary.graph);
    if (saves != Saves::kNothing) boundary.output = x;
    if (!stages.HasBackward(s)) boundary.input = typename Ops::Tensor();
    x = ops.Detach(x, /*needs_gradient=*/false);
  }
  return x;
}

// Backward of all stages but the head, from the gradient of the last one's output.
template <typename Ops>
absl::Status TrainingBackward(Ops& ops, const PassStages& stages,
                              std::vector<StageBoundary<Ops>>& boundaries,
                              typename Ops::Tensor gradient) {
  for (int s = stages.head() - 1; stages.HasBackward(s); --s) {
    RETURN_IF_ERROR(ops.EnterBackward(s));
    std::vector<typename Ops::Tensor> gradients;
    if (ops.IsDefined(gradient)) {
      [[maybe_unused]] const auto scope = ops.TimeBackward(s);
      // Freed with this scope.
      StageBoundary<Ops> boundary = std::exchange(boundaries[s], StageBoundary<Ops>());
      if (stages.SavesOf(s) == Saves::kNothing) {
        boundary.output = ops.RunStage(s, boundary.input, Saves::kEverything, boundary.graph);
      }
      gradient = ops.Backward(s, boundary, gradient, gradients);
    }
    RETURN_IF_ERROR(ops.AddGradients(s, gradients));
  }
  return absl::OkStatus();
}

// Adds the gradients of a micro-batch to the shards.
template <typename Ops>
absl::Status TrainingPass(Ops& ops, const PassStages& stages) {
  std::vector<StageBoundary<Ops>> boundaries(stages.head());
  ASSIGN_OR_RETURN(typename Ops::Tensor x, TrainingForward(ops, stages, boundaries));
  RETURN_IF_ERROR(ops.EnterForward(stages.head()));
  ASSIGN_OR_RETURN(typename Ops::Tensor gradient, ops.Head(std::move(x)));
  RETURN_IF_ERROR(TrainingBackward(ops, stages, boundaries, std::move(gradient)));
  return ops.FinishGradients();
}

}  // namespace tandem::sharding

#endif  // TANDEM_COMMON_SHARDING_TRAINING_PASS_H_
