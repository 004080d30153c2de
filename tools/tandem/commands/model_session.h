// A session for commands that take --model DIR (starts and stops services here) or
// --endpoint HOST:PORT (uses a running service).
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_MODEL_SESSION_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_MODEL_SESSION_H_

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/commands/session.h"

namespace tandem::commands {

struct ModelOptions {
  std::string model;
  std::string endpoint;
  std::string dtype = "float32";
  std::string numerics = "fast";
  std::vector<std::string> overrides;
};

void AddModelOptions(CLI::App& command, ModelOptions& options);

enum class Side { kTrainer, kRollout, kBoth };

// Misuse if neither or both of model and endpoint are given, if an endpoint is given for both sides,
// or if dtype or numerics is unknown.
// `config` receives the resolved configuration; its run_dir is `scratch`.
absl::Status OpenModelSession(const ModelOptions& options, Side side, const ScratchFolder& scratch,
                              Session& session, config::v1::RunConfig& config);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_MODEL_SESSION_H_
