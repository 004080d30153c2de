// tandem pause and tandem resume: pause running rollouts, release their memory, and resume them.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/io/json_text.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/text/printable.h"
#include "nlohmann/json.hpp"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tools/tandem/commands/command.h"

namespace tandem::commands {
namespace {

using nlohmann::json;

struct PauseOptions {
  std::vector<std::string> rollouts;
  std::string mode = "keep";
  std::vector<std::string> release;
  double timeout_s = 600;
  bool as_json = false;
};

rollout::v1::PauseRequest MakeRequest(const PauseOptions& options) {
  rollout::v1::PauseRequest request;
  request.set_mode(options.mode == "abort"  ? rollout::v1::PAUSE_MODE_ABORT
                   : options.mode == "wait" ? rollout::v1::PAUSE_MODE_WAIT
                                            : rollout::v1::PAUSE_MODE_KEEP);
  for (const std::string& memory : options.release) {
    request.add_release(memory == "kv" ? rollout::v1::RELEASED_MEMORY_KV
                                       : rollout::v1::RELEASED_MEMORY_WEIGHTS);
  }
  return request;
}

// Calls every rollout and prints each outcome. Returns the first error.
template <typename Call>
absl::Status CallAll(const PauseOptions& options, Call&& call) {
  if (options.rollouts.empty()) {
    return Misuse(absl::InvalidArgumentError("give --rollout HOST:PORT"));
  }
  absl::Status first;
  for (const std::string& address : options.rollouts) {
    auto stub = rollout::v1::RolloutService::NewStub(rpc::MakeChannel(address));
    json line = {{"role", "rollout"}, {"address", address}};
    const absl::Status status = call(*stub, line);
    if (!status.ok()) line["error"] = std::string(status.message());
    if (first.ok() && !status.ok()) {
      first =
          absl::Status(status.code(), absl::StrCat("rollout at ", address, ": ", status.message()));
    }
    if (options.as_json) {
      std::printf("%s\n", io::JsonText(line).c_str());
    } else if (status.ok()) {
      std::printf("%-22s %s\n", address.c_str(),
                  text::PrintableLine(line["state"].get<std::string>()).c_str());
    }
  }
  return first;
}

absl::Status RunPause(const PauseOptions& options) {
  return CallAll(options, [&](rollout::v1::RolloutService::Stub& stub, json& line) -> absl::Status {
    const auto context = rpc::MakeContext(absl::Seconds(options.timeout_s));
    rollout::v1::PauseResponse response;
    RETURN_IF_ERROR(
        rpc::FromGrpcStatus(stub.Pause(context.get(), MakeRequest(options), &response)));
    line["state"] = "paused";
    line["released"] = options.release;
    line["frozen_requests"] = response.num_frozen_requests();
    return absl::OkStatus();
  });
}

absl::Status RunResume(const PauseOptions& options) {
  return CallAll(options, [&](rollout::v1::RolloutService::Stub& stub, json& line) -> absl::Status {
    const auto context = rpc::MakeContext(absl::Seconds(options.timeout_s));
    rollout::v1::ResumeResponse response;
    RETURN_IF_ERROR(rpc::FromGrpcStatus(stub.Resume(context.get(), {}, &response)));
    line["state"] = "resumed";
    return absl::OkStatus();
  });
}

CLI::App* AddCommand(CLI::App& app, const char* name, const char* description,
                     PauseOptions& options) {
  CLI::App* command = app.add_subcommand(name, description);
  command->add_option("--rollout", options.rollouts, "HOST:PORT of a rollout")
      ->allow_extra_args(false);
  command->add_option("--timeout", options.timeout_s, "Timeout in seconds for each rollout")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", options.as_json, "Prints one JSON object per rollout");
  return command;
}

}  // namespace

void AddPause(CLI::App& app, Runner& runner) {
  auto options = std::make_shared<PauseOptions>();
  CLI::App* command = AddCommand(app, "pause", "Stops the scheduler of running rollouts", *options);
  command
      ->add_option("--mode", options->mode,
                   "What happens to running requests: keep (freeze them), abort (end them with the "
                   "tokens they have) or wait (until they finish)")
      ->check(CLI::IsMember({"keep", "abort", "wait"}))
      ->capture_default_str();
  command
      ->add_option("--release", options->release,
                   "Memory to return to the system during the pause: kv, weights, or kv,weights")
      ->delimiter(',')
      ->check(CLI::IsMember({"kv", "weights"}))
      ->allow_extra_args(false);
  command->callback([&runner, options] { runner = [options] { return RunPause(*options); }; });
}

void AddResume(CLI::App& app, Runner& runner) {
  auto options = std::make_shared<PauseOptions>();
  CLI::App* command = AddCommand(app, "resume",
                                 "Restarts the scheduler of paused rollouts; a rollout with its "
                                 "own model folder reloads released weights",
                                 *options);
  command->callback([&runner, options] { runner = [options] { return RunResume(*options); }; });
}

}  // namespace tandem::commands
