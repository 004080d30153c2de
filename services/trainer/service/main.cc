// tandem-trainer: one rank of the trainer service. Rank 0 serves gRPC.
//
//   tandem-trainer --config run_dir/config.yaml --listen 127.0.0.1:0 --ready-file run_dir/trainer
//
// The ranks find each other through torchrun's environment (RANK, WORLD_SIZE, MASTER_ADDR, ...).
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "common/comm/launch_environment.h"
#include "common/config/load.h"
#include "common/model/allocator.h"
#include "common/rpc/process.h"
#include "common/rpc/termination_signal.h"
#include "common/telemetry/log.h"
#include "services/trainer/service/trainer_process.h"

namespace tandem::trainer {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitMisuse = 2;

struct CommandLine {
  std::vector<std::string> configs;
  std::vector<std::string> overrides;
  std::string listen = "127.0.0.1:0";
  std::string ready_file;
  bool die_with_parent = false;
};

int Misuse(const absl::Status& status) {
  std::cerr << "tandem-trainer: " << status.message() << "\n";
  return kExitMisuse;
}

int Run(const CommandLine& command_line, rpc::TerminationSignal& termination) {
  TrainerProcessOptions options;
  auto environment = comm::ReadLaunchEnvironment();
  if (!environment.ok()) return Misuse(environment.status());
  options.environment = *environment;
  auto config = config::LoadRunConfig(command_line.configs, command_line.overrides);
  if (!config.ok()) return Misuse(config.status());
  options.config = *config;
  options.listen = command_line.listen;
  options.ready_file = command_line.ready_file;
  const absl::Status checked = CheckTrainerProcess(options);
  if (!checked.ok()) return Misuse(checked);

  telemetry::SetLogContext({.role = "trainer", .rank = options.environment.rank});
  absl::Status end;
  try {
    end = RunTrainerProcess(options, termination);
  } catch (const std::exception& error) {
    end = absl::InternalError(error.what());
  }
  if (end.ok() || (absl::IsCancelled(end) && termination.received() != 0)) {
    telemetry::LogInfo("the trainer has ended");
    return 0;
  }
  telemetry::LogError("the trainer ends", {{"error", end.ToString()}});
  // Threads that wait in a broken group would keep an orderly exit from ever coming.
  std::fflush(nullptr);
  std::_Exit(kExitFailure);
}

}  // namespace
}  // namespace tandem::trainer

int main(int argc, char** argv) {
  tandem::model::TuneAllocator();
  CLI::App app("One rank of Tandem's trainer service; rank 0 serves gRPC.", "tandem-trainer");
  tandem::trainer::CommandLine command_line;
  app.add_option("--config", command_line.configs, "Configuration file; may be given several times")
      ->required();
  app.add_option("--set", command_line.overrides, "Override KEY=VALUE; may be given several times");
  app.add_option("--listen", command_line.listen,
                 "HOST:PORT of the leader; port 0 takes a free one");
  app.add_option("--ready-file", command_line.ready_file,
                 "The leader writes its address here once it serves");
  app.add_flag("--die-with-parent", command_line.die_with_parent,
               "End when the process that started this one ends");
  app.set_version_flag("--version", TANDEM_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : tandem::trainer::kExitMisuse;
  }
  const char* parent = std::getenv("TANDEM_PARENT_PID");
  if (command_line.die_with_parent || parent != nullptr) {
    tandem::rpc::DieWithParent(parent == nullptr ? 0 : std::atoi(parent));
  }
  // Before other threads exist, so that they leave the signals to it.
  tandem::rpc::TerminationSignal termination;
  return tandem::trainer::Run(command_line, termination);
}
