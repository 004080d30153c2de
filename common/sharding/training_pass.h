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
//   - RunStage(stage, inputs, saves, graph, made): [num_tokens, hidden]. Fills `made`, the carried tensors
//     that the stage makes, in the order of PassStages::MadeBy();
//   - Detach(x, needs_gradient): the same values outside of their graph; x may be undefined;
//   - Add(carried, sum, gradient): adds a reader's gradient to those of the readers behind it; `carried` is
//     the tensor's index, and neither is undefined;
//   - Head(x): the head, the loss and the head's backward pass. Returns the gradient of x,
//     undefined if nothing depends on it;
//   - Backward(stage, boundary, output_gradients, gradients): fills in those of the stage's parameters and
//     returns those of its inputs; that of the stream is undefined for the embedding;
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

// What a stage reads, or its gradients.
template <typename Tensor>
struct StageInputs {
  Tensor x{};                   // the stream; undefined for the embedding
  std::vector<Tensor> reads{};  // carried tensors, in the order of PassStages::ReadBy()
};

// What a stage makes, or its gradients, of which any may be undefined.
template <typename Tensor>
struct StageOutputs {
  Tensor x{};                  // the stream
  std::vector<Tensor> made{};  // carried tensors, in the order of PassStages::MadeBy()
};

// What is kept of a stage from its forward to its backward pass.
template <typename Ops>
struct StageBoundary {
  StageInputs<typename Ops::Tensor> in{};
  StageOutputs<typename Ops::Tensor> out{};  // undefined, empty if the stage saves nothing
  typename Ops::Graph graph{};
};

// The carried tensors of a pass, from their makers to their last readers: held once, however many stages
// read them.
template <typename Ops>
class CarriedValues {
 public:
  using Tensor = typename Ops::Tensor;

  explicit CarriedValues(const PassStages& stages)
      : stages_(stages), values_(stages.carried().size()) {}

  // What the stage reads, each outside of its graph if the pass has one.
  std::vector<Tensor> ReadBy(Ops& ops, int stage, bool has_graph) {
    std::vector<Tensor> reads;
    for (const int i : stages_.ReadBy(stage)) {
      const model::CarriedTensor& carried = stages_.carried()[i];
      reads.push_back(has_graph ? ops.Detach(values_[i], stages_.HasBackward(carried.maker))
                                : values_[i]);
      if (carried.readers.back() == stage) values_[i] = Tensor();
    }
    return reads;
  }

  void Make(Ops& ops, int stage, const std::vector<Tensor>& made) {
    for (size_t i = 0; i < made.size(); ++i) {
      values_[stages_.MadeBy(stage)[i]] = ops.Detach(made[i], /*needs_gradient=*/false);
    }
  }

 private:
  const PassStages& stages_;
  std::vector<Tensor> values_;
};

// Their gradients: the sum over the readers, the last reader first, until the maker's backward pass.
template <typename Ops>
class CarriedGradients {
 public:
  using Tensor = typename Ops::Tensor;

  explicit CarriedGradients(const PassStages& stages)
      : stages_(stages), sums_(stages.carried().size()) {}

  void Add(Ops& ops, int reader, std::vector<Tensor> gradients) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!ops.IsDefined(gradients[i])) continue;
      const int carried = stages_.ReadBy(reader)[i];
      Tensor& sum = sums_[carried];
      sum = ops.IsDefined(sum) ? ops.Add(carried, sum, gradients[i]) : std::move(gradients[i]);
    }
  }

  std::vector<Tensor> Take(int maker) {
    std::vector<Tensor> sums;
    for (const int i : stages_.MadeBy(maker)) sums.push_back(std::exchange(sums_[i], Tensor()));
    return sums;
  }

 private:
  const PassStages& stages_;
  std::vector<Tensor> sums_;
};

// Forward of all stages but the head, without a graph; enters the head. The result is undefined if
// the rank has no tokens.
template <typename Ops>
absl::StatusOr<typename Ops::Tensor> ForwardPass(Ops& ops, const PassStages& stages) {
  using Tensor = typename Ops::Tensor;
  CarriedValues<Ops> carried(stages);
  Tensor x{};  // [num_tokens, hidden]
  for (int s = 0; s < stages.head(); ++s) {
    RETURN_IF_ERROR(ops.EnterForward(s));
    if (ops.empty()) continue;
    [[maybe_unused]] const auto scope = ops.TimeForward(s);
    typename Ops::Graph graph{};
    std::vector<Tensor> made;
    x = ops.RunStage(s, StageInputs<Tensor>{x, carried.ReadBy(ops, s, /*has_graph=*/false)},
                     Saves::kNothing, graph, made);
    carried.Make(ops, s, made);
  }
  RETURN_IF_ERROR(ops.EnterForward(stages.head()));
  return x;
}

// Forward of all stages but the head. Fills `boundaries`, one for each of them.
template <typename Ops>
absl::StatusOr<typename Ops::Tensor> TrainingForward(Ops& ops, const PassStages& stages,
                                                     std::vector<StageBoundary<Ops>>& boundaries) {
  using Tensor = typename Ops::Tensor;
  CarriedValues<Ops> carried(stages);
  Tensor x{};  // [num_tokens, hidden]
  for (int s = 0; s < stages.head(); ++s) {
    RETURN_IF_ERROR(ops.EnterForward(s));
    if (ops.empty()) continue;
    [[maybe_unused]] const auto scope = ops.TimeForward(s);
    StageBoundary<Ops>& boundary = boundaries[s];
    const Saves saves = stages.SavesOf(s);
    if (s > 0) boundary.in.x = ops.Detach(x, stages.HasBackward(s - 1));
    boundary.in.reads = carried.ReadBy(ops, s, /*has_graph=*/true);
    std::vector<Tensor> made;
    x = ops.RunStage(s, boundary.in, saves, boundary.graph, made);
    carried.Make(ops, s, made);
    if (saves != Saves::kNothing) boundary.out = {x, std::move(made)};
    if (!stages.HasBackward(s)) boundary.in = {};
    x = ops.Detach(x, /*needs_gradient=*/false);
  }
  return x;
}

// Backward of all stages but the head, from the gradient of the last one's output.
template <typename Ops>
absl::Status TrainingBackward(Ops& ops, const PassStages& stages,
                              std::vector<StageBoundary<Ops>>& boundaries,
                              typename Ops::Tensor gradient) {
  using Tensor = typename Ops::Tensor;
  CarriedGradients<Ops> carried(stages);
  for (int s = stages.head() - 1; stages.HasBackward(s); --s) {
    RETURN_IF_ERROR(ops.EnterBackward(s));
    std::vector<Tensor> gradients;
    if (ops.IsDefined(gradient)) {
      [[maybe_unused]] const auto scope = ops.TimeBackward(s);
      // Freed with this scope.
      StageBoundary<Ops> boundary = std::exchange(boundaries[s], StageBoundary<Ops>());
      if (stages.SavesOf(s) == Saves::kNothing) {
        boundary.out.x =
            ops.RunStage(s, boundary.in, Saves::kEverything, boundary.graph, boundary.out.made);
      }
      StageInputs<Tensor> of_inputs = ops.Backward(
          s, boundary, StageOutputs<Tensor>{std::move(gradient), carried.Take(s)}, gradients);
      gradient = std::move(of_inputs.x);
      carried.Add(ops, s, std::move(of_inputs.reads));
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
