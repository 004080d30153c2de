// tandem bench sync: seconds and bytes of a weight update, beside bare collectives of the same
// bytes.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/io/dtype.h"
#include "common/io/json_text.h"
#include "common/io/model_config.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "common/security/data_plane.h"
#include "common/status/status_macros.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/fleet_plan.h"
#include "common/weights/holdings.h"
#include "common/weights/manifest.h"
#include "common/weights/model_layout.h"
#include "common/weights/network_model.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/bench/bench.h"
#include "tools/tandem/bench/device_transfer.h"
#include "tools/tandem/bench/host_rates.h"
#include "tools/tandem/bench/new_version.h"
#include "tools/tandem/bench/raw_transfer.h"
#include "tools/tandem/commands/run_options.h"
#include "tools/tandem/commands/session.h"

namespace tandem::bench {
namespace {

constexpr int64_t kDeviceBucketBytes = int64_t{256} << 20;

struct SyncOptions {
  std::string model;
  int64_t trainer_ranks = 2;
  int64_t rollouts = 2;
  std::string transport = "broadcast";
  std::string dtype = "float32";
  double learning_rate = 1e-6;
  int repeats = 5;
  bool no_shared_memory = false;
  bool same_version = false;
  std::string device;  // empty: the services, as configured
  std::string backend;
  std::vector<std::string> overrides;
};

// The share of a model's elements that a rollout packs for its products (packed_arena.h).
double PackedShare(const model::ParameterTable& table) {
  double packed = 0, all = 0;
  for (int i = 0; i < static_cast<int>(table.parameters().size()); ++i) {
    const auto elements = static_cast<double>(table.parameter(i).numel);
    all += elements;
    if (table.IsMultipliedBy(i)) packed += elements;
  }
  return packed / all;
}

constexpr double kNoWait = std::numeric_limits<double>::infinity();  // bytes per second

// Predicts such an update on this host with the network model and rates measured now.
// `wire_seconds`: time of bare sends along the update's route.
absl::StatusOr<double> Predict(const SyncOptions& options, const model::ModelSpec& spec,
                               const RawTransfer& transfer, double wire_seconds,
                               double call_seconds) {
  const int64_t element_bytes = options.dtype == "bfloat16" ? 2 : 4;
  const bool lends = transfer.chain && transfer.backend == "messages";
  const HostRates rates =
      MeasureHostRates({.element_bytes = element_bytes,
                        .size_bytes = transfer.size_bytes,
                        .columns = spec.hidden_size,
                        .packed_share = PackedShare(model::ParameterTable(spec)),
                        .message_bytes = transfer.bucket_bytes,
                        .lends = lends,
                        .passes_on = options.rollouts > 1});
  // Bytes that are sent from the shards are digested there.
  const double send = transfer.chain ? kNoWait : rates.send;
  // Bare sends keep all cores busy moving bytes. The only copy of lent bytes is the receiver's.
  const auto ranks = static_cast<double>(options.trainer_ranks);
  const double times =
      static_cast<double>(options.rollouts) + (transfer.chain ? 0 : (ranks - 1) / ranks);
  const double local = lends ? kNoWait
                             : times * static_cast<double>(transfer.size_bytes) /
                                   (wire_seconds * static_cast<double>(rates.cores));
  // Time of bare sends of lent bytes beyond the copies: messages and thread wake-ups.
  const double passing = wire_seconds - static_cast<double>(transfer.size_bytes) / rates.copy;
  const weights::Network network = weights::MeasuredHost(
      rates.cores, local, send, rates.unpack, call_seconds + (lends ? std::max(0.0, passing) : 0));
  ASSIGN_OR_RETURN(const weights::ModelLayout trainer, weights::LayoutOf(spec, {}, 1));
  comm::MeshShape mesh;
  mesh.dp_shard = static_cast<int>(options.trainer_ranks);
  ASSIGN_OR_RETURN(
      const weights::FleetPlan fleet,
      weights::MakeFleetPlan(
          weights::TrainerHoldings(trainer, mesh), {{1, weights::RolloutHoldings(trainer)}},
          std::vector<int>(options.rollouts, 1),
          {.element_bytes = element_bytes, .bucket_bytes = transfer.bucket_bytes}));
  return options.transport == "broadcast"
             ? weights::PredictBroadcast(fleet, network, transfer.size_bytes, transfer.bucket_bytes)
                   .seconds
             : weights::PredictReshard(fleet, network).seconds;
}

// Times the transport alone.
absl::Status RunOnDevice(const SyncOptions& options) {
  const bool cuda = options.device == "cuda";
  if ((!cuda && options.device != "cpu") || options.transport != "broadcast") {
    return commands::Misuse(absl::InvalidArgumentError(
        "--device: expected cuda or cpu; it measures --transport broadcast only"));
  }
  RETURN_IF_ERROR(commands::AddFamilies(options.overrides));
  ASSIGN_OR_RETURN(const io::ModelConfig model_config, io::ReadModelConfig(options.model));
  ASSIGN_OR_RETURN(const model::ModelSpec spec,
                   model::ParseModelSpec(model_config.json, model_config.path));
  const io::DType dtype = options.dtype == "bfloat16" ? io::DType::kBF16 : io::DType::kF32;
  DeviceTransfer transfer;
  ASSIGN_OR_RETURN(transfer.manifest, weights::MakeManifest(model::ParameterTable(spec), dtype));
  ASSIGN_OR_RETURN(const int64_t size_bytes, weights::ManifestBytes(transfer.manifest));
  transfer.device = options.device;
  transfer.backend = !options.backend.empty() ? options.backend : cuda ? "nccl" : "shared_memory";
  transfer.rollouts = static_cast<int>(options.rollouts);
  transfer.bucket_bytes = weights::ChooseBucketBytes(kDeviceBucketBytes, size_bytes);
  transfer.repeats = options.repeats;
  ASSIGN_OR_RETURN(nlohmann::json line, MeasureDeviceTransfer(transfer));
  const double gigabytes = static_cast<double>(size_bytes) / 1e9;
  for (const std::string what : {"", "raw_", "pack_", "digest_", "copy_"}) {
    line[what + "gigabytes_per_second"] = gigabytes / line[what + "seconds"].get<double>();
  }
  line["bench"] = "sync";
  line["model"] = options.model;
  line["dtype"] = options.dtype;
  line["transport"] = options.transport;
  line["backend"] = transfer.backend;
  line["rollouts"] = options.rollouts;
  line["bytes"] = size_bytes;
  line["ratio_to_raw"] = line["raw_seconds"].get<double>() / line["seconds"].get<double>();
  line["repeats"] = options.repeats;
  std::printf("%s\n", io::JsonText(line).c_str());
  return absl::OkStatus();
}

// Sends the live version to all replicas once more.
absl::StatusOr<trainer::v1::PublishWeightsResponse> SendAgain(commands::Session& session) {
  std::vector<trainer::v1::RolloutReplica> replicas;
  for (const auto& replica : session.fleet().replicas()) {
    trainer::v1::RolloutReplica& to = replicas.emplace_back();
    to.set_replica_id(replica.id);
    to.add_rank_addresses(replica.address);
    to.set_resend(true);
  }
  return session.trainer().PublishWeights(replicas);
}

// The next of the updates that are timed.
absl::StatusOr<trainer::v1::PublishWeightsResponse> Update(const SyncOptions& options, int repeat,
                                                           int64_t vocab_size,
                                                           commands::Session& session) {
  if (options.same_version) return SendAgain(session);
  RETURN_IF_ERROR(MakeNewVersion(session.trainer(), repeat, vocab_size));
  return session.trainer().PublishWeights(session.fleet());
}

absl::Status RunSync(const SyncOptions& options) {
  if (!options.device.empty()) return RunOnDevice(options);
  commands::Session session;
  commands::ScratchFolder scratch(&session);
  if (options.transport != "broadcast" && options.transport != "reshard" &&
      options.transport != "delta") {
    return commands::Misuse(absl::InvalidArgumentError(
        absl::StrCat("--transport ", options.transport, ": expected broadcast, reshard or delta")));
  }
  if (options.same_version && options.transport == "delta") {
    return commands::Misuse(absl::InvalidArgumentError(
        "--same-version: nothing changes, so there is no delta to send"));
  }
  commands::RunOptions run;
  run.overrides = {absl::StrCat("model.path='", options.model, "'"),
                   absl::StrCat("model.dtype=", options.dtype),
                   absl::StrCat("trainer.ranks=", options.trainer_ranks),
                   absl::StrCat("rollout.replicas=", options.rollouts),
                   absl::StrCat("trainer.weight_transport=", options.transport),
                   absl::StrCat("actor.optim.lr=", options.learning_rate),
                   absl::StrCat("run_dir=", scratch.path())};
  if (options.no_shared_memory) run.overrides.push_back("trainer.shared_memory=false");
  run.overrides.insert(run.overrides.end(), options.overrides.begin(), options.overrides.end());
  ASSIGN_OR_RETURN(const config::v1::RunConfig config, commands::ResolveConfig(run, {}));
  ASSIGN_OR_RETURN(const io::ModelConfig model_config, io::ReadModelConfig(options.model));
  ASSIGN_OR_RETURN(const model::ModelSpec spec,
                   model::ParseModelSpec(model_config.json, model_config.path));
  RETURN_IF_ERROR(session.Explain(session.Open(config, {.local = true})));

  // The first update makes groups, arenas and buffers; it is not timed.
  RETURN_IF_ERROR(session.Explain(session.trainer().PublishWeights(session.fleet()).status()));
  // Every socket of the update is TLS.
  const bool encrypts = options.no_shared_memory && security::DataPlaneOfProcess().encryption ==
                                                        security::DataPlaneEncryption::kAlways;
  std::vector<double> seconds, pauses, raw_seconds, wire_seconds, tcp_seconds;
  std::set<std::string> transports;
  std::map<std::string, std::vector<double>> busy, exposed;
  int64_t size_bytes = 0;
  RawTransfer transfer;
  const bool chain = options.transport != "broadcast";
  std::vector<double> sent_bytes, max_rank_sent_bytes, max_rank_received_bytes, changed_shares;
  for (int repeat = 1; repeat <= options.repeats; ++repeat) {
    const auto response = Update(options, repeat, spec.vocab_size, session);
    RETURN_IF_ERROR(session.Explain(response.status()));
    seconds.push_back(response->seconds());
    size_bytes = response->size_bytes();
    sent_bytes.push_back(static_cast<double>(response->sent_bytes()));
    max_rank_sent_bytes.push_back(static_cast<double>(response->max_rank_sent_bytes()));
    if (response->has_changed_share()) changed_shares.push_back(response->changed_share());
    double pause = 0;
    for (const auto& replica : response->replicas()) {
      pause = std::max(pause, replica.pause_seconds());
    }
    pauses.push_back(pause);
    std::map<std::string, int64_t> received;  // by rank
    for (const auto& link : response->links()) {
      transports.insert(link.transport());
      received[link.to()] += link.size_bytes();
    }
    int64_t most = 0;
    for (const auto& [rank, bytes] : received) most = std::max(most, bytes);
    max_rank_received_bytes.push_back(static_cast<double>(most));
    for (const auto& phase : response->phases()) {
      busy[phase.phase()].push_back(phase.busy());
      exposed[phase.phase()].push_back(phase.exposed());
    }
    const int64_t bucket = config.rollout().update_weights_bucket_megabytes() * (int64_t{1} << 20);
    transfer = {.trainer_ranks = static_cast<int>(options.trainer_ranks),
                .rollouts = static_cast<int>(options.rollouts),
                .size_bytes = size_bytes,
                .bucket_bytes =
                    chain ? weights::ChooseMessageBytes(bucket, size_bytes / options.trainer_ranks)
                          : weights::ChooseBucketBytes(bucket, size_bytes),
                .chain = chain};
    // Taken in turn with the updates, so that both see the same machine.
    ASSIGN_OR_RETURN(raw_seconds.emplace_back(), MeasureRawTransfer(transfer));
    if (options.transport == "delta") continue;
    if (encrypts) {
      transfer.backend = chain ? "socket" : "gloo";
      ASSIGN_OR_RETURN(tcp_seconds.emplace_back(), MeasureRawTransfer(transfer));
      transfer.encrypted = true;
    } else if (chain) {
      transfer.backend = options.no_shared_memory ? "local_socket" : "messages";
    } else if (!options.no_shared_memory) {
      transfer.backend = "shared_memory";
    }
    ASSIGN_OR_RETURN(wire_seconds.emplace_back(), MeasureRawTransfer(transfer));
  }
  nlohmann::json phases = nlohmann::json::object();
  for (const auto& [name, values] : busy) {
    phases[name] = {{"busy", Median(values)}, {"exposed", Median(exposed[name])}};
  }
  const double update_s = Median(seconds);
  const double raw_s = Median(raw_seconds);
  nlohmann::json predicted;  // null for a delta
  if (!wire_seconds.empty()) {
    // A broadcast gathers bytes, and waits for the last ones when it verifies.
    double calls = Median(exposed["begin"]) + Median(exposed["commit"]);
    if (chain) calls += Median(exposed["gather"]) + Median(exposed["verify"]);
    ASSIGN_OR_RETURN(predicted, Predict(options, spec, transfer, Median(wire_seconds), calls));
  }
  const double gigabytes = static_cast<double>(size_bytes) / 1e9;
  // Rate of bare sends along the update's route and, if that uses TLS, over plain TCP.
  const auto rate = [&](const std::vector<double>& taken) {
    return taken.empty() ? nlohmann::json() : nlohmann::json(gigabytes / Median(taken));
  };
  const nlohmann::json line = {{"bench", "sync"},
                               {"model", options.model},
                               {"dtype", options.dtype},
                               {"transport", options.transport},
                               {"trainer_ranks", options.trainer_ranks},
                               {"rollouts", options.rollouts},
                               {"bytes", size_bytes},
                               {"seconds", update_s},
                               {"gigabytes_per_second", gigabytes / update_s},
                               {"raw_seconds", raw_s},
                               {"raw_gigabytes_per_second", gigabytes / raw_s},
                               {"ratio_to_raw", raw_s / update_s},
                               {"predicted_seconds", predicted},
                               {"transports", transports},
                               {"wire_gigabytes_per_second", rate(wire_seconds)},
                               {"tcp_gigabytes_per_second", rate(tcp_seconds)},
                               {"sent_bytes", Median(sent_bytes)},
                               {"max_rank_sent_bytes", Median(max_rank_sent_bytes)},
                               {"max_rank_received_bytes", Median(max_rank_received_bytes)},
                               {"changed_shares", changed_shares},
                               {"pause_seconds", Median(pauses)},
                               {"phases", phases},
                               {"repeats", options.repeats}};
  std::printf("%s\n", io::JsonText(line).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddSync(CLI::App& bench, commands::Runner& runner) {
  CLI::App* command = bench.add_subcommand("sync", "Time and bytes of a weight update");
  auto options = std::make_shared<SyncOptions>();
  command->add_option("--model", options->model, "Hugging Face folder")->required();
  command->add_option("--trainer-ranks", options->trainer_ranks, "Processes of the trainer")
      ->capture_default_str();
  command->add_option("--rollouts", options->rollouts, "Rollout replicas")->capture_default_str();
  command->add_option("--transport", options->transport, "broadcast, reshard or delta")
      ->capture_default_str();
  command
      ->add_option("--learning-rate", options->learning_rate,
                   "Learning rate of the steps between updates; it decides how much changes")
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "float32 or bfloat16")->capture_default_str();
  command->add_option("--repeats", options->repeats, "Updates; reports the median")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_flag("--no-shared-memory", options->no_shared_memory,
                    "Uses sockets between ranks of one host; TLS with --data-plane-encryption "
                    "always, as between hosts");
  command->add_flag("--same-version", options->same_version,
                    "Resends the live version in each update, without training steps: saves the "
                    "memory of gradients and moments");
  command->add_option("--device", options->device,
                      "cuda or cpu: measures only the broadcast, between processes with buckets "
                      "and arenas on this device");
  command->add_option("--backend", options->backend,
                      "With --device: nccl (default), cuda_ipc, gloo or shared_memory");
  command->add_option("--set", options->overrides, "Overrides a configuration value")
      ->allow_extra_args(false);
  SetRun(*command, runner, options, RunSync);
}

}  // namespace tandem::bench
