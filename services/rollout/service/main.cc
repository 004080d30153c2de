// tandem-rollout: one replica of the rollout service.
//
//   tandem-rollout --config run_dir/config.yaml --listen 127.0.0.1:0 --ready-file run_dir/rollout-0
//   tandem-rollout --model /models/qwen --dtype bfloat16 --listen 127.0.0.1:5000
//
// With --model it serves the folder's weights as version 0; without, it waits for a trainer's.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/comm/launch_environment.h"
#include "common/config/load.h"
#include "common/model/allocator.h"
#include "common/model/families/family_table.h"
#include "common/rpc/exit_deadline.h"
#include "common/rpc/service_program.h"
#include "common/status/exceptions.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/text/printable.h"
#include "services/rollout/service/follower_process.h"
#include "services/rollout/service/rollout_process.h"

namespace tandem::rollout {
namespace {

// From SIGTERM to the end, at most.
constexpr absl::Duration kGrace = absl::Seconds(20);
// After it, for what the drain does not interrupt: memory to free, a response that is put together.
constexpr absl::Duration kEndMargin = absl::Seconds(20);
// After a failure every answer is at hand; only callers that are slow to read it are waited for.
constexpr absl::Duration kFailureGrace = absl::Seconds(3);

struct CommandLine : rpc::ServiceFlags {
  std::string model;
  std::string dtype;
  std::vector<std::string> served_model_names;
  std::string logprobs_mode = "raw";
  bool allow_image_urls = false;
  openai::OpenAiOptions openai;
};

absl::StatusOr<RolloutProcessOptions> MakeOptions(const CommandLine& command_line) {
  std::vector<std::string> overrides = command_line.overrides;
  std::string dtype = command_line.dtype;
  // A folder on its own is computed as its reference is.
  if (dtype.empty() && command_line.configs.empty()) dtype = "float32";
  if (!dtype.empty()) overrides.push_back("model.dtype=" + dtype);
  if (!command_line.served_model_names.empty()) {
    overrides.push_back(absl::StrCat("rollout.served_model_name=['",
                                     absl::StrJoin(command_line.served_model_names, "', '"), "']"));
  }
  RolloutProcessOptions options;
  auto config = config::LoadRunConfig(command_line.configs, overrides);
  if (!config.ok()) return config.status();
  options.config = *std::move(config);
  RETURN_IF_ERROR(model::AddFamilyFile(options.config.model().family_file()));
  if (!command_line.model.empty()) options.config.mutable_model()->set_path(command_line.model);
  if (options.config.model().path().empty()) {
    return absl::InvalidArgumentError(
        "model.path: expected a folder; give --model DIR or --config FILE");
  }
  options.listen = command_line.listen;
  options.health_listen = command_line.health_listen;
  options.ready_file = command_line.ready_file;
  options.metrics = command_line.metrics;
  options.openai = command_line.openai;
  options.openai.processed_logprobs = command_line.logprobs_mode == "processed";
  if (command_line.allow_image_urls) {
    if (command_line.openai.listen.empty()) {
      return absl::InvalidArgumentError(
          "--allow-image-urls: chats name images by URL, and no --openai-listen takes them");
    }
    options.openai.image_fetcher = std::make_shared<const images::ImageFetcher>();
  }
  // A mistaken name is a mistake of the command, before anything is loaded.
  const auto format = openai::ChooseFormat(command_line.openai.tool_call_parser, nullptr);
  if (!format.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tool-call-parser: ", format.status().message()));
  }
  options.commit_folder = !command_line.model.empty();
  if (options.config.rollout().tensor_model_parallel_size() > 1) {
    ASSIGN_OR_RETURN(options.environment, comm::ReadLaunchEnvironment());
    RETURN_IF_ERROR(CheckEnvironment(options.config, options.environment));
  }
  return options;
}

absl::Status RunLeader(const RolloutProcessOptions& options, rpc::TerminationSignal& termination) {
  ASSIGN_OR_RETURN(auto process, RolloutProcess::Start(options));
  const int signal = termination.Wait();
  // Lets callers that retry at once see the cause instead of a refused connection.
  if (process->failed()) absl::SleepFor(kFailureGrace);
  telemetry::LogInfo("rollout draining", {{"signal", signal}});
  const rpc::ExitDeadline deadline(kGrace + kEndMargin);
  process->Drain(process->failed() ? kFailureGrace : kGrace);
  const bool failed = process->failed();
  process.reset();  // within the deadline
  if (!failed) return absl::OkStatus();
  return absl::UnavailableError("the replica's ranks lost contact");
}

absl::Status RunFollower(const RolloutProcessOptions& options,
                         rpc::TerminationSignal& termination) {
  ASSIGN_OR_RETURN(auto process, FollowerProcess::Start(options));
  termination.Wait();
  // Rank 0 drains, which takes as long, and then says stop.
  return process->End(kGrace + kFailureGrace);
}

int Run(const CommandLine& command_line, rpc::TerminationSignal& termination) {
  absl::StatusOr<RolloutProcessOptions> options = MakeOptions(command_line);
  if (!options.ok()) {
    std::cerr << "tandem-rollout: " << text::Printable(options.status().message()) << "\n";
    return rpc::kExitMisuse;
  }
  options->on_failed = [&termination] { termination.Trigger(SIGTERM); };
  const int rank = options->environment.rank;
  telemetry::SetLogContext({.role = "rollout", .rank = rank});
  absl::Status end;
  try {
    end = rank == 0 ? RunLeader(*options, termination) : RunFollower(*options, termination);
  } catch (const std::exception& error) {
    telemetry::LogError("rollout failed", {{"error", StatusOf(error).ToString()}});
    std::fflush(nullptr);
    std::_Exit(rpc::kExitFailure);
  }
  if (!end.ok()) {
    telemetry::LogError("rollout failed", {{"error", end.ToString()}});
    return rpc::kExitFailure;
  }
  telemetry::LogInfo("rollout stopped");
  return 0;
}

}  // namespace
}  // namespace tandem::rollout

int main(int argc, char** argv) {
  tandem::model::TuneAllocator();
  CLI::App app("One replica of Tandem's rollout service.", "tandem-rollout");
  tandem::rollout::CommandLine command_line;
  tandem::rpc::AddServiceFlags(app, command_line);
  app.add_option("--model", command_line.model,
                 "Hugging Face folder to serve as version 0, without a trainer");
  app.add_option("--dtype", command_line.dtype,
                 "Element type of the computation; without it that of --config, or float32")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--openai-listen", command_line.openai.listen,
                 "HOST:PORT of an OpenAI-compatible HTTP endpoint")
      ->envname("TANDEM_OPENAI_LISTEN");
  app.add_option("--served-model-name", command_line.served_model_names,
                 "Name of the model in the OpenAI API, instead of its folder's (rollout."
                 "served_model_name); repeatable, or NAME,NAME: responses carry the first")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...");
  app.add_option("--openai-token-file", command_line.openai.token_file,
                 "File with the token that HTTP clients must send; or TANDEM_OPENAI_TOKEN");
  app.add_option(
         "--tool-call-parser", command_line.openai.tool_call_parser,
         "How the model writes calls of functions, for the OpenAI API: a format's name, auto "
         "(what its chat template says) or none")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--logprobs-mode", command_line.logprobs_mode,
                 "Log-probs that the OpenAI API returns: raw, or processed (with penalties and "
                 "temperature)")
      ->check(CLI::IsMember({"raw", "processed"}))
      ->capture_default_str();
  app.add_flag(
      "--allow-image-urls", command_line.allow_image_urls,
      "Fetches images that chats of the OpenAI API name by http and https URLs, from public "
      "addresses only");
  app.add_flag("--openai-insecure", command_line.openai.insecure,
               "Lets other machines use the HTTP endpoint without a token");
  return tandem::rpc::RunServiceProgram(app, command_line, tandem::security::Role::kRollout, argc,
                                        argv, [&](tandem::rpc::TerminationSignal& termination) {
                                          return tandem::rollout::Run(command_line, termination);
                                        });
}
