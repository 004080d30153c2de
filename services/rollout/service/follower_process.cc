#include "services/rollout/service/follower_process.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/io/model_config.h"
#include "common/metrics/metrics_server.h"
#include "common/rpc/process.h"
#include "common/status/exceptions.h"
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

absl::StatusOr<std::unique_ptr<FollowerProcess>> FollowerProcess::Start(
    const RolloutProcessOptions& options) {
  std::unique_ptr<FollowerProcess> process(new FollowerProcess);
  RETURN_IF_ERROR(process->Build(options));
  return process;
}

absl::Status FollowerProcess::Build(const RolloutProcessOptions& options) {
  ASSIGN_OR_RETURN(std::vector<int> cpus,
                   SetThreads(options.config.rollout(), options.environment));
  const std::string path = options.config.model().path();
  ASSIGN_OR_RETURN(const io::ModelConfig folder, io::ReadModelConfig(path));
  ASSIGN_OR_RETURN(model::ModelSpec spec, ReadServedSpec(folder, options.commit_folder));
  ASSIGN_OR_RETURN(EngineOptions engine_options,
                   MakeEngineOptions(options.config, folder, spec, options.environment.local_rank));
  telemetry::LogInfo("the rollout computes on", {{"device", engine_options.device_description}});
  ASSIGN_OR_RETURN(ranks_,
                   ReplicaRanks::Join(options.config, options.environment, engine_options.device));
  comm::ProcessGroup* const group = &ranks_->group().compute();
  model_ = std::make_unique<model::Transformer>(
      std::move(spec), model::UnitLimits{}, group,
      options.config.rollout().enable_expert_parallel() ? group : nullptr);
  RETURN_IF_ERROR(DivideMemory(options.config.rollout().kv_cache_megabytes(), *model_,
                               &ranks_->group().compute(), engine_options));
  ASSIGN_OR_RETURN(const CacheSize size, SizeCache(engine_options, *model_));
  ASSIGN_OR_RETURN(follower_, RankFollower::Create(size.cache, *model_, &ranks_->group(),
                                                   engine_options.staged_on));
  const absl::Duration commit_timeout = absl::Seconds(options.config.rollout().request_timeout_s());
  ASSIGN_OR_RETURN(store_, ArenaStore::Create(*model_, follower_->weights(),
                                              [this, commit_timeout](int64_t version, int64_t) {
                                                return follower_->Commit(
                                                    version, absl::Now() + commit_timeout);
                                              }));
  receiver_ = std::make_unique<WeightReceiver>(store_.get());
  weight_service_ = std::make_unique<WeightServiceImpl>(receiver_.get());
  follower_->OnReload([this, path](int64_t version) {
    receiver_->RunSoon([this, path, version](WeightStore& store) {
      const absl::Status status = ReloadLocalWeights(path, model_->table(), store, version);
      if (!status.ok()) {
        telemetry::LogError("cannot reload the weights", {{"error", status.ToString()}});
      }
    });
  });
  thread_ = std::thread([this, cpus = std::move(cpus), on_failed = options.on_failed] {
    end_ = Catch([&] { return follower_->Run(cpus); });
    ended_.Notify();
    if (on_failed) on_failed();
  });
  diagnostics_ = std::make_unique<probe::DiagnosticsServiceImpl>(
      RolloutDiagnostics(ranks_->group().rank(), *receiver_, nullptr));
  ASSIGN_OR_RETURN(server_, rpc::Server::Start({.listen = options.listen,
                                                .health_listen = options.health_listen,
                                                .role = "rollout",
                                                .health_names = {kWeightServiceName},
                                                .on_drain =
                                                    [this] {
                                                      diagnostics_->Shutdown();
                                                      receiver_->Shutdown();
                                                    }},
                                               {weight_service_.get(), diagnostics_.get()}));
  if (!options.metrics.empty()) {
    ASSIGN_OR_RETURN(metrics_server_,
                     metrics::MetricsServer::Start(options.metrics,
                                                   {.role = "rollout",
                                                    .version = std::string(version::BuildVersion()),
                                                    .rank = ranks_->group().rank()}));
    metrics_server_->Add(server_->metrics());
  }
  RETURN_IF_ERROR(ranks_->TellAddress(server_->address(), DescribeRank(*model_, size)));
  if (options.commit_folder) {
    RETURN_IF_ERROR(CommitFolder(path, model_->table(), *receiver_));
  }
  server_->SetServing(kWeightServiceName, true);
  telemetry::LogInfo("rollout rank serving", {{"address", server_->address()},
                                              {"rank", ranks_->group().rank()},
                                              {"ranks", ranks_->group().size()},
                                              {"device", engine_options.device.str()},
                                              {"model", path}});
  if (!options.ready_file.empty()) {
    RETURN_IF_ERROR(rpc::WriteReadyFile(options.ready_file, server_->address()));
  }
  return absl::OkStatus();
}

FollowerProcess::~FollowerProcess() { Stop(); }

absl::Status FollowerProcess::End(absl::Duration grace) {
  const bool ended = ended_.WaitForNotificationWithTimeout(grace);
  Stop();
  if (!ended) return absl::DeadlineExceededError("rank 0 of the replica sent no stop order");
  return end_;
}

void FollowerProcess::Stop() {
  // First, so that no commit waits for rank 0 any more.
  if (ranks_ != nullptr && thread_.joinable() && !ended_.HasBeenNotified()) {
    ranks_->group().Abort("the rank stops");
  }
  if (server_ != nullptr) server_->Drain(absl::ZeroDuration());
  if (receiver_ != nullptr) receiver_->Shutdown();
  if (thread_.joinable()) thread_.join();
}

}  // namespace tandem::rollout
