// tandem status: prints the identity and state of running services.
#include <cstdio>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/io/json_text.h"
#include "common/rpc/channel.h"
#include "common/rpc/enum_check.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/text/count.h"
#include "common/text/printable.h"
#include "nlohmann/json.hpp"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tandem/trainer/v1/trainer_service.grpc.pb.h"
#include "tools/tandem/commands/command.h"

namespace tandem::commands {
namespace {

using nlohmann::json;

constexpr absl::Duration kTimeout = absl::Seconds(5);

struct StatusOptions {
  std::string trainer;
  std::vector<std::string> rollouts;
  bool as_json = false;
};

std::string Lower(const std::string& name, absl::string_view prefix) {
  return absl::AsciiStrToLower(absl::StripPrefix(name, prefix));
}

json AskTrainer(const std::string& address) {
  json line = {{"role", "trainer"}, {"address", address}};
  auto stub = trainer::v1::TrainerService::NewStub(rpc::MakeChannel(address));
  auto context = rpc::MakeContext(kTimeout);
  trainer::v1::GetModelInfoResponse info;
  const absl::Status status = rpc::FromGrpcStatus(stub->GetModelInfo(context.get(), {}, &info));
  if (!status.ok()) {
    line["state"] = "unreachable";
    line["error"] = std::string(status.message());
    return line;
  }
  line["state"] = "up";
  line["policy_version"] = info.policy_version();
  line["step"] = info.step();
  line["incarnation"] = info.incarnation();
  if (info.has_lease_holder()) {
    const trainer::v1::LeaseHolder& holder = info.lease_holder();
    line["driver"] = absl::StrFormat("run %s, process %d on %s, %s", holder.run_id(), holder.pid(),
                                     holder.host(), holder.run_dir());
  }
  line["model"] = info.architecture();
  line["parameters"] = info.num_parameters();
  line["build_version"] = info.build_version();
  line["ranks"] = info.num_ranks();
  line["dtype"] = info.dtype();
  return line;
}

json AskRollout(const std::string& address) {
  json line = {{"role", "rollout"}, {"address", address}};
  auto stub = rollout::v1::RolloutService::NewStub(rpc::MakeChannel(address));
  auto context = rpc::MakeContext(kTimeout);
  rollout::v1::GetServerInfoResponse info;
  absl::Status status = rpc::FromGrpcStatus(stub->GetServerInfo(context.get(), {}, &info));
  if (status.ok()) status = rpc::CheckAnswerEnums(info);
  if (!status.ok()) {
    line["state"] = "unreachable";
    line["error"] = std::string(status.message());
    return line;
  }
  line["state"] = Lower(rollout::v1::RolloutState_Name(info.state()), "ROLLOUT_STATE_");
  line["policy_version"] = info.policy_version();
  line["incarnation"] = info.incarnation();
  if (!info.owner().run_id().empty()) line["run"] = info.owner().run_id();
  line["model"] = info.architecture();
  line["parameters"] = info.num_parameters();
  line["build_version"] = info.build_version();
  line["dtype"] = info.dtype();
  line["running"] = info.num_running_requests();
  line["waiting"] = info.num_waiting_requests();
  line["queued_tokens"] = info.num_queued_tokens();
  line["oldest_wait_seconds"] = info.oldest_wait_seconds();
  line["kv_blocks"] = info.num_kv_blocks();
  line["free_kv_blocks"] = info.num_free_kv_blocks();
  json released = json::array();
  for (const int memory : info.released()) {
    released.push_back(
        Lower(rollout::v1::ReleasedMemory_Name(static_cast<rollout::v1::ReleasedMemory>(memory)),
              "RELEASED_MEMORY_"));
  }
  if (!released.empty()) line["released"] = released;
  if (info.rank_addresses_size() > 1) line["ranks"] = info.rank_addresses_size();
  line["generated_tokens"] = info.num_generated_tokens();
  line["preemptions"] = info.num_preemptions();
  return line;
}

void Print(const json& line, bool as_json) {
  if (as_json) {
    std::printf("%s\n", io::JsonText(line).c_str());
    return;
  }
  std::string text =
      absl::StrFormat("%-8s %-22s %-12s", line["role"].get<std::string>(),
                      line["address"].get<std::string>(), line["state"].get<std::string>());
  for (const auto& [key, value] : line.items()) {
    if (key == "role" || key == "address" || key == "state") continue;
    absl::StrAppend(&text, " ", key, "=",
                    value.is_string() ? value.get<std::string>() : io::JsonText(value));
  }
  std::printf("%s\n", text::PrintableLine(text).c_str());
}

absl::Status RunStatus(const StatusOptions& options) {
  if (options.trainer.empty() && options.rollouts.empty()) {
    return Misuse(
        absl::InvalidArgumentError("give --trainer HOST:PORT and/or --rollout HOST:PORT"));
  }
  int unreachable = 0;
  const auto report = [&](const json& line) {
    if (line["state"] == "unreachable") ++unreachable;
    Print(line, options.as_json);
  };
  if (!options.trainer.empty()) report(AskTrainer(options.trainer));
  for (const std::string& address : options.rollouts) report(AskRollout(address));
  if (unreachable > 0) {
    return absl::UnavailableError(absl::StrCat(text::Count(unreachable, "service"),
                                               unreachable == 1 ? " does" : " do", " not respond"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddStatus(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand("status", "Prints the state of running services");
  auto options = std::make_shared<StatusOptions>();
  command->add_option("--trainer", options->trainer, "HOST:PORT of the trainer's leader");
  command->add_option("--rollout", options->rollouts, "HOST:PORT of a rollout")
      ->allow_extra_args(false);
  command->add_flag("--json", options->as_json, "Prints one JSON object per service");
  command->callback([&runner, options] { runner = [options] { return RunStatus(*options); }; });
}

}  // namespace tandem::commands
