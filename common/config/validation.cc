#include "common/config/validation.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/config/checks/checks.h"
#include "common/config/summary.h"

namespace tandem::config {
namespace {

void CheckDpo(const v1::DpoConfig& dpo, Checker* check) {
  check->Number("dpo.beta", dpo.beta(), dpo.beta() > 0, "> 0");
  check->Number("dpo.label_smoothing", dpo.label_smoothing(),
                dpo.label_smoothing() >= 0 && dpo.label_smoothing() < 0.5, "in [0, 0.5)");
}

// Reports settings that make a token's log-prob depend on more than its sequence and the weights.
void CheckNumerics(const v1::RunConfig& config, Checker* check) {
  if (config.numerics() != v1::NUMERICS_EXACT) return;
  const auto fail = [check](absl::string_view problem) {
    check->Fail("numerics", absl::StrCat("exact ", problem));
  };
  const v1::TrainerConfig& trainer = config.trainer();
  const int num_dims = std::min(trainer.mesh_dim_names_size(), trainer.mesh_shape_size());
  for (int i = 0; i < num_dims; ++i) {
    if (trainer.mesh_dim_names(i) == "tp" && trainer.mesh_shape(i) > 1) {
      fail(
          "needs a trainer.mesh_shape without tensor parallelism, which changes the order of sums; "
          "set tp to 1");
    }
  }
  if (trainer.mesh() == "auto") {
    fail(
        "needs a mesh without tensor parallelism, but trainer.mesh auto may choose it; set "
        "trainer.mesh_shape, or leave both unset");
  }
  if (config.rollout().tensor_model_parallel_size() > 1) {
    fail(
        "needs rollout.tensor_model_parallel_size 1, because tensor parallelism changes the order "
        "of sums; use more rollout.replicas");
  }
  if (config.model().attn_implementation() == v1::ATTENTION_IMPLEMENTATION_EAGER) {
    fail("needs model.attn_implementation auto, which the rollout uses");
  }
  if (config.rollout().in_flight() == v1::IN_FLIGHT_POLICY_KEEP_KV) {
    fail(
        "needs rollout.in_flight abort, wait or keep_recompute: with keep_kv, tokens attend to "
        "keys of older weights, which the trainer never computes");
  }
}

}  // namespace

std::vector<std::string> FindInvalidValues(const v1::RunConfig& config, const Places& places,
                                           Support support) {
  Checker check(places, support);
  CheckData(config.data(), &check);
  CheckRollout(config.rollout(), &check);
  CheckTrainer(config.trainer(), &check);
  CheckActor(config, &check);
  CheckAlgorithm(config.algorithm(), config.reward(), &check);
  CheckReward(config.reward(), &check);
  CheckMuon(config, "actor.optim.name", config.actor().optim(), &check);
  CheckMuon(config, "critic.optim.name", config.critic().optim(), &check);
  CheckFilterGroups(config, &check);
  CheckCritic(config, &check);
  CheckDpo(config.dpo(), &check);
  CheckOverlongBuffer(config, &check);
  CheckEnvironment(config, &check);
  CheckTeacher(config, &check);
  CheckNumerics(config, &check);
  const int64_t longest = config.data().max_prompt_length() + LongestCompletion(config);
  if (config.rollout().max_model_len() > 0 && longest > config.rollout().max_model_len()) {
    check.Fail(
        "rollout.max_model_len",
        absl::StrFormat("expected at least data.max_prompt_length + %s = %d, found %d; 0 "
                        "takes the model's maximum",
                        LongestCompletionKey(config), longest, config.rollout().max_model_len()));
  }
  return check.Take();
}

absl::Status CheckFiles(const v1::RunConfig& config, const FileNeeds& needs, const Places& places) {
  Checker check(places);
  const auto check_files = [&check](const std::string& key, const auto& files) {
    if (files.empty()) check.Fail(key, "expected at least one file, found none");
    for (const std::string& file : files) {
      std::error_code error;
      const bool is_pattern = file.find_first_of("*?[") != std::string::npos;
      if (!is_pattern && !std::filesystem::is_regular_file(file, error) &&
          !std::filesystem::is_directory(file, error)) {
        check.Fail(key, absl::StrCat("no file ", file, " (relative paths start at the working ",
                                     "directory)"));
      }
    }
  };
  const auto check_reward = [&check](const std::string& key, const std::string& file) {
    std::error_code error;
    if (file.empty() || std::filesystem::is_regular_file(file, error)) return;
    check.Fail(key, absl::StrCat("no file ", file, " (relative paths start at the working ",
                                 "directory)"));
  };
  const auto check_reward_files = [&](const auto& reward, const std::string& key) {
    check_reward(key + ".path", reward.path());
    check_reward(key + ".judge.template_file", reward.judge().template_file());
    const std::string& model = reward.model().path();
    if (!model.empty()) check_reward(key + ".model.path", model + "/config.json");
  };
  check_reward_files(config.reward(), "reward");
  for (int i = 0; i < config.reward().rewards_size(); ++i) {
    check_reward_files(config.reward().rewards(i), absl::StrFormat("reward.rewards[%d]", i));
  }
  if (needs.train_files) check_files("data.train_files", config.data().train_files());
  if (needs.test_files) check_files("data.test_files", config.data().test_files());
  if (needs.model) {
    const std::string& path = config.model().path();
    std::error_code error;
    if (path.empty()) {
      check.Fail("model.path", "expected a Hugging Face model folder, found \"\"");
    } else if (!std::filesystem::is_directory(path, error)) {
      check.Fail("model.path", absl::StrCat("no folder ", path, " (relative paths begin at the ",
                                            "working directory)"));
    } else if (!std::filesystem::is_regular_file(path + "/config.json", error)) {
      check.Fail("model.path", absl::StrCat("expected a Hugging Face model folder, found no ", path,
                                            "/config.json"));
    }
  }
  const std::vector<std::string> lines = check.Take();
  return lines.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

}  // namespace tandem::config
