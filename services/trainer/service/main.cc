// tandem-trainer: one rank of the trainer service. Rank 0 serves gRPC.
//
//   tandem-trainer --config run_dir/config.yaml --listen 127.0.0.1:0 --ready-file run_dir/trainer
//
// The ranks find each other through torchrun's environment (RANK, WORLD_SIZE, MASTER_ADDR, ...).
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>

#include "absl/time/time.h"
#include "common/comm/launch_environment.h"
#include "common/config/load.h"
#include "common/model/allocator.h"
#include "common/model/families/family_table.h"
#include "common/rpc/exit_deadline.h"
#include "common/rpc/service_program.h"
#include "common/status/exceptions.h"
#include "common/telemetry/log.h"
#include "common/text/printable.h"
#include "services/trainer/service/trainer_process.h"

namespace tandem::trainer {
namespace {

// From SIGTERM to the end, at most: 25 s for calls that run and the command after them
// (trainer_process.cc, leader_server.cc), and as long again for what nothing interrupts.
constexpr absl::Duration kEndLimit = absl::Seconds(50);

int Misuse(const absl::Status& status) {
  std::cerr << "tandem-trainer: " << text::Printable(status.message()) << "\n";
  return rpc::kExitMisuse;
}

int Run(const rpc::ServiceFlags& flags, rpc::TerminationSignal& termination) {
  TrainerProcessOptions options;
  auto environment = comm::ReadLaunchEnvironment();
  if (!environment.ok()) return Misuse(environment.status());
  options.environment = *environment;
  auto config = config::LoadRunConfig(flags.configs, flags.overrides);
  if (!config.ok()) return Misuse(config.status());
  if (const absl::Status added = model::AddFamilyFile(config->model().family_file()); !added.ok()) {
    return Misuse(added);
  }
  options.config = *config;
  options.listen = flags.listen;
  options.health_listen = flags.health_listen;
  options.ready_file = flags.ready_file;
  options.metrics = flags.metrics;
  const absl::Status checked = CheckTrainerProcess(options);
  if (!checked.ok()) return Misuse(checked);

  telemetry::SetLogContext({.role = "trainer", .rank = options.environment.rank});
  const rpc::TerminationDeadline deadline(termination, kEndLimit);  // of every rank
  absl::Status end;
  try {
    end = RunTrainerProcess(options, termination);
  } catch (const std::exception& error) {
    end = StatusOf(error);
  }
  if (end.ok() || (absl::IsCancelled(end) && termination.received() != 0)) {
    telemetry::LogInfo("trainer stopped");
    return 0;
  }
  telemetry::LogError("trainer failed", {{"error", end.ToString()}});
  // An orderly exit would never return while threads wait in a broken group.
  std::fflush(nullptr);
  std::_Exit(rpc::kExitFailure);
}

}  // namespace
}  // namespace tandem::trainer

int main(int argc, char** argv) {
  tandem::model::TuneAllocator();
  CLI::App app("One rank of Tandem's trainer service; rank 0 serves gRPC.", "tandem-trainer");
  tandem::rpc::ServiceFlags flags;
  tandem::rpc::AddServiceFlags(app, flags);
  app.get_option("--config")->required();
  return tandem::rpc::RunServiceProgram(app, flags, tandem::security::Role::kTrainer, argc, argv,
                                        [&](tandem::rpc::TerminationSignal& termination) {
                                          return tandem::trainer::Run(flags, termination);
                                        });
}
