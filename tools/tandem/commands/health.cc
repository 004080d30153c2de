// tandem health: exits 0 if a process serves, for health checks and scripts.
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "tools/tandem/commands/command.h"

namespace tandem::commands {
namespace {

struct HealthOptions {
  std::string endpoint;
  std::string service;
  double timeout_s = 5;
  bool wait = false;
  bool plaintext = false;
};

// Adds the endpoint and the service name to an error.
absl::Status Annotate(const HealthOptions& options, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(options.endpoint, ": ",
                                   options.service.empty() ? "the process" : options.service, ": ",
                                   status.message()));
}

absl::Status RunHealth(const HealthOptions& options) {
  const auto channel =
      rpc::MakeChannel(options.endpoint, {.retry = false, .plaintext = options.plaintext});
  const absl::Duration timeout = absl::Seconds(options.timeout_s);
  if (options.wait) {
    const absl::Status status = rpc::WaitUntilHealthy(channel, options.service, timeout);
    if (!status.ok()) return Annotate(options, status);
  } else {
    const absl::StatusOr<bool> serving = rpc::IsServing(channel, options.service, timeout);
    if (!serving.ok()) return Annotate(options, serving.status());
    if (!*serving) {
      return Annotate(options, absl::UnavailableError("NOT_SERVING; --wait waits for it"));
    }
  }
  std::printf("SERVING\n");
  return absl::OkStatus();
}

}  // namespace

void AddHealth(CLI::App& app, Runner& runner) {
  CLI::App* command =
      app.add_subcommand("health", "Exits 0 if a process serves (grpc.health.v1), 1 if not");
  auto options = std::make_shared<HealthOptions>();
  command->add_option("--endpoint", options->endpoint, "HOST:PORT")->required();
  command->add_option(
      "--service", options->service,
      "Health name: tandem.trainer.v1.TrainerService, tandem.rollout.v1.WeightService (ready for "
      "weights), tandem.rollout.v1.RolloutService (has a version); empty: the process");
  command->add_flag("--wait", options->wait, "Waits until the process serves, at most --timeout");
  command->add_flag("--plaintext", options->plaintext,
                    "Connects without TLS, for a --health-listen port");
  command->add_option("--timeout", options->timeout_s, "Timeout in seconds")
      ->check(CLI::PositiveNumber);
  command->callback([&runner, options] { runner = [options] { return RunHealth(*options); }; });
}

}  // namespace tandem::commands
