#include "services/rollout/service/rollout_process.h"

#include <ATen/Parallel.h>

#include <filesystem>
#include <thread>

#include "absl/time/clock.h"
#include "common/io/model_config.h"
#include "common/io/model_folder.h"
#include "common/rpc/process.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "services/rollout/receive/local_weight_load.h"
#include "services/rollout/service/engine_options.h"

namespace tandem::rollout {
namespace {

constexpr char kRolloutName[] = "tandem.rollout.v1.RolloutService";
constexpr char kWeightName[] = "tandem.rollout.v1.WeightService";

// Part of a drain's grace in which requests may still finish; the rest is for handing over.
constexpr double kFinishShare = 0.8;

int NumThreads(const config::v1::RunConfig& config) {
  if (config.rollout().threads() > 0) return static_cast<int>(config.rollout().threads());
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RolloutProcess>> RolloutProcess::Start(
    const RolloutProcessOptions& options) {
  std::unique_ptr<RolloutProcess> process(new RolloutProcess);
  RETURN_IF_ERROR(process->Build(options));
  return process;
}

absl::Status RolloutProcess::Build(const RolloutProcessOptions& options) {
  // Before ATen's first parallel region.
  at::set_num_threads(NumThreads(options.config));

  const std::string& path = options.config.model().path();
  ASSIGN_OR_RETURN(const io::ModelConfig folder, io::ReadModelConfig(path));
  ASSIGN_OR_RETURN(model::ModelSpec spec, model::ParseModelSpec(folder.json, folder.path));
  model_ = std::make_unique<model::Transformer>(std::move(spec));
  if (std::filesystem::exists(path + "/tokenizer.json")) {
    ASSIGN_OR_RETURN(tokenizer_, tokenizer::Tokenizer::Load(path));
  }

  ASSIGN_OR_RETURN(EngineOptions engine_options, MakeEngineOptions(options.config, folder));
  // The server exists before the first commit can come in.
  engine_options.on_commit = [this](int64_t) { server_->SetServing(kRolloutName, true); };
  ASSIGN_OR_RETURN(engine_, Engine::Create(engine_options, *model_, tokenizer_.get()));
  ASSIGN_OR_RETURN(
      store_,
      ArenaStore::Create(*engine_, absl::Seconds(options.config.rollout().request_timeout_s())));
  receiver_ = std::make_unique<WeightReceiver>(store_.get());
  weight_service_ = std::make_unique<WeightServiceImpl>(receiver_.get());
  rollout_service_ = std::make_unique<RolloutServiceImpl>(
      *engine_, tokenizer_.get(), [this] { return receiver_->updating_to(); });
  ASSIGN_OR_RETURN(server_,
                   rpc::Server::Start({.listen = options.listen,
                                       .role = "rollout",
                                       .health_names = {kRolloutName, kWeightName},
                                       .on_drain =
                                           [this] {
                                             receiver_->Shutdown();
                                             engine_->Drain(absl::Now() + grace_ * kFinishShare);
                                           }},
                                      {rollout_service_.get(), weight_service_.get()}));
  if (options.commit_folder) {
    ASSIGN_OR_RETURN(const io::ModelFolder weights, io::ModelFolder::Open(path));
    RETURN_IF_ERROR(LoadLocalWeights(weights, model_->table(), *receiver_));
  }
  server_->SetServing(kWeightName, true);
  telemetry::LogInfo("the rollout serves", {{"address", server_->address()},
                                            {"model", path},
                                            {"threads", at::get_num_threads()},
                                            {"kv_blocks", engine_->Info().num_kv_blocks},
                                            {"max_model_len", engine_->limits().max_model_len}});
  if (!options.ready_file.empty()) {
    RETURN_IF_ERROR(rpc::WriteReadyFile(options.ready_file, server_->address()));
  }
  return absl::OkStatus();
}

RolloutProcess::~RolloutProcess() {
  if (server_ != nullptr) Drain(absl::ZeroDuration());
}

void RolloutProcess::Drain(absl::Duration grace) {
  grace_ = grace;
  server_->Drain(grace);
}

}  // namespace tandem::rollout
