#include "services/trainer/service/trainer_engine.h"

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/io/model_config.h"
#include "common/io/model_folder.h"
#include "common/plan/unit_limits.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "services/trainer/algorithm/token_scores.h"
#include "services/trainer/fsdp/guarded.h"
#include "services/trainer/optim/lr_schedule.h"
#include "services/trainer/service/memory_metrics.h"
#include "services/trainer/service/step_times.h"

namespace tandem::trainer {
namespace {

constexpr char kKlCoefficient[] = "kl_coefficient";

AdamWOptions MakeAdamWOptions(const config::v1::OptimConfig& config) {
  AdamWOptions out;
  if (config.betas_size() == 2) {
    out.beta1 = config.betas(0);
    out.beta2 = config.betas(1);
  }
  out.eps = config.eps();
  out.weight_decay = config.weight_decay();
  out.grad_clip = config.grad_clip();
  return out;
}

ActivationCheckpointing CheckpointingOf(config::v1::ActivationCheckpointing config) {
  switch (config) {
    case config::v1::ACTIVATION_CHECKPOINTING_FULL:
      return ActivationCheckpointing::kFull;
    case config::v1::ACTIVATION_CHECKPOINTING_SELECTIVE:
      return ActivationCheckpointing::kSelective;
    default:
      return ActivationCheckpointing::kNone;
  }
}

Offload OffloadOf(config::v1::Offload config) {
  switch (config) {
    case config::v1::OFFLOAD_CPU:
      return Offload::kCpu;
    case config::v1::OFFLOAD_DISK:
      return Offload::kDisk;
    default:
      return Offload::kNone;
  }
}

}  // namespace

TrainerEngine::TrainerEngine(const config::v1::RunConfig& config, const comm::DeviceMesh& mesh,
                             at::Device device)
    : config_(config),
      mesh_(mesh),
      device_(device),
      compute_dtype_(config.model().dtype() == config::v1::ELEMENT_TYPE_FLOAT32 ? at::kFloat
                                                                                : at::kBFloat16) {}

absl::StatusOr<std::unique_ptr<TrainerEngine>> TrainerEngine::Create(
    const config::v1::RunConfig& config, const comm::DeviceMesh& mesh, at::Device device) {
  const std::string& path = config.model().path();
  if (path.empty())
    return absl::InvalidArgumentError("model.path: expected a model folder, found nothing");
  const bool random_init = config.model().random_init();
  std::optional<io::ModelFolder> folder;
  io::ModelConfig model_config;
  if (random_init) {
    ASSIGN_OR_RETURN(model_config, io::ReadModelConfig(path));
  } else {
    ASSIGN_OR_RETURN(folder, io::ModelFolder::Open(path));
    model_config = folder->config();
  }
  std::unique_ptr<TrainerEngine> engine(new TrainerEngine(config, mesh, device));
  ShardedModelOptions options;
  ASSIGN_OR_RETURN(options.spec, model::ParseModelSpec(model_config.json, model_config.path));
  options.compute_dtype = engine->compute_dtype_;
  options.mesh = &mesh;
  options.device = device;
  options.prefetch_units = config.trainer().prefetch_units();
  options.unit_limits =
      plan::UnitLimitsOf(config.trainer(), options.spec, mesh.shape(),
                         static_cast<int64_t>(c10::elementSize(engine->compute_dtype_)));
  options.reshard_after_forward =
      config.trainer().reshard_after_forward() &&
      config.trainer().sharding_strategy() != config::v1::SHARDING_STRATEGY_SHARD_GRAD_OP;
  if (config.trainer().reduce_dtype() == config::v1::ELEMENT_TYPE_BFLOAT16) {
    options.reduce_dtype = at::kBFloat16;
  }
  options.activation_checkpointing = CheckpointingOf(config.trainer().activation_checkpointing());
  options.activation_checkpointing_interval = config.trainer().activation_checkpointing_interval();
  options.offload = OffloadOf(config.trainer().offload());
  options.offload_folder = config.trainer().offload_dir().empty() ? config.run_dir() + "/offload"
                                                                  : config.trainer().offload_dir();
  options.eager_attention =
      config.model().attn_implementation() == config::v1::ATTENTION_IMPLEMENTATION_EAGER;

  const auto fill = [&](ShardedModel& model) {
    return random_init ? model.RandomInit(config.seed()) : model.Load(*folder);
  };
  ASSIGN_OR_RETURN(engine->policy_, ShardedModel::Create(options));
  RETURN_IF_ERROR(fill(*engine->policy_)) << "while loading the policy";
  const TrainingStepOptions step_options = MakeTrainingStepOptions(config);
  if (step_options.needs_reference()) {
    options.trainable = false;
    ASSIGN_OR_RETURN(engine->reference_, ShardedModel::Create(options));
    RETURN_IF_ERROR(fill(*engine->reference_)) << "while loading the reference";
  }
  RETURN_IF_ERROR(Guarded<absl::Status>(
      mesh.rank(), "allocating the optimizer's moments", [&]() -> absl::Status {
        engine->optimizer_ = std::make_unique<AdamW>(MakeAdamWOptions(config.actor().optim()),
                                                     *engine->policy_, mesh);
        return absl::OkStatus();
      }));
  engine->training_step_ = std::make_unique<TrainingStep>(
      step_options, *engine->policy_, engine->reference_.get(), *engine->optimizer_, mesh);
  return engine;
}

std::vector<CheckpointedModel> TrainerEngine::checkpointed_models() {
  return {{"policy", policy_.get(), optimizer_.get()}};
}

std::map<std::string, double> TrainerEngine::AlgorithmScalars() const {
  return {{kKlCoefficient, training_step_->kl_coefficient()}};
}

absl::Status TrainerEngine::SetAlgorithmScalars(const std::map<std::string, double>& scalars) {
  for (const auto& [name, value] : scalars) {
    if (name != kKlCoefficient) {
      return absl::FailedPreconditionError(
          absl::StrCat("the checkpoint holds the scalar ", name, ", which this trainer lacks"));
    }
    // A fixed coefficient is the configuration's.
    if (config_.algorithm().kl_ctrl().type() == config::v1::KL_CONTROL_TYPE_ADAPTIVE) {
      training_step_->set_kl_coefficient(value);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> TrainerEngine::TrainStep(v1::Objective objective, int64_t step,
                                                    TrainingBatch batch) {
  const double learning_rate =
      LearningRate(config_.actor().optim(), step - 1, config_.trainer().total_steps());
  policy_->TakePhaseSeconds();  // those of calls before the step
  optimizer_->TakePhaseSeconds();
  const absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(StepResult result,
                   objective == v1::OBJECTIVE_SUPERVISED
                       ? training_step_->Supervised(batch, learning_rate)
                       : training_step_->PolicyGradient(std::move(batch), learning_rate));
  PhaseSeconds phases;
  for (const auto& [phase, seconds] : policy_->TakePhaseSeconds()) phases[phase] += seconds;
  for (const auto& [phase, seconds] : optimizer_->TakePhaseSeconds()) phases[phase] += seconds;
  const double step_seconds = absl::ToDoubleSeconds(absl::Now() - start);
  RETURN_IF_ERROR(
      AddStepTimes(std::move(phases), step_seconds, mesh_.world(), device_, result.metrics));
  AddMemoryMetrics(*policy_, reference_.get(), *optimizer_, result.metrics);
  if (mesh_.rank() == 0) {
    for (const std::string& cause : result.skipped) {
      telemetry::LogWarning(absl::StrCat(cause, ": ", result.weights_changed ? "an update of " : "",
                                         "step ", step, " skipped"),
                            {{"grad_norm", result.metrics["actor/grad_norm"]}});
    }
  }
  return result;
}

absl::StatusOr<std::vector<std::vector<float>>> TrainerEngine::ComputeLogProbs(
    const TrainingBatch& batch) {
  return ScoreTokens(batch, mesh_, device_, config_.trainer().max_tokens_per_micro_batch(),
                     [this](const PackedBatch& packed) -> absl::StatusOr<at::Tensor> {
                       ASSIGN_OR_RETURN(const model::LogProbs out, policy_->Forward(packed));
                       return out.logprobs;
                     });
}

}  // namespace tandem::trainer
