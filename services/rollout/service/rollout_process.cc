#include "services/rollout/service/rollout_process.h"

#include <ATen/Parallel.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/io/model_config.h"
#include "common/model/device_processor.h"
#include "common/model/numerics.h"
#include "common/model/processor.h"
#include "common/rpc/process.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/version/version.h"
#include "services/rollout/receive/local_weight_load.h"
#include "services/rollout/service/cache_memory.h"
#include "services/rollout/service/engine_options.h"
#include "services/rollout/service/rank_threads.h"
#include "services/rollout/service/rollout_diagnostics.h"
#include "services/rollout/service/served_model.h"

namespace tandem::rollout {
namespace {

// Part of a drain's grace in which requests may still finish; the rest is for handing over.
constexpr double kFinishShare = 0.8;

}  // namespace

absl::StatusOr<std::unique_ptr<RolloutProcess>> RolloutProcess::Start(
    const RolloutProcessOptions& options) {
  std::unique_ptr<RolloutProcess> process(new RolloutProcess);
  RETURN_IF_ERROR(process->Build(options));
  return process;
}

absl::Status RolloutProcess::Build(const RolloutProcessOptions& options) {
  ASSIGN_OR_RETURN(std::vector<int> cpus,
                   SetThreads(options.config.rollout(), options.environment));
  const bool exact = options.config.numerics() == config::v1::NUMERICS_EXACT;
  model::SetNumerics(exact ? model::Numerics::kExact : model::Numerics::kFast);
  const std::string path = options.config.model().path();
  ASSIGN_OR_RETURN(const io::ModelConfig folder, io::ReadModelConfig(path));
  ASSIGN_OR_RETURN(model::ModelSpec spec, ReadServedSpec(folder, options.commit_folder));
  ASSIGN_OR_RETURN(EngineOptions engine_options,
                   MakeEngineOptions(options.config, folder, spec, options.environment.local_rank));
  telemetry::LogInfo("the rollout computes on", {{"device", engine_options.device_description}});
  if (exact) {
    RETURN_IF_ERROR(CheckDevice(engine_options.device));
    ASSIGN_OR_RETURN(std::string processor, model::ProcessorOf(engine_options.device));
    model::SetProcessor(std::move(processor));
  }
  if (options.config.rollout().tensor_model_parallel_size() > 1) {
    ASSIGN_OR_RETURN(
        ranks_, ReplicaRanks::Join(options.config, options.environment, engine_options.device));
    leader_ = std::make_unique<RankLeader>(&ranks_->group());
  }
  comm::ProcessGroup* const group = ranks_ == nullptr ? nullptr : &ranks_->group().compute();
  model_ = std::make_unique<model::Transformer>(
      std::move(spec), model::UnitLimits{}, group,
      options.config.rollout().enable_expert_parallel() ? group : nullptr);
  if (std::filesystem::exists(path + "/tokenizer.json")) {
    ASSIGN_OR_RETURN(tokenizer_, tokenizer::Tokenizer::Load(path));
  }

  engine_options.cpus = std::move(cpus);
  engine_options.ranks = leader_.get();
  RETURN_IF_ERROR(DivideMemory(options.config.rollout().kv_cache_megabytes(), *model_,
                               ranks_ == nullptr ? nullptr : &ranks_->group().compute(),
                               engine_options));
  ASSIGN_OR_RETURN(const CacheSize size, SizeCache(engine_options, *model_));
  // The server exists before the first commit can come in.
  engine_options.on_commit = [this](int64_t) { server_->SetServing(kRolloutServiceName, true); };
  engine_options.on_weights_released = [this] { server_->SetServing(kRolloutServiceName, false); };
  engine_options.on_ranks_lost = [this, on_failed = options.on_failed](const absl::Status&) {
    failed_ = true;
    if (server_ != nullptr) server_->SetServing(kRolloutServiceName, false);
    if (on_failed) on_failed();
  };
  ASSIGN_OR_RETURN(engine_, Engine::Create(engine_options, *model_, tokenizer_.get()));
  ASSIGN_OR_RETURN(
      store_,
      ArenaStore::Create(*engine_, absl::Seconds(options.config.rollout().request_timeout_s())));
  receiver_ = std::make_unique<WeightReceiver>(store_.get(), StreamReader::Options(), &owner_);
  weight_service_ = std::make_unique<WeightServiceImpl>(receiver_.get());
  metrics_ = std::make_shared<RolloutMetrics>([this] { return engine_->Info(); }, &owner_);
  RolloutServiceImpl::Hooks hooks;
  hooks.updating_to = [this] { return receiver_->updating_to(); };
  hooks.metrics = metrics_.get();
  hooks.owner = &owner_;
  hooks.sessions = &sessions_;
  if (options.commit_folder) {
    hooks.reload = [this, path](auto done) { Reload(path, std::move(done)); };
  }
  rollout_service_ =
      std::make_unique<RolloutServiceImpl>(*engine_, tokenizer_.get(), std::move(hooks));
  diagnostics_ = std::make_unique<probe::DiagnosticsServiceImpl>(
      RolloutDiagnostics(0, *receiver_, engine_.get()));
  ASSIGN_OR_RETURN(
      server_,
      rpc::Server::Start({.listen = options.listen,
                          .health_listen = options.health_listen,
                          .role = "rollout",
                          .health_names = {kRolloutServiceName, kWeightServiceName},
                          .on_drain =
                              [this] {
                                diagnostics_->Shutdown();
                                receiver_->Shutdown();
                                engine_->Drain(absl::Now() + grace_ * kFinishShare);
                              }},
                         {rollout_service_.get(), weight_service_.get(), diagnostics_.get()}));
  if (!options.metrics.empty()) {
    ASSIGN_OR_RETURN(
        metrics_server_,
        metrics::MetricsServer::Start(
            options.metrics, {.role = "rollout", .version = std::string(version::BuildVersion())}));
    metrics_server_->Add(metrics_);
    metrics_server_->Add(server_->metrics());
  }
  std::vector<std::string> addresses = {server_->address()};
  if (ranks_ != nullptr) {
    ASSIGN_OR_RETURN(std::vector<std::string> others,
                     ranks_->AwaitAddresses(DescribeRank(*model_, size)));
    leader_->SetAddresses(others);
    addresses.insert(addresses.end(), others.begin(), others.end());
  }
  rollout_service_->SetRankAddresses(addresses);
  if (options.commit_folder) {
    RETURN_IF_ERROR(CommitFolder(path, model_->table(), *receiver_));
  }
  if (!options.openai.listen.empty()) {
    const auto& served = options.config.rollout().served_model_name();
    std::vector<std::string> names(served.begin(), served.end());
    if (names.empty()) names.push_back(std::filesystem::weakly_canonical(path).filename());
    ASSIGN_OR_RETURN(openai_server_,
                     openai::OpenAiServer::Start(
                         options.openai,
                         {.engine = engine_.get(),
                          .tokenizer = tokenizer_.get(),
                          .metrics = metrics_.get(),
                          .sessions = &sessions_,
                          .model_names = std::move(names),
                          .model_path = path,
                          .path_is_name = served.empty(),
                          .timeout = absl::Seconds(options.config.rollout().request_timeout_s())}));
    sessions_.SetEndpoint(openai_server_->address());
  }
  server_->SetServing(kWeightServiceName, true);
  telemetry::LogInfo("rollout serving",
                     {{"address", server_->address()},
                      {"model", path},
                      {"ranks", ranks_ == nullptr ? 1 : ranks_->group().size()},
                      {"device", engine_->options().device.str()},
                      {"weights_received_on", engine_->options().staged_on.str()},
                      {"threads", at::get_num_threads()},
                      {"kv_blocks", engine_->Info().num_kv_blocks},
                      {"max_model_len", engine_->limits().max_model_len}});
  if (!options.ready_file.empty()) {
    RETURN_IF_ERROR(rpc::WriteReadyFile(options.ready_file, server_->address()));
  }
  return absl::OkStatus();
}

void RolloutProcess::Reload(const std::string& path, std::function<void(absl::Status)> done) {
  const int64_t version = engine_->Info().last_version;
  engine_->ReloadRanks(version, [this, path, version, done] {
    const bool begun = receiver_->RunSoon([this, path, version, done](WeightStore& store) {
      done(store.live_version() >= version
               ? absl::OkStatus()
               : ReloadLocalWeights(path, model_->table(), store, version));
    });
    if (!begun) done(absl::UnavailableError("the rollout is shutting down"));
  });
}

RolloutProcess::~RolloutProcess() {
  metrics_server_.reset();
  if (server_ != nullptr) Drain(absl::ZeroDuration());
}

void RolloutProcess::Drain(absl::Duration grace) {
  grace_ = grace;
  const absl::Time deadline = absl::Now() + grace;
  server_->Drain(grace);
  if (openai_server_ != nullptr) openai_server_->Drain(deadline);
}

}  // namespace tandem::rollout
