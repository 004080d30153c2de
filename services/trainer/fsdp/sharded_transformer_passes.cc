// ShardedTransformer: the forward and backward pass, stage by stage.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/model/soft_targets.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/guarded.h"
#include "services/trainer/fsdp/sequence_slice.h"
#include "services/trainer/fsdp/sharded_transformer.h"
namespace tandem::trainer {
namespace {

// Gradients of `outputs` with respect to those of `inputs` that require grad; undefined for the
// others and for those that the outputs do not depend on. Frees the graph.
std::vector<at::Tensor> GradientsOf(const std::vector<at::Tensor>& outputs,
                                    const std::vector<at::Tensor>& output_gradients,
                                    const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> wanted;
  for (const at::Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) wanted.push_back(input);
  }
  std::vector<at::Tensor> gradients(inputs.size());
  if (wanted.empty()) return gradients;
  const std::vector<at::Tensor> found =
      torch::autograd::grad(outputs, wanted, output_gradients, /*retain_graph=*/false,
                            /*create_graph=*/false, /*allow_unused=*/true);
  size_t next = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined() && inputs[i].requires_grad()) gradients[i] = found[next++];
  }
  return gradients;
}

// The oldest half is done long since, so measuring it does not wait.
constexpr size_t kMostEncodings = 4096;

std::string StageName(int64_t stage) {
  return stage == 0 ? "embed" : absl::StrCat("layers.", stage - 1);
}

int64_t NumExpertLayers(const model::ModelSpec& spec) {
  return std::count_if(spec.layers.begin(), spec.layers.end(),
                       [](const model::LayerSpec& layer) { return layer.experts.has_value(); });
}

// `results`: HeadResults of a language model.
model::LogProbs LogProbsOf(const std::vector<at::Tensor>& results, const PackedBatch& batch) {
  if (!batch.soft_ids.defined()) return {results[0], results[1], {}, {}};
  if (batch.soft_targets_only) return {{}, {}, {}, results[0]};
  return {results[0], results[1], {}, results[2]};
}

}  // namespace

template <typename Result, typename Steps>
absl::StatusOr<Result> ShardedTransformer::RunPass(const PackedBatch& batch, const char* what,
                                                   Steps steps) {
  RETURN_IF_ERROR(CheckBatch(batch));
  const int rank = options_.mesh->rank();
  Pass pass;
  absl::StatusOr<Result> result =
      Guarded<absl::StatusOr<Result>>(rank, what, [&]() -> absl::StatusOr<Result> {
        const at::NoGradGuard no_grad;
        pass = MakePass(batch);
        return steps(pass);
      });
  if (!result.ok() && options_.mesh->size() > 1) {
    // The peers wait for collectives that this rank will not enter.
    options_.mesh->Abort(result.status().message());
  }
  gatherer_->End();
  if (!result.ok()) return StatusBuilder(result.status()) << "in stage " << pass.place;
  return result;
}

absl::StatusOr<model::LogProbs> ShardedTransformer::Forward(const PackedBatch& batch) {
  RETURN_IF_ERROR(CheckHead(/*value_head=*/false));
  ASSIGN_OR_RETURN(HeadResults results, RunPass<HeadResults>(batch, "forward", [&](Pass& pass) {
                     return ForwardSteps(pass);
                   }));
  return LogProbsOf(results, batch);
}

absl::StatusOr<model::LogProbs> ShardedTransformer::ForwardWithSquares(const PackedBatch& batch) {
  RETURN_IF_ERROR(CheckHead(/*value_head=*/false));
  ASSIGN_OR_RETURN(HeadResults results, RunPass<HeadResults>(batch, "forward", [&](Pass& pass) {
                     pass.sums_squares = true;
                     return ForwardSteps(pass);
                   }));
  return model::LogProbs{std::move(results[0]), std::move(results[1]), std::move(results[2]), {}};
}

absl::StatusOr<at::Tensor> ShardedTransformer::ForwardValues(const PackedBatch& batch) {
  RETURN_IF_ERROR(CheckHead(/*value_head=*/true));
  ASSIGN_OR_RETURN(HeadResults results, RunPass<HeadResults>(batch, "forward", [&](Pass& pass) {
                     return ForwardSteps(pass);
                   }));
  return std::move(results[0]);
}

absl::StatusOr<at::Tensor> ShardedTransformer::QueueForwardBackward(const PackedBatch& batch,
                                                                    const LossFunction& loss) {
  return TrainHead(batch, /*value_head=*/false,
                   [&](const HeadResults& results) { return loss(LogProbsOf(results, batch)); });
}

absl::StatusOr<at::Tensor> ShardedTransformer::QueueForwardBackwardValues(
    const PackedBatch& batch, const ValueLossFunction& loss) {
  return TrainHead(batch, /*value_head=*/true,
                   [&](const HeadResults& results) { return loss(results[0]); });
}

absl::Status ShardedTransformer::CheckHead(bool value_head) const {
  if (transformer_.spec().value_head == value_head) return absl::OkStatus();
  return absl::FailedPreconditionError(
      value_head ? "this model has a language-model head; values need a value head"
                 : "this model has a value head; log-probs need a language-model head");
}

absl::StatusOr<at::Tensor> ShardedTransformer::TrainHead(const PackedBatch& batch, bool value_head,
                                                         const HeadLoss& loss) {
  RETURN_IF_ERROR(CheckHead(value_head));
  if (!options_.trainable) {
    return absl::FailedPreconditionError(
        "ForwardBackward() needs a trainable model; this one is frozen and has no gradients");
  }
  return RunPass<at::Tensor>(batch, "forward and backward",
                             [&](Pass& pass) { return ForwardBackwardSteps(pass, loss); });
}

at::Tensor ShardedTransformer::Embed(const Pass& pass, model::Transformer::Carried& carried) const {
  const at::Tensor x = transformer_.Embed(*gatherer_, pass.token_ids, pass.positions, &carried);
  if (!pass.image_tokens.defined()) return x;
  // An image of several sequences is encoded once, and its gradient is the sum of theirs.
  const absl::Time start = absl::Now();
  std::unique_ptr<device::Event> begin = device_->RecordTime();
  const at::Tensor rows = model::EncodeImages(transformer_, *gatherer_, pass.images);
  encoded_images_.num_images += static_cast<int64_t>(pass.images.grids.size());
  encoded_images_.num_patches += pass.images.pixel_values.size(0);
  if (begin != nullptr) {
    if (encoding_times_.size() >= kMostEncodings) MeasureEncodings(kMostEncodings / 2);
    encoding_times_.push_back({std::move(begin), device_->RecordTime()});
  } else {
    encoded_images_.seconds += absl::ToDoubleSeconds(absl::Now() - start);
  }
  // On a device an embedding's gradient adds the rows of several sequences in float32 and in one order,
  // where a selection's adds them in the rows' type as they come.
  const at::Tensor of_tokens =
      rows.is_cpu() ? rows.index_select(0, pass.image_rows) : at::embedding(rows, pass.image_rows);
  if (of_tokens.size(1) == x.size(1)) return model::PutImages(x, pass.image_tokens, of_tokens);
  // At once: the gradients of all parts are then put together in one tensor. Each is a copy, which its
  // reader frees.
  const std::vector<at::Tensor> parts = of_tokens.split(x.size(1), 1);
  for (size_t i = 0, part = 1; i < carried.size(); ++i) {
    if (transformer_.carried_tensors()[i].kind != model::CarriedTensor::Kind::kImageRows) continue;
    carried[i] = parts[part++].to(x.scalar_type()).contiguous();
  }
  return model::PutImages(x, pass.image_tokens, parts[0]);
}

void ShardedTransformer::MeasureEncodings(size_t count) const {
  for (; count > 0; --count) {
    const auto& [begin, end] = encoding_times_.front();
    encoded_images_.seconds += device_->SecondsBetween(*begin, *end);
    encoding_times_.pop_front();
  }
}

EncodedImages ShardedTransformer::TakeEncodedImages() {
  MeasureEncodings(encoding_times_.size());
  return std::exchange(encoded_images_, {});
}

at::Tensor ShardedTransformer::SelectRows(const Pass& pass, const at::Tensor& x) const {
  return pass.all_rows ? x : x.index_select(0, pass.rows);
}

ShardedTransformer::HeadResults ShardedTransformer::RunHead(const Pass& pass,
                                                            const at::Tensor& selected) const {
  const at::Tensor hidden = transformer_.FinalNorm(*gatherer_, selected);
  if (transformer_.spec().value_head) return {transformer_.Values(*gatherer_, hidden)};
  const auto soft = [&] {
    return model::HeadSoftLogProbs(transformer_, *gatherer_, hidden,
                                   {pass.soft_ids, pass.soft_weights}, pass.temperatures);
  };
  if (pass.soft_targets_only) return {soft()};
  if (pass.sums_squares) {
    model::LogProbs out =
        transformer_.HeadLogProbsAndSquares(*gatherer_, hidden, pass.targets, pass.temperatures);
    return {std::move(out.logprobs), std::move(out.entropy), std::move(out.sum_pi_squared)};
  }
  model::LogProbs out =
      transformer_.HeadLogProbs(*gatherer_, hidden, pass.targets, pass.temperatures);
  HeadResults results = {std::move(out.logprobs), std::move(out.entropy)};
  if (pass.soft_ids.defined()) results.push_back(soft());
  return results;
}

std::vector<at::Tensor> ShardedTransformer::StageLeaves(int stage) const {
  std::vector<at::Tensor> leaves;
  for (const int index : transformer_.table().stage_parameters(stage))
    leaves.push_back(gatherer_->Get(index));
  return leaves;
}

absl::Status ShardedTransformer::AddGradients(int stage, absl::Span<const at::Tensor> gradients) {
  const std::vector<int>& parameters = transformer_.table().stage_parameters(stage);
  for (const sharding::UnitGradients& unit : stages_.GradientsOf(stage)) {
    for (const int i : unit.positions) {
      RETURN_IF_ERROR(
          reducer_->Add(parameters[i], gradients.empty() ? at::Tensor() : gradients[i]));
    }
    if (unit.completes) {
      RETURN_IF_ERROR(reducer_->Complete(unit.unit));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardedTransformer::HeadResults> ShardedTransformer::ForwardSteps(Pass& pass) {
  gatherer_->Begin(stages_.UnitsOfSteps(/*backward=*/false));
  PassOps ops(*this, pass, /*loss=*/nullptr);
  ASSIGN_OR_RETURN(const at::Tensor x, sharding::ForwardPass(ops, stages_));
  if (pass.without_rows) {
    const at::Tensor none = at::empty({0}, at::TensorOptions(at::kFloat).device(options_.device));
    return HeadResults{none, none, none};
  }
  const PhaseClock::Scope scope(clock_, Phase::kHead);
  return GatherRows(pass.slice, RunHead(pass, SelectRows(pass, x)), options_.mesh->sequence());
}

absl::StatusOr<at::Tensor> ShardedTransformer::ForwardBackwardSteps(Pass& pass,
                                                                    const HeadLoss& loss) {
  if (expert_use_ != nullptr) expert_use_->Begin(pass.token_uses);
  if (router_losses_ != nullptr) {
    router_losses_->Begin(
        pass.token_uses,
        pass.update_tokens * static_cast<double>(NumExpertLayers(transformer_.spec())));
  }
  gatherer_->Begin(stages_.UnitsOfSteps(/*backward=*/true));
  PassOps ops(*this, pass, &loss);
  RETURN_IF_ERROR(sharding::TrainingPass(ops, stages_));
  return ops.loss_value();
}

absl::Status ShardedTransformer::PassOps::EnterForward(int stage) {
  pass_.place = stage == model_.stages_.head() ? "head" : StageName(stage);
  return model_.gatherer_->Enter(stage);
}

absl::Status ShardedTransformer::PassOps::EnterBackward(int stage) {
  pass_.place = absl::StrCat(StageName(stage), ", backward");
  return model_.gatherer_->Enter(model_.stages_.BackwardStep(stage));
}

PhaseClock::Scope ShardedTransformer::PassOps::TimeForward(int stage) {
  return PhaseClock::Scope(model_.clock_, Phase::kForward, StageName(stage));
}

PhaseClock::Scope ShardedTransformer::PassOps::TimeBackward(int stage) {
  return PhaseClock::Scope(model_.clock_, Phase::kBackward, StageName(stage));
}

at::Tensor ShardedTransformer::PassOps::RunStage(int stage, const Inputs& inputs,
                                                 sharding::Saves saves, Graph& graph,
                                                 std::vector<at::Tensor>& made) {
  const at::AutoGradMode grad_mode(saves != sharding::Saves::kNothing);
  const model::Transformer& transformer = model_.transformer_;
  const UnitGatherer& parameters = *model_.gatherer_;
  model::Transformer::Carried carried(model_.stages_.carried().size());
  const auto take_made = [&] {
    for (const int i : model_.stages_.MadeBy(stage)) made.push_back(std::move(carried[i]));
  };
  if (stage == 0) {
    at::Tensor x = model_.Embed(pass_, carried);
    take_made();
    return x;
  }
  const std::vector<int>& read = model_.stages_.ReadBy(stage);
  for (size_t i = 0; i < read.size(); ++i) carried[read[i]] = inputs.reads[i];
  const bool selective = saves == sharding::Saves::kSelected;
  model::RouterPass routers;
  routers.replay = pass_.replay.get();
  if (counts_load()) {
    routers.load = &model_.expert_load_;
    routers.losses = model_.router_losses_.get();
    routers.use = model_.expert_use_.get();
    routers.is_recomputed = saves != model_.stages_.SavesOf(stage);
  }
  at::Tensor output =
      transformer.Block(parameters, stage - 1, inputs.x, pass_.rotary, *pass_.attention,
                        selective ? &graph : nullptr, &routers, &carried);
  take_made();
  for (const int i : read) {
    const bool is_rows =
        transformer.carried_tensors()[i].kind == model::CarriedTensor::Kind::kImageRows;
    if (is_rows && carried[i].defined()) {
      output = model::AddRows(output, pass_.image_tokens, carried[i]);
    }
  }
  if (selective) graph.Drop();
  return output;
}

at::Tensor ShardedTransformer::PassOps::Detach(const at::Tensor& x, bool needs_gradient) {
  if (!x.defined()) return x;
  return x.detach().requires_grad_(needs_gradient);
}

// In float32: in bfloat16 the sum over many layers would lose what each adds.
at::Tensor ShardedTransformer::PassOps::Add(int /*carried*/, const at::Tensor& sum,
                                            const at::Tensor& gradient) {
  return sum.scalar_type() == at::kBFloat16 ? at::add(sum.to(at::kFloat), gradient)
                                            : at::add(sum, gradient);
}

absl::StatusOr<at::Tensor> ShardedTransformer::PassOps::Head(at::Tensor x) {
  RETURN_IF_ERROR(model_.FinishRouterLosses(pass_));
  return model_.HeadStep(pass_, std::move(x), *loss_, loss_value_);
}

ShardedTransformer::PassOps::Inputs ShardedTransformer::PassOps::Backward(
    int stage, Boundary& boundary, const Outputs& output_gradients,
    std::vector<at::Tensor>& gradients) {
  boundary.graph.Restore();
  std::vector<at::Tensor> inputs = model_.StageLeaves(stage);
  const size_t num_parameters = inputs.size();
  if (boundary.in.x.defined()) inputs.push_back(boundary.in.x);
  inputs.insert(inputs.end(), boundary.in.reads.begin(), boundary.in.reads.end());
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> of_outputs;
  const auto add = [&](const at::Tensor& output, const at::Tensor& gradient) {
    if (!output.defined() || !output.requires_grad() || !gradient.defined()) return;
    outputs.push_back(output);
    of_outputs.push_back(gradient.to(output.scalar_type()));
  };
  add(boundary.out.x, output_gradients.x);
  for (size_t i = 0; i < boundary.out.made.size(); ++i) {
    add(boundary.out.made[i], output_gradients.made[i]);
  }
  if (!outputs.empty()) {
    gradients = GradientsOf(outputs, of_outputs, inputs);
  } else {
    gradients.resize(inputs.size());  // a frozen embedding, and no image for the trained tower
  }
  Inputs of_inputs;  // undefined if no earlier stage trains
  auto of_input = gradients.begin() + static_cast<int64_t>(num_parameters);
  if (boundary.in.x.defined()) of_inputs.x = std::move(*of_input++);
  for (; of_input != gradients.end(); ++of_input) {
    // One that is part of a larger tensor would keep all of it until its maker's backward pass.
    of_inputs.reads.push_back(of_input->defined() ? of_input->contiguous() : at::Tensor());
  }
  gradients.resize(num_parameters);
  return of_inputs;
}

absl::Status ShardedTransformer::PassOps::AddGradients(int stage,
                                                       absl::Span<const at::Tensor> gradients) {
  return model_.AddGradients(stage, gradients);
}

absl::Status ShardedTransformer::PassOps::FinishGradients() {
  pass_.place = "gradients";
  return model_.reducer_->Finish();
}

absl::Status ShardedTransformer::FinishRouterLosses(const Pass& pass) {
  if (router_losses_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(SumOverTokens(router_losses_->sums(), "the routers' losses"));
  router_losses_->Finish();
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> ShardedTransformer::HeadStep(Pass& pass, at::Tensor x,
                                                        const HeadLoss& loss,
                                                        at::Tensor& loss_value) {
  at::Tensor x_gradient;
  std::vector<at::Tensor> gradients;
  if (!pass.without_rows) {
    const PhaseClock::Scope scope(clock_, Phase::kHead);
    const at::AutoGradMode grad_mode(true);
    const at::Tensor selected =
        SelectRows(pass, x).detach().requires_grad_(stages_.HasBackward(stages_.head() - 1));
    HeadResults computed = RunHead(pass, selected);
    // The loss sees leaves, so that its graph ends at the head's results; and all rows of the
    // batch, on every rank that has a slice of it.
    const HeadResults leaves = GatherRows(pass.slice, computed, options_.mesh->sequence());
    for (const at::Tensor& leaf : leaves) leaf.requires_grad_();
    const at::Tensor loss_tensor = loss(leaves);
    loss_value = loss_tensor.detach();
    std::vector<at::Tensor> loss_gradients(leaves.size());
    if (loss_tensor.requires_grad()) loss_gradients = GradientsOf({loss_tensor}, {}, leaves);
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> output_gradients;
    for (size_t i = 0; i < computed.size(); ++i) {
      if (!loss_gradients[i].defined()) continue;
      outputs.push_back(computed[i]);
      output_gradients.push_back(
          loss_gradients[i].narrow(0, pass.slice.first_row, pass.rows.numel()));
    }
    computed.clear();
    std::vector<at::Tensor> inputs = StageLeaves(stages_.head());
    inputs.push_back(selected);
    gradients.resize(inputs.size());
    if (!outputs.empty()) gradients = GradientsOf(outputs, output_gradients, inputs);
    x_gradient = std::move(gradients.back());
    gradients.pop_back();
    if (x_gradient.defined() && !pass.all_rows) {
      const at::NoGradGuard no_grad;
      const at::ScalarType type = x_gradient.scalar_type();
      if (pass.distinct_rows) {
        at::Tensor spread = at::zeros(x.sizes(), x_gradient.options());
        spread.index_copy_(0, pass.rows, x_gradient);
        x_gradient = std::move(spread);
      } else {
        // A prompt's last row predicts the first token of every sample: summed, then rounded.
        at::Tensor spread = at::zeros(x.sizes(), x_gradient.options().dtype(at::kFloat));
        spread.index_add_(0, pass.rows, x_gradient.to(at::kFloat));
        x_gradient = spread.to(type);
      }
    }
  }
  const bool of_routers = router_losses_ != nullptr && !pass.without_rows;
  if (!x_gradient.defined() && !pass.empty &&
      (transformer_.expert_group() != nullptr || of_routers)) {
    // The peers' gradients travel to the experts and back, so this rank takes part; and losses of
    // routers have gradients without the head's.
    x_gradient = at::zeros(x.sizes(), x.options());
  }
  RETURN_IF_ERROR(AddGradients(stages_.head(), gradients));
  return x_gradient;
}

}  // namespace tandem::trainer
