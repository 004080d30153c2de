#include "services/trainer/service/leader_server.h"

#include <ATen/Parallel.h>

#include <optional>
#include <utility>

#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/telemetry/trace.h"
#include "common/version/version.h"
#include "common/weights/manifest.h"
#include "services/trainer/service/leader_diagnostics.h"

namespace tandem::trainer {
namespace {

constexpr size_t kMaxWaitingCommands = 64;
// After the calls are done the collective thread has nothing left but to notice it.
constexpr absl::Duration kThreadGrace = absl::Seconds(5);

v1::GetModelInfoResponse DescribeModel(const TrainerEngine& engine,
                                       const weights::Manifest& manifest,
                                       const LeaderServerOptions& options) {
  const model::ModelSpec& spec = engine.spec();
  v1::GetModelInfoResponse out;
  out.set_incarnation(options.incarnation);
  out.set_device(options.device_description);
  out.set_architecture(spec.architecture);
  out.set_num_parameters(model::ParameterTable(spec).num_parameters());  // of the whole model
  out.set_vocab_size(spec.vocab_size);
  out.set_max_position_embeddings(spec.max_position_embeddings);
  out.set_num_ranks(engine.mesh().size());
  out.set_dtype(manifest.tensors(0).dtype());
  out.set_build_version(std::string(version::BuildVersion()));
  *out.mutable_manifest() = manifest;
  return out;
}

}  // namespace

LeaderServer::LeaderServer(LeaderServerOptions options, TrainerEngine& engine,
                           RankPublisher& publisher,
                           std::vector<std::unique_ptr<ControlLink>> links)
    : options_(std::move(options)),
      queue_(kMaxWaitingCommands),
      worker_(engine, publisher, options_.config),
      team_(std::move(links),
            [this](const RankCommand& command) { return worker_.Handle(command); }) {}

absl::StatusOr<std::unique_ptr<LeaderServer>> LeaderServer::Start(
    LeaderServerOptions options, TrainerEngine& engine, RankPublisher& publisher,
    std::vector<std::unique_ptr<ControlLink>> links) {
  std::unique_ptr<LeaderServer> out(
      new LeaderServer(std::move(options), engine, publisher, std::move(links)));
  v1::GetModelInfoResponse info = DescribeModel(engine, publisher.manifest(), out->options_);
  out->leader_ =
      std::make_unique<TrainerLeader>(out->options_.config, std::move(info), engine, out->team_,
                                      out->status_, out->options_.lease_clock);
  out->service_ = std::make_unique<TrainerService>(*out->leader_, out->queue_);
  out->diagnostics_ = std::make_unique<probe::DiagnosticsServiceImpl>(
      LeaderDiagnostics(*out->leader_, out->queue_,
                        absl::Seconds(out->options_.config.trainer().collective_timeout_s()),
                        engine.policy().device().is_cuda()));

  rpc::ServerOptions server_options;
  server_options.listen = out->options_.listen;
  server_options.health_listen = out->options_.health_listen;
  server_options.role = "trainer";
  server_options.health_names = {kTrainerHealthName};
  server_options.on_drain = [status = &out->status_, diagnostics = out->diagnostics_.get()] {
    diagnostics->Shutdown();
    const absl::Status failure = status->Refusal();
    status->Close(failure.ok() ? absl::UnavailableError("the trainer is stopping") : failure);
  };
  ASSIGN_OR_RETURN(out->server_,
                   rpc::Server::Start(std::move(server_options),
                                      {out->service_.get(), out->diagnostics_.get()}));
  out->collective_thread_ = std::thread([server = out.get()] { server->RunCollectiveThread(); });
  out->server_->SetServing(kTrainerHealthName, true);
  return out;
}

void LeaderServer::RunCollectiveThread() {
  telemetry::NameTraceThread("collectives");
  at::set_num_threads(options_.num_threads);
  bool failed = false;
  while (!queue_.IsFinished()) {
    std::optional<CommandQueue::Command> command = queue_.Next(options_.heartbeat_interval);
    if (command.has_value()) {
      (*command)();
    } else if (!failed && team_.size() > 1) {
      leader_->Heartbeat().IgnoreError();  // a loss shows in the status
    }
    if (!failed && status_.Get().state() == v1::TRAINER_STATE_FAILED) {
      failed = true;
      server_->SetServing(kTrainerHealthName, false);
      if (options_.on_failed) options_.on_failed();
    }
  }
  if (!failed) {
    leader_->FinishCheckpoint().IgnoreError();
    team_.Stop();
  }
  collective_thread_done_.Notify();
}

absl::Status LeaderServer::Stop(absl::Duration grace) {
  stopped_ = true;
  server_->Drain(grace);
  queue_.Close();
  if (!collective_thread_done_.WaitForNotificationWithTimeout(kThreadGrace)) {
    return absl::DeadlineExceededError(
        "a command was still running at the end of the grace period");
  }
  if (status_.Get().state() == v1::TRAINER_STATE_FAILED) return status_.Refusal();
  return absl::OkStatus();
}

LeaderServer::~LeaderServer() {
  if (server_ != nullptr && !stopped_) Stop(absl::ZeroDuration()).IgnoreError();
  if (collective_thread_.joinable()) collective_thread_.join();
}

}  // namespace tandem::trainer
