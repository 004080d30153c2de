#include "services/trainer/service/trainer_engine.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/io/model_config.h"
#include "common/io/model_folder.h"
#include "common/model/frozen_parameters.h"
#include "common/model/load_parameters.h"
#include "common/model/parameter_table.h"
#include "common/model/stored_layout.h"
#include "common/rank_setup/rank_setup.h"
#include "common/rank_setup/router_checks.h"
#include "common/rank_setup/vision_checks.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "services/trainer/algorithm/expert_metrics.h"
#include "services/trainer/algorithm/token_scores.h"
#include "services/trainer/fsdp/guarded.h"
#include "services/trainer/optim/lr_schedule.h"
#include "services/trainer/optim/make_optimizer.h"
#include "services/trainer/service/image_metrics.h"
#include "services/trainer/service/step_times.h"

namespace tandem::trainer {
namespace {

constexpr char kKlCoefficient[] = "kl_coefficient";

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

// Reads a model's weights from a folder, or initializes them randomly if configured so.
absl::Status FillModel(const config::v1::RunConfig& config, const std::string& path,
                       ShardedModel& model) {
  if (config.model().random_init()) return model.RandomInit(config.seed());
  ASSIGN_OR_RETURN(const io::ModelFolder folder, io::ModelFolder::Open(path));
  return model.Load(folder);
}

// The folder of the value model's initial weights.
const std::string& CriticPathOf(const config::v1::RunConfig& config) {
  const std::string& own = config.critic().model().path();
  return own.empty() ? config.model().path() : own;
}

constexpr char kCriticPath[] = "critic.model.path";

absl::StatusOr<model::ModelSpec> CriticSpecOf(const config::v1::RunConfig& config,
                                              const model::ModelSpec& policy) {
  const std::string& path = CriticPathOf(config);
  ASSIGN_OR_RETURN(const io::ModelConfig model_config, io::ReadModelConfig(path));
  ASSIGN_OR_RETURN(model::ModelSpec spec,
                   model::ParseValueModelSpec(model_config.json, model_config.path));
  if (spec.vocab_size != policy.vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a model with the policy's vocabulary of ", policy.vocab_size,
                     " tokens; ", path, " has ", spec.vocab_size));
  }
  return spec;
}

// What FillModel() refuses by the names and shapes of a folder's tensors.
absl::Status CheckWeights(const config::v1::RunConfig& config, const std::string& path,
                          const model::ModelSpec& spec) {
  if (config.model().random_init()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const io::ModelFolder folder, io::ModelFolder::Open(path));
  return model::CheckParameters(folder, model::ParameterTable(spec));
}

}  // namespace

TrainerEngine::TrainerEngine(const config::v1::RunConfig& config, const comm::DeviceMesh& mesh,
                             at::Device device)
    : config_(config),
      mesh_(mesh),
      device_(device),
      compute_dtype_(config.model().dtype() == config::v1::ELEMENT_TYPE_FLOAT32 ? at::kFloat
                                                                                : at::kBFloat16) {}

absl::StatusOr<model::ModelSpec> TrainerEngine::CheckConfig(const config::v1::RunConfig& config) {
  const std::string& path = config.model().path();
  if (path.empty())
    return absl::InvalidArgumentError("model.path: expected a model folder, found nothing");
  RETURN_IF_ERROR(CheckAlgorithm(config));
  ASSIGN_OR_RETURN(const io::ModelConfig model_config, io::ReadModelConfig(path));
  ASSIGN_OR_RETURN(model::ModelSpec spec,
                   model::ParseModelSpec(model_config.json, model_config.path));
  // Also for a model drawn at random, which is exported.
  RETURN_IF_ERROR(
      model::StoredLayout::Create(model::ParameterTable(spec), /*folder=*/nullptr).status())
      << model_config.path;
  RETURN_IF_ERROR(model::CheckFrozenParameters(spec, {config.trainer().frozen_parameters().begin(),
                                                      config.trainer().frozen_parameters().end()}));
  RETURN_IF_ERROR(setup::CheckRouters(config, spec));
  RETURN_IF_ERROR(setup::CheckVision(config, spec));
  RETURN_IF_ERROR(CheckWeights(config, path, spec)) << "model.path";
  if (setup::HasCritic(config)) {
    const absl::StatusOr<model::ModelSpec> critic = CriticSpecOf(config, spec);
    RETURN_IF_ERROR(critic.status()) << kCriticPath;
    RETURN_IF_ERROR(CheckWeights(config, CriticPathOf(config), *critic)) << kCriticPath;
  }
  return spec;
}

absl::StatusOr<std::unique_ptr<TrainerEngine>> TrainerEngine::Create(
    const config::v1::RunConfig& config, const comm::DeviceMesh& mesh, at::Device device) {
  const std::string& path = config.model().path();
  ShardedModelOptions options;
  ASSIGN_OR_RETURN(options.spec, CheckConfig(config));
  std::unique_ptr<TrainerEngine> engine(new TrainerEngine(config, mesh, device));
  if (options.spec.vision.has_value()) {
    absl::StatusOr<model::ImagePreparer> preparer =
        model::ImagePreparer::Load(path, *options.spec.vision);
    if (preparer.ok()) {
      engine->pixels_ = std::make_unique<model::PixelCache>(*std::move(preparer));
    } else {
      engine->pixels_ = preparer.status();
    }
  }
  options.compute_dtype = engine->compute_dtype_;
  options.mesh = &mesh;
  options.device = device;
  const setup::RankSetup setup =
      setup::SetupOf(config, options.spec, mesh.shape(), {.on_gpu = !device.is_cpu()});
  options.prefetch_units = setup.prefetch_units;
  options.unit_limits = setup.unit_limits;
  options.reshard_after_forward = setup.reshard_after_forward;
  if (!setup.reduces_in_float32) options.reduce_dtype = at::kBFloat16;
  options.activation_checkpointing = CheckpointingOf(setup.checkpointing);
  options.activation_checkpointing_interval = setup.checkpointing_interval;
  options.offload = OffloadOf(setup.offload);
  options.offload_folder = config.trainer().offload_dir().empty() ? config.run_dir() + "/offload"
                                                                  : config.trainer().offload_dir();
  options.eager_attention =
      config.model().attn_implementation() == config::v1::ATTENTION_IMPLEMENTATION_EAGER;

  // The other models, which have the same options otherwise, are not published.
  ShardedModelOptions of_policy = options;
  of_policy.router_losses = RouterLossesOf(config.actor());
  of_policy.replays_routing = config.actor().router_replay() == config::v1::ROUTER_REPLAY_R3;
  of_policy.keeps_digests =
      config.trainer().weight_transport() != config::v1::WEIGHT_TRANSPORT_BROADCAST;
  ASSIGN_OR_RETURN(engine->policy_, ShardedModel::Create(std::move(of_policy)));
  RETURN_IF_ERROR(FillModel(config, path, *engine->policy_)) << "while loading the policy";
  engine->model_options_ = options;
  const TrainingStepOptions step_options = MakeTrainingStepOptions(config);
  if (step_options.needs_reference()) {
    RETURN_IF_ERROR(engine->MakeReference());
  }
  RETURN_IF_ERROR(Guarded<absl::Status>(
      mesh.rank(), "allocating the optimizer's moments", [&]() -> absl::Status {
        ASSIGN_OR_RETURN(engine->optimizer_, MakeOptimizer(config.actor().optim(), *engine->policy_,
                                                           mesh, config.actor().vision_lr()));
        return absl::OkStatus();
      }));
  engine->training_step_ = std::make_unique<TrainingStep>(
      step_options, *engine->policy_, engine->reference_.get(), *engine->optimizer_, mesh);
  engine->preference_step_ = std::make_unique<PreferenceStep>(
      MakePreferenceOptions(config), *engine->policy_, *engine->optimizer_, mesh);
  if (setup.has_critic) {
    RETURN_IF_ERROR(engine->MakeCritic());
  }
  engine->initial_scalars_ = engine->AlgorithmScalars();
  return engine;
}

absl::Status TrainerEngine::ResetToInitialState() {
  RETURN_IF_ERROR(FillModel(config_, config_.model().path(), *policy_))
      << "while reloading the policy";
  optimizer_->Reset();
  if (critic_ != nullptr) {
    RETURN_IF_ERROR(FillModel(config_, CriticPathOf(config_), *critic_))
        << "while reloading the critic";
    critic_optimizer_->Reset();
  }
  training_step_->set_kl_coefficient(initial_scalars_.at(kKlCoefficient));
  return absl::OkStatus();
}

std::vector<CheckpointedModel> TrainerEngine::checkpointed_models() {
  std::vector<CheckpointedModel> out = {{"policy", policy_.get(), optimizer_.get()}};
  if (critic_ != nullptr) out.push_back({"critic", critic_.get(), critic_optimizer_.get()});
  return out;
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

absl::Status TrainerEngine::MakeReference() {
  if (reference_ != nullptr) return absl::OkStatus();
  ShardedModelOptions options = model_options_;
  options.trainable = false;
  ASSIGN_OR_RETURN(std::unique_ptr<ShardedModel> reference, ShardedModel::Create(options));
  RETURN_IF_ERROR(FillModel(config_, config_.model().path(), *reference))
      << "while loading the reference";
  reference_ = std::move(reference);
  return absl::OkStatus();
}

absl::Status TrainerEngine::MakeCritic() {
  ShardedModelOptions options = model_options_;
  ASSIGN_OR_RETURN(options.spec, CriticSpecOf(config_, spec()));
  options.unit_limits.frozen_parameters.clear();  // they name tensors of the policy
  options.unit_limits.moves_correction_biases = false;
  options.value_head_seed = config_.seed();
  ASSIGN_OR_RETURN(critic_, ShardedModel::Create(options));
  RETURN_IF_ERROR(FillModel(config_, CriticPathOf(config_), *critic_))
      << "while loading the critic";
  RETURN_IF_ERROR(Guarded<absl::Status>(
      mesh_.rank(), "allocating the moments of the critic's optimizer", [&]() -> absl::Status {
        ASSIGN_OR_RETURN(critic_optimizer_,
                         MakeOptimizer(config_.critic().optim(), *critic_, mesh_));
        return absl::OkStatus();
      }));
  critic_part_ =
      std::make_unique<Critic>(MakeCriticOptions(config_), *critic_, *critic_optimizer_, mesh_);
  return absl::OkStatus();
}

absl::StatusOr<StepResult> TrainerEngine::RunObjective(const v1::TrainStepHeader& header,
                                                       TrainingBatch batch) {
  // The driver may have derived the number from the length of its data.
  const int64_t total_steps =
      header.total_steps() > 0 ? header.total_steps() : config_.trainer().total_steps();
  const int64_t step = header.step();
  const double learning_rate = LearningRate(config_.actor().optim(), step - 1, total_steps);
  switch (header.objective()) {
    case v1::OBJECTIVE_SUPERVISED:
      return training_step_->Supervised(batch, learning_rate);
    case v1::OBJECTIVE_PREFERENCE:
      RETURN_IF_ERROR(MakeReference());
      return preference_step_->Run(std::move(batch), *reference_, learning_rate);
    default:
      break;
  }
  CriticTurn turn;
  turn.critic = critic_part_.get();
  turn.learning_rate = LearningRate(config_.critic().optim(), step - 1, total_steps);
  turn.policy_waits = step <= config_.trainer().critic_warmup();
  return training_step_->PolicyGradient(std::move(batch), learning_rate, turn);
}

RankMemory TrainerEngine::Memory() const {
  RankMemory memory;
  memory.policy = policy_->memory_bytes();
  memory.optimizer = optimizer_->state_bytes();
  if (reference_ != nullptr) memory.reference = reference_->memory_bytes();
  if (critic_ != nullptr) {
    memory.critic = critic_->memory_bytes();
    memory.critic_optimizer = critic_optimizer_->state_bytes();
  }
  memory.peak_tensors = policy_->peak_tensor_bytes();
  return memory;
}

absl::StatusOr<StepResult> TrainerEngine::TrainStep(const v1::TrainStepHeader& header,
                                                    TrainingBatch batch) {
  policy_->TakePhaseSeconds();  // those of calls before the step
  optimizer_->TakePhaseSeconds();
  policy_->TakeExpertRows();
  policy_->TakeEncodedImages();
  const absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(StepResult result, RunObjective(header, std::move(batch)));
  PhaseSeconds phases;
  for (const auto& [phase, seconds] : policy_->TakePhaseSeconds()) phases[phase] += seconds;
  for (const auto& [phase, seconds] : optimizer_->TakePhaseSeconds()) phases[phase] += seconds;
  const double step_seconds = absl::ToDoubleSeconds(absl::Now() - start);
  RETURN_IF_ERROR(
      AddStepTimes(std::move(phases), step_seconds, mesh_.world(), device_, result.metrics));
  RETURN_IF_ERROR(AddExpertMetrics(policy_->TakeExpertRows(), mesh_, device_, result.metrics));
  if (spec().vision.has_value()) {
    RETURN_IF_ERROR(
        AddImageMetrics(policy_->TakeEncodedImages(), mesh_.world(), device_, result.metrics));
  }
  AddMemoryMetrics(Memory(), result.metrics);
  if (mesh_.rank() == 0) {
    for (const std::string& cause : result.skipped) {
      telemetry::LogWarning(absl::StrCat(cause, ": ", result.weights_changed ? "an update of " : "",
                                         "step ", header.step(), " skipped"),
                            {{"grad_norm", result.metrics["actor/grad_norm"]}});
    }
  }
  return result;
}

absl::StatusOr<std::vector<std::vector<float>>> TrainerEngine::ComputeLogProbs(
    const TrainingBatch& batch, bool of_reference) {
  if (of_reference) {
    RETURN_IF_ERROR(MakeReference());
  }
  ShardedModel& model = of_reference ? *reference_ : *policy_;
  return ScoreTokens(batch, mesh_, device_, config_.trainer().max_tokens_per_micro_batch(),
                     [&model](const PackedBatch& packed) -> absl::StatusOr<at::Tensor> {
                       ASSIGN_OR_RETURN(const model::LogProbs out, model.Forward(packed));
                       return out.logprobs;
                     });
}

}  // namespace tandem::trainer
