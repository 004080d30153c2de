// tandem sync: makes the trainer's weights live on running rollouts, or compares what they have.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/config/load.h"
#include "common/io/json_text.h"
#include "common/status/status_macros.h"
#include "common/text/printable.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/driver/endpoint_list.h"
#include "tools/tandem/driver/rank_addresses.h"
#include "tools/tandem/driver/trainer_client.h"
#include "tools/tandem/driver/weight_check.h"

namespace tandem::commands {
namespace {

using nlohmann::json;

// Timeout for asking a replica for its ranks' addresses.
constexpr absl::Duration kAskTimeout = absl::Seconds(5);

struct SyncOptions {
  std::vector<std::string> config_files;
  std::vector<std::string> overrides;
  std::string trainer;
  std::vector<std::string> rollouts;
  bool verify = false;
  bool take_over = false;
  bool as_json = false;
};

// The services that a call uses.
struct Services {
  std::unique_ptr<driver::TrainerClient> trainer;
  std::vector<trainer::v1::RolloutReplica> replicas;
  absl::Duration timeout;
};

absl::StatusOr<Services> FindServices(const SyncOptions& options) {
  auto config = config::LoadRunConfig(options.config_files, options.overrides);
  if (!config.ok()) return Misuse(config.status());
  const std::string trainer =
      options.trainer.empty() ? config->trainer().endpoint() : options.trainer;
  std::vector<std::string> rollouts = options.rollouts;
  if (rollouts.empty()) {
    ASSIGN_OR_RETURN(driver::EndpointList list,
                     driver::EndpointList::Open(config->rollout(), nullptr));
    for (const driver::ReplicaAddress& replica : list.Current()) {
      rollouts.push_back(replica.address);
    }
  }
  if (trainer.empty() || rollouts.empty()) {
    return Misuse(absl::InvalidArgumentError(
        "give --trainer HOST:PORT and --rollout HOST:PORT, or a --config with trainer.endpoint and "
        "rollout.endpoints"));
  }
  Services out;
  out.timeout = absl::Seconds(config->trainer().update_timeout_s());
  out.trainer = std::make_unique<driver::TrainerClient>(trainer, out.timeout, out.timeout);
  if (options.take_over) out.trainer->TakeOverReplicas();
  for (const std::string& rollout : rollouts) {
    trainer::v1::RolloutReplica& replica = out.replicas.emplace_back();
    replica.set_replica_id(absl::StrCat("rollout-", out.replicas.size() - 1));
    std::vector<std::string> ranks = absl::StrSplit(rollout, ',', absl::SkipEmpty());
    if (ranks.size() == 1) ranks = driver::RankAddresses(ranks[0], kAskTimeout);
    replica.mutable_rank_addresses()->Assign(ranks.begin(), ranks.end());
  }
  return out;
}

void PrintUpdate(const trainer::v1::PublishWeightsResponse& update, bool as_json) {
  json phases = json::object();
  std::vector<std::string> exposed;
  for (const auto& phase : update.phases()) {
    phases[phase.phase()] = phase.exposed();
    exposed.push_back(absl::StrFormat("%s %.3f s", phase.phase(), phase.exposed()));
  }
  if (!as_json) {
    std::printf("%-12s %-9s %7s %9s\n", "replica", "committed", "version", "pause_s");
  }
  for (const auto& replica : update.replicas()) {
    json line = {{"replica", replica.replica_id()}, {"committed", replica.committed()}};
    std::string version = "-";
    if (replica.committed()) {
      line["policy_version"] = update.policy_version();
      line["pause_seconds"] = replica.pause_seconds();
      version = absl::StrCat(update.policy_version());
    } else {
      line["error"] = replica.error();
    }
    if (as_json) {
      std::printf("%s\n", io::JsonText(line).c_str());
    } else {
      absl::PrintF("%-12s %-9s %7s %9.6f\n", text::PrintableLine(replica.replica_id()),
                   replica.committed() ? "yes" : "no", version, replica.pause_seconds());
    }
  }
  if (as_json) {
    const json line = {{"policy_version", update.policy_version()},
                       {"model_digest", update.model_digest()},
                       {"seconds", update.seconds()},
                       {"size_bytes", update.size_bytes()},
                       {"sent_bytes", update.sent_bytes()},
                       {"phases", phases}};
    std::printf("%s\n", io::JsonText(line).c_str());
  } else {
    absl::PrintF("version %d in %.3f s, %d bytes, %d sent: %s\n", update.policy_version(),
                 update.seconds(), update.size_bytes(), update.sent_bytes(),
                 absl::StrJoin(exposed, ", "));
  }
}

// Describes how the replica differs from the trainer; empty if it does not.
std::string WhatDiffers(const driver::ReplicaCheck& check,
                        const trainer::v1::GetWeightDigestsResponse& trainer) {
  if (!check.status.ok()) return absl::StrCat(check.replica_id, ": ", check.status.message());
  if (check.policy_version != trainer.policy_version()) {
    return absl::StrFormat("%s, rank %d: version %d is live, but the trainer is at %d",
                           check.replica_id, check.version_rank, check.policy_version,
                           trainer.policy_version());
  }
  if (check.differences.empty()) return "";
  const weights::DigestDifference& first = check.differences.front();
  return absl::StrFormat(
      "%s, %s: tensor %s has digest %s, expected %s; %d of %d tensors differ", check.replica_id,
      first.rank == weights::DigestDifference::kAllRanks ? "all ranks together"
                                                         : absl::StrCat("rank ", first.rank),
      first.tensor, first.found, first.expected, check.differences.size(), trainer.digests_size());
}

// The trainer sends nothing to a replica that has the version already, so nothing is verified
// there: names damaged tensors and has them sent again. Reports replicas that it could not check.
absl::Status FindDamage(Services& services) {
  ASSIGN_OR_RETURN(const auto trainer, services.trainer->GetWeightDigests());
  const std::vector<driver::ReplicaCheck> checks =
      driver::CheckReplicas(trainer, services.replicas, services.timeout);
  for (size_t i = 0; i < checks.size(); ++i) {
    // A replica without weights, or with those of another version or trainer, gets them anyway.
    if (absl::IsFailedPrecondition(checks[i].status)) continue;
    if (!checks[i].status.ok()) {
      std::fprintf(stderr, "%s: cannot check its weights: %s\n",
                   text::PrintableLine(checks[i].replica_id).c_str(),
                   text::Printable(checks[i].status.message()).c_str());
      continue;
    }
    const bool is_foreign =
        checks[i].incarnation != 0 && checks[i].incarnation != trainer.incarnation();
    if (checks[i].differences.empty() || is_foreign) continue;
    std::fprintf(stderr, "%s; sending it again\n",
                 text::Printable(WhatDiffers(checks[i], trainer)).c_str());
    services.replicas[i].set_resend(true);
  }
  return absl::OkStatus();
}

json DescribeCheck(const driver::ReplicaCheck& check,
                   const trainer::v1::GetWeightDigestsResponse& trainer) {
  json line = {{"replica", check.replica_id},
               {"agrees", check.Agrees(trainer.policy_version())},
               {"trainer_version", trainer.policy_version()}};
  if (!check.status.ok()) {
    line["error"] = std::string(check.status.message());
    return line;
  }
  line["policy_version"] = check.policy_version;
  if (check.policy_version != trainer.policy_version()) {
    line["rank"] = check.version_rank;
    return line;
  }
  line["num_tensors"] = trainer.digests_size();
  line["num_different_tensors"] = check.differences.size();
  if (!check.differences.empty()) {
    const weights::DigestDifference& first = check.differences.front();
    const bool all = first.rank == weights::DigestDifference::kAllRanks;
    line["rank"] = all ? json(nullptr) : json(first.rank);
    line["tensor"] = first.tensor;
    line["digest"] = first.found;
    line["expected_digest"] = first.expected;
  }
  return line;
}

void PrintCheck(const driver::ReplicaCheck& check,
                const trainer::v1::GetWeightDigestsResponse& trainer) {
  std::string compared = "-", differ = "-";
  if (check.status.ok() && check.policy_version == trainer.policy_version()) {
    compared = absl::StrCat(trainer.digests_size());
    differ = absl::StrCat(check.differences.size());
  }
  absl::PrintF("%-12s %-6s %7s %8s %7s\n", text::PrintableLine(check.replica_id),
               check.Agrees(trainer.policy_version()) ? "yes" : "no",
               check.status.ok() ? absl::StrCat(check.policy_version) : "-", compared, differ);
}

absl::Status Publish(const SyncOptions& options) {
  ASSIGN_OR_RETURN(Services services, FindServices(options));
  RETURN_IF_ERROR(FindDamage(services));
  ASSIGN_OR_RETURN(const auto update, services.trainer->PublishWeights(services.replicas));
  PrintUpdate(update, options.as_json);
  for (const auto& replica : update.replicas()) {
    if (!replica.committed()) return absl::UnavailableError(replica.error());
  }
  return absl::OkStatus();
}

absl::Status Verify(const SyncOptions& options) {
  ASSIGN_OR_RETURN(const Services services, FindServices(options));
  ASSIGN_OR_RETURN(const auto trainer, services.trainer->GetWeightDigests());
  const std::vector<driver::ReplicaCheck> checks =
      driver::CheckReplicas(trainer, services.replicas, services.timeout);
  if (!options.as_json) {
    absl::PrintF("%-12s %-6s %7s %8s %7s\n", "replica", "agrees", "version", "tensors", "differ");
  }
  std::vector<std::string> differences;
  for (const driver::ReplicaCheck& check : checks) {
    if (options.as_json) {
      std::printf("%s\n", io::JsonText(DescribeCheck(check, trainer)).c_str());
    } else {
      PrintCheck(check, trainer);
    }
    std::string text = WhatDiffers(check, trainer);
    if (!text.empty()) differences.push_back(std::move(text));
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrJoin(differences, "\n  "));
}

}  // namespace

void AddSync(CLI::App& app, Runner& runner) {
  CLI::App* command =
      app.add_subcommand("sync",
                         "Publishes the trainer's weights to running rollouts, also where that "
                         "version is live but damaged; or compares them");
  auto options = std::make_shared<SyncOptions>();
  command->add_option("--config", options->config_files, "YAML files, later ones win");
  command->add_option("--set", options->overrides, "Overrides a configuration value")
      ->allow_extra_args(false);
  command
      ->add_option("--trainer", options->trainer,
                   "HOST:PORT of the trainer's leader, instead of trainer.endpoint")
      ->type_name("HOST:PORT");
  command
      ->add_option(
          "--rollout", options->rollouts,
          "A replica, instead of rollout.endpoints; comma-separated addresses of its ranks")
      ->type_name("HOST:PORT")
      ->allow_extra_args(false);
  command->add_flag("--verify", options->verify,
                    "Publishes nothing: compares the digest of every live tensor on every rank "
                    "with the trainer's; exits 1 if one differs or another version is live");
  command->add_flag("--take-over", options->take_over, "Also takes rollouts from another run");
  command->add_flag("--json", options->as_json, "Prints one JSON object per replica");
  command->callback([&runner, options] {
    runner = [options] { return options->verify ? Verify(*options) : Publish(*options); };
  });
}

}  // namespace tandem::commands
