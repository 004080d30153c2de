#include "services/trainer/service/trainer_process.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/comm/choose_group.h"
#include "common/comm/device_mesh.h"
#include "common/comm/roll_call.h"
#include "common/comm/run_with_deadline.h"
#include "common/host/control_group.h"
#include "common/host/cpu_list.h"
#include "common/host/gpus.h"
#include "common/metrics/metrics_server.h"
#include "common/model/device_packed_attention.h"
#include "common/model/device_processor.h"
#include "common/model/numerics.h"
#include "common/model/processor.h"
#include "common/rank_setup/mesh_shape.h"
#include "common/rpc/process.h"
#include "common/rpc/server.h"
#include "common/rpc/transport_security.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/version/version.h"
#include "services/trainer/service/control_link.h"
#include "services/trainer/service/follower.h"
#include "services/trainer/service/leader_server.h"
#include "services/trainer/service/rank_publisher.h"
#include "services/trainer/service/rank_worker.h"
#include "services/trainer/service/same_kernels.h"
#include "services/trainer/service/trainer_engine.h"

namespace tandem::trainer {
namespace {

constexpr absl::Duration kDrainGrace = absl::Seconds(20);
// After a failure every response is ready; this only waits for callers that read slowly.
constexpr absl::Duration kFailureGrace = absl::Seconds(3);

int NumThreads(const TrainerProcessOptions& options) {
  if (const int64_t given = options.config.trainer().threads(); given > 0) {
    return static_cast<int>(given);
  }
  const int cores = host::UsableCores();
  return std::max(1, cores / options.environment.local_world_size);
}

// The ranks' rendezvous; rank 0 serves the store unless torchrun does.
class RendezvousStore {
 public:
  static absl::StatusOr<RendezvousStore> Arrange(const TrainerProcessOptions& options) {
    const comm::LaunchEnvironment& environment = options.environment;
    RendezvousStore out;
    out.rendezvous.host = environment.master_host;
    out.rendezvous.port = environment.master_port;
    out.rendezvous.prefix = "tandem-trainer";
    if (environment.world_size == 1) return out;
    // torchrun's agent may serve the store itself, and keeps it over restarts of the ranks.
    const char* agent_store = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
    const bool has_agent = agent_store != nullptr && std::string(agent_store) == "True";
    out.rendezvous.secret = environment.group_secret;
    out.rendezvous.store_has_secret = !has_agent;
    if (has_agent) {
      const char* restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
      absl::StrAppend(&out.rendezvous.prefix, "/", restarts == nullptr ? "0" : restarts);
    } else if (environment.rank == 0) {
      ASSIGN_OR_RETURN(out.store, comm::StoreServer::Start({.host = environment.master_host,
                                                            .port = environment.master_port,
                                                            .secret = environment.group_secret}));
    }
    return out;
  }

  comm::Rendezvous rendezvous;
  std::unique_ptr<comm::StoreServer> store;  // of the leader
};

// Makes the GPU, if one is chosen, the thread's current device.
absl::StatusOr<at::Device> UseDevice(const host::DeviceChoice& choice) {
  if (!choice.on_gpu()) return at::Device(at::kCPU);
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(choice.gpu));
  try {
    c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("trainer.device: ", choice.description,
                                               " cannot be used: ", comm::FirstLine(error.what())));
  }
  return device;
}

absl::StatusOr<std::unique_ptr<comm::DeviceMesh>> JoinMesh(const TrainerProcessOptions& options,
                                                           const comm::Rendezvous& rendezvous,
                                                           at::Device device,
                                                           const absl::Notification* cancel) {
  const config::v1::TrainerConfig& trainer = options.config.trainer();
  ASSIGN_OR_RETURN(comm::MeshShape shape,
                   setup::MeshShapeOf(trainer, options.environment.local_world_size));
  // float32 gradients need no groups by host.
  if (options.config.model().dtype() == config::v1::ELEMENT_TYPE_FLOAT32 &&
      trainer.reduce_dtype() != config::v1::ELEMENT_TYPE_BFLOAT16) {
    shape.ranks_per_host = 0;
  }
  return comm::DeviceMesh::Create(
      shape, options.environment.rank,
      [&](const std::string& name, int rank,
          int size) -> absl::StatusOr<std::unique_ptr<comm::ProcessGroup>> {
        comm::GroupOptions group;
        group.name = name;
        group.rank = rank;
        group.size = size;
        group.rendezvous = rendezvous;
        group.rendezvous.prefix = absl::StrCat(rendezvous.prefix, "/", name);
        group.timeout = absl::Seconds(trainer.collective_timeout_s());
        group.cancel = cancel;
        return comm::CreateProcessGroup(group, device, trainer.shared_memory());
      });
}

// Waits, on rank 0, until every rank has reached the rendezvous.
absl::Status AwaitRanks(const TrainerProcessOptions& options, const comm::Rendezvous& rendezvous,
                        const absl::Notification* cancel) {
  const comm::LaunchEnvironment& environment = options.environment;
  if (environment.world_size == 1) return absl::OkStatus();
  comm::RollCallOptions roll;
  roll.rendezvous = rendezvous;
  roll.rank = environment.rank;
  roll.size = environment.world_size;
  roll.timeout = absl::Seconds(options.config.trainer().collective_timeout_s());
  roll.cancel = cancel;
  roll.on_missing = [&](const std::vector<int>& missing) {
    telemetry::LogInfo("waiting for trainer ranks",
                       {{"missing", host::FormatCpuList(missing)},
                        {"ranks", environment.world_size},
                        {"rendezvous", absl::StrCat(rendezvous.host, ":", rendezvous.port)}});
  };
  return comm::CallRoll(roll);
}

// A group of all ranks for tensors on the CPU, if the mesh's groups move those of a device: a wait
// of minutes there would occupy the device with a kernel. Null if the mesh will do.
absl::StatusOr<std::unique_ptr<comm::ProcessGroup>> JoinControl(
    const TrainerProcessOptions& options, const comm::Rendezvous& rendezvous, at::Device device,
    const absl::Notification* cancel) {
  if (device.is_cpu()) return nullptr;
  const config::v1::TrainerConfig& trainer = options.config.trainer();
  comm::GroupOptions group;
  group.name = "control";
  group.rank = options.environment.rank;
  group.size = options.environment.world_size;
  group.rendezvous = rendezvous;
  group.rendezvous.prefix = absl::StrCat(rendezvous.prefix, "/", group.name);
  group.timeout = absl::Seconds(trainer.collective_timeout_s());
  group.cancel = cancel;
  return comm::CreateProcessGroup(group, at::kCPU, trainer.shared_memory());
}

// Makes a run reproducible: ATen, which computes the gradients on a GPU, uses deterministic
// algorithms.
absl::Status PrepareExact(at::Device device) {
  ASSIGN_OR_RETURN(std::string processor, model::ProcessorOf(device));
  model::SetProcessor(std::move(processor));
  if (device.is_cpu()) return absl::OkStatus();
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // before its first product
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  return absl::OkStatus();
}

// Rejects models that the kernels of exact numerics cannot compute on the device.
absl::Status CheckExactDevice(const model::ModelSpec& spec, at::Device device) {
  for (const model::LayerSpec& layer : spec.layers) {
    const int64_t head_dim = std::max(layer.attention.head_dim, layer.attention.value_dim());
    if (device.is_cpu()) continue;
    if (head_dim <= model::kMaxHeadDimOnGpu) continue;
    return absl::UnimplementedError(
        absl::StrCat("numerics: exact on ", device.str(), " supports a head_dim of at most ",
                     model::kMaxHeadDimOnGpu, ", found ", head_dim,
                     "; set numerics to fast, or hide the GPUs with CUDA_VISIBLE_DEVICES="));
  }
  return absl::OkStatus();
}

absl::Status RunLeader(const TrainerProcessOptions& options, const std::string& device_description,
                       TrainerEngine& engine, RankPublisher& publisher,
                       std::vector<std::unique_ptr<ControlLink>> links,
                       metrics::MetricsServer* metrics, rpc::TerminationSignal& termination) {
  LeaderServerOptions server_options;
  server_options.config = options.config;
  // Larger in every later process, as long as the clock moves forward; fine enough that two
  // trainers that start together differ.
  server_options.incarnation = absl::ToUnixMicros(absl::Now());
  server_options.listen = options.listen;
  server_options.health_listen = options.health_listen;
  server_options.device_description = device_description;
  server_options.num_threads = NumThreads(options);
  server_options.on_failed = [&termination] { termination.Trigger(SIGTERM); };
  ASSIGN_OR_RETURN(
      std::unique_ptr<LeaderServer> server,
      LeaderServer::Start(std::move(server_options), engine, publisher, std::move(links)));
  if (metrics != nullptr) {
    metrics->Add(server->metrics());
    metrics->Add(server->call_metrics());
  }
  telemetry::LogInfo("trainer serving", {{"address", server->address()},
                                         {"parameters", engine.spec().num_parameters()},
                                         {"ranks", engine.mesh().size()}});
  if (!options.ready_file.empty()) {
    RETURN_IF_ERROR(rpc::WriteReadyFile(options.ready_file, server->address()));
  }
  termination.Wait();
  const bool failed = server->status().Get().state() == v1::TRAINER_STATE_FAILED;
  absl::Status end = server->Stop(failed ? kFailureGrace : kDrainGrace);
  if (!end.ok()) server.release();  // its thread may never end; the process does
  return end;
}

absl::Status RunOtherRank(const TrainerProcessOptions& options, TrainerEngine& engine,
                          RankPublisher& publisher, ControlLink& link,
                          rpc::TerminationSignal& termination) {
  RankWorker worker(engine, publisher, options.config);
  std::unique_ptr<rpc::Server> health;  // only the leader is called; the others are probed
  if (!options.health_listen.empty()) {
    ASSIGN_OR_RETURN(health, rpc::Server::Start({.listen = options.health_listen,
                                                 .health_only = true,
                                                 .role = "trainer's health port",
                                                 .health_names = {kTrainerHealthName}},
                                                {}));
    health->SetServing(kTrainerHealthName, true);
  }
  std::optional<absl::Time> told_to_end;
  // The leader drains, then sends stop. If only this rank was told to terminate, it leaves by
  // itself.
  const auto must_leave = [&] {
    if (termination.received() == 0) return false;
    if (!told_to_end.has_value()) told_to_end = absl::Now();
    return absl::Now() - *told_to_end > kDrainGrace;
  };
  return RunFollower(
      link, [&worker](const RankCommand& command) { return worker.Handle(command); }, must_leave);
}

}  // namespace

absl::Status CheckTrainerProcess(const TrainerProcessOptions& options) {
  if (options.config.trainer().ranks() != options.environment.world_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("trainer.ranks is %d, but the launcher started %d ranks (WORLD_SIZE); set "
                        "both to the same number",
                        options.config.trainer().ranks(), options.environment.world_size));
  }
  if (!options.config.trainer().mesh().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "trainer.mesh: ", options.config.trainer().mesh(),
        " must be resolved before the ranks start; ",
        "tandem train --dry-run --output FILE writes the configuration with the chosen values"));
  }
  if (options.environment.world_size > 1 && options.environment.master_port == 0) {
    return absl::InvalidArgumentError(
        "MASTER_PORT: expected the port of the ranks' rendezvous, found none");
  }
  return comm::CheckGroupSecret(options.environment,
                                rpc::TransportSecurity::OfProcess()->has_tls());
}

absl::Status RunTrainerProcess(const TrainerProcessOptions& options,
                               rpc::TerminationSignal& termination) {
  at::set_num_threads(NumThreads(options));
  const bool exact = options.config.numerics() == config::v1::NUMERICS_EXACT;
  model::SetNumerics(exact ? model::Numerics::kExact : model::Numerics::kFast);
  const comm::LaunchEnvironment& environment = options.environment;
  const absl::Duration timeout = absl::Seconds(options.config.trainer().collective_timeout_s());
  // Shared: the signal may come when this function has returned.
  auto cancel = std::make_shared<absl::Notification>();
  termination.OnSignal([cancel] { cancel->Notify(); });

  std::unique_ptr<metrics::MetricsServer> metrics;
  if (!options.metrics.empty()) {
    ASSIGN_OR_RETURN(metrics, metrics::MetricsServer::Start(
                                  options.metrics, {.role = "trainer",
                                                    .version = std::string(version::BuildVersion()),
                                                    .rank = environment.rank}));
  }
  // Refused now, not when the other ranks have come.
  RETURN_IF_ERROR(TrainerEngine::CheckConfig(options.config).status());
  RETURN_IF_ERROR(
      setup::MeshShapeOf(options.config.trainer(), environment.local_world_size).status());
  ASSIGN_OR_RETURN(const host::DeviceChoice choice,
                   host::ChooseDevice("trainer.device", options.config.trainer().device(),
                                      environment.local_rank, model::GpuFactsOfProcess()));
  telemetry::LogInfo("the trainer computes on",
                     {{"rank", absl::StrCat(environment.rank)}, {"device", choice.description}});
  ASSIGN_OR_RETURN(RendezvousStore rendezvous_store, RendezvousStore::Arrange(options));
  RETURN_IF_ERROR(AwaitRanks(options, rendezvous_store.rendezvous, cancel.get()));
  const comm::Rendezvous rendezvous = comm::AfterRollCall(rendezvous_store.rendezvous);
  std::vector<std::unique_ptr<ControlLink>> links;
  for (int follower = 1; follower < environment.world_size; ++follower) {
    if (environment.rank != 0 && environment.rank != follower) continue;
    ASSIGN_OR_RETURN(links.emplace_back(), ControlLink::Join(rendezvous, environment.rank, follower,
                                                             timeout, cancel.get()));
  }
  ASSIGN_OR_RETURN(const at::Device device, UseDevice(choice));
  if (exact) {
    RETURN_IF_ERROR(PrepareExact(device));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<comm::DeviceMesh> mesh,
                   JoinMesh(options, rendezvous, device, cancel.get()));
  if (exact) {
    RETURN_IF_ERROR(CheckSameKernels(mesh->world(), device));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<comm::ProcessGroup> control,
                   JoinControl(options, rendezvous, device, cancel.get()));
  ASSIGN_OR_RETURN(std::unique_ptr<TrainerEngine> engine,
                   TrainerEngine::Create(options.config, *mesh, device));
  if (exact) {
    RETURN_IF_ERROR(CheckExactDevice(engine->spec(), device));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<RankPublisher> publisher,
                   RankPublisher::Create(*engine, options.config,
                                         {.control = control.get(),
                                          .update_device = device,
                                          .group_secret = environment.group_secret}));

  absl::Status end = environment.rank == 0
                         ? RunLeader(options, choice.description, *engine, *publisher,
                                     std::move(links), metrics.get(), termination)
                         : RunOtherRank(options, *engine, *publisher, *links[0], termination);
  if (!end.ok()) {
    // Nothing here may be destroyed while a thread is left in it; the caller ends the process.
    metrics.release();
    publisher.release();
    engine.release();
    control.release();
    mesh.release();
  }
  return end;
}

}  // namespace tandem::trainer
