#include "common/config/load.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/config/defaults.h"
#include "common/config/merge.h"
#include "common/config/validation.h"

namespace tandem::config {
namespace {

constexpr size_t kMaxErrors = 50;
// One byte more than the merger accepts, so that it can report the excess.
constexpr std::streamsize kMaxReadBytes = (1 << 20) + 1;

absl::Status Errors(const std::vector<std::string>& errors) {
  if (errors.empty()) return absl::OkStatus();
  const size_t shown = std::min(errors.size(), kMaxErrors);
  std::string message = absl::StrJoin(errors.begin(), errors.begin() + shown, "\n");
  if (shown < errors.size())
    absl::StrAppend(&message, "\n... and ", errors.size() - shown, " more");
  return absl::InvalidArgumentError(message);
}

// verl writes -1 for "never" and "all"; here that is 0.
void TakeMinusOneAsZero(v1::RunConfig* config) {
  if (config->rollout().top_k() == -1) config->mutable_rollout()->set_top_k(0);
  v1::ValKwargs* val = config->mutable_rollout()->mutable_val_kwargs();
  if (val->top_k() == -1) val->set_top_k(0);
  if (config->data().test_limit() == -1) config->mutable_data()->set_test_limit(0);
  if (config->trainer().test_freq() == -1) config->mutable_trainer()->set_test_freq(0);
  if (config->trainer().save_freq() == -1) config->mutable_trainer()->set_save_freq(0);
}

// A run has one reward: a Python file takes the place of the name that an earlier source stated, and
// a name that of an earlier file. A source is one YAML file, or all overrides; one that states both
// is refused later.
void KeepLaterReward(const v1::RewardConfig& before, v1::RewardConfig* reward) {
  const bool has_new_path = reward->path() != before.path() && !reward->path().empty();
  const bool has_new_name = reward->name() != before.name() && !reward->name().empty();
  if (has_new_path && !has_new_name) {
    reward->clear_name();
  } else if (has_new_name && !has_new_path) {
    reward->clear_path();
    if (reward->function() == before.function()) reward->clear_function();
  }
}

}  // namespace

absl::StatusOr<v1::RunConfig> LoadRunConfig(const std::vector<std::string>& files,
                                            const std::vector<std::string>& overrides,
                                            Places* places, Support support) {
  v1::RunConfig config;
  Merger merger(&config);
  merger.MergeYaml(kDefaultsYaml, "");
  std::vector<std::string> unreadable;
  for (const std::string& file : files) {
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored)) {
      unreadable.push_back(absl::StrCat(file, ": expected a YAML file, found a folder"));
      continue;
    }
    std::ifstream stream(file, std::ios::binary);
    std::string text;
    if (stream) {
      text.resize(kMaxReadBytes);
      stream.read(text.data(), kMaxReadBytes);
      text.resize(stream.gcount());
    }
    if (!stream && !stream.eof()) {
      unreadable.push_back(
          absl::StrCat(file, ": cannot read the configuration: ", strerror(errno)));
      continue;
    }
    const v1::RewardConfig before = config.reward();
    merger.MergeYaml(text, file);
    KeepLaterReward(before, config.mutable_reward());
  }
  const v1::RewardConfig before = config.reward();
  for (const std::string& assignment : overrides) merger.MergeOverride(assignment);
  KeepLaterReward(before, config.mutable_reward());
  std::vector<std::string> errors = std::move(unreadable);
  errors.insert(errors.end(), merger.errors().begin(), merger.errors().end());
  TakeMinusOneAsZero(&config);
  // A value that could not be read keeps its default; checking the rest still finds errors.
  const std::vector<std::string> invalid = FindInvalidValues(config, merger.places(), support);
  errors.insert(errors.end(), invalid.begin(), invalid.end());
  if (absl::Status status = Errors(errors); !status.ok()) return status;
  if (config.run_dir().empty()) {
    config.set_run_dir(absl::FormatTime("runs/%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone()));
  }
  if (places != nullptr) *places = merger.places();
  return config;
}

v1::RunConfig DefaultRunConfig() {
  v1::RunConfig config;
  Merger(&config).MergeYaml(kDefaultsYaml, "");
  return config;
}

}  // namespace tandem::config
