#include "tools/tandem/driver/run_folder.h"

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/to_yaml.h"
#include "common/io/atomic_file.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/rewarder.h"

namespace tandem::driver {
namespace {

namespace fs = std::filesystem;

// Moves what an earlier run left in `path` out of the way.
absl::Status SetAside(const fs::path& path) {
  if (!fs::exists(path / "config.yaml") && !fs::exists(path / "metrics.jsonl")) {
    return absl::OkStatus();
  }
  int number = 1;
  while (fs::exists(path / absl::StrCat("previous-", number))) ++number;
  const fs::path previous = path / absl::StrCat("previous-", number);
  fs::create_directory(previous);
  for (const char* name :
       {"config.yaml", "metrics.jsonl", "rollouts", "logs", "checkpoints", "model", "trace.json"}) {
    if (fs::exists(path / name)) fs::rename(path / name, previous / name);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunFolder> RunFolder::Create(const config::v1::RunConfig& config) {
  // The trainer's ranks may have other working directories than this process.
  const fs::path path = fs::absolute(config.run_dir());
  try {
    fs::create_directories(path);
    RETURN_IF_ERROR(SetAside(path));
    fs::create_directories(path / "rollouts");
    fs::create_directories(path / "logs");
  } catch (const fs::filesystem_error& error) {
    return absl::PermissionDeniedError(
        absl::StrCat("run_dir ", path.string(), " can't be prepared: ", error.what()));
  }
  RETURN_IF_ERROR(io::WriteFileAtomically((path / "config.yaml").string(), config::ToYaml(config)));
  ASSIGN_OR_RETURN(io::JsonlWriter metrics,
                   io::JsonlWriter::Open((path / "metrics.jsonl").string()));
  return RunFolder(path.string(), std::move(metrics));
}

std::string RunFolder::checkpoint_path(int64_t step) const {
  return absl::StrCat(path_, "/checkpoints/step-", step);
}

absl::Status RunFolder::WriteMetrics(int64_t step, const Metrics& metrics) {
  nlohmann::json line = nlohmann::json::object();
  line["training/global_step"] = step;
  for (const auto& [name, value] : metrics) line[name] = value;
  return metrics_.Append(line);
}

absl::Status RunFolder::WriteRollouts(int64_t step, const std::vector<Group>& groups,
                                      double temperature) {
  std::string text;
  for (const Group& group : groups) {
    for (size_t i = 0; i < group.completions.size(); ++i) {
      const Completion& completion = group.completions[i];
      nlohmann::json spans = nlohmann::json::array();
      for (const auto& span : completion.version_spans) {
        spans.push_back({span.policy_version(), span.begin(), span.end()});
      }
      text += io::ToJsonLine({{"step", step},
                              {"group", group.prompt.row},
                              {"index", i},
                              {"prompt", group.prompt.text},
                              {"completion", completion.text},
                              {"answer", group.prompt.answer},
                              {"rewards", completion.reward},
                              {"finish_reason", FinishReasonName(completion.finish_reason)},
                              {"prompt_ids", group.prompt.token_ids},
                              {"response_ids", completion.token_ids},
                              {"logprobs", completion.processed_logprobs},
                              {"temperature", temperature},
                              {"policy_versions", spans}});
    }
  }
  return io::WriteFileAtomically(absl::StrCat(path_, "/rollouts/", step, ".jsonl"), text);
}

}  // namespace tandem::driver
