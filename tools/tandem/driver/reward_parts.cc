#include "tools/tandem/driver/reward_parts.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/load.h"
#include "tools/tandem/reward/judge.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::driver {
namespace {

constexpr char kServiceName[] = "service";  // reward.name: a RewardService

template <typename Config>
RewardPart PartOf(const Config& config, std::string key) {
  RewardPart part;
  part.key = std::move(key);
  part.pattern = config.pattern();
  part.function = config.function();
  if (!config.path().empty()) {
    part.path = config.path();
    part.label = std::filesystem::path(config.path()).stem().string();
  } else if (config.name() == kServiceName || config.name().empty()) {
    part.endpoint = config.endpoint();
    part.label = kServiceName;
  } else {
    part.name = part.label = config.name();
  }
  if (part.name == kJudgeReward) {
    // The defaults of a list's elements are those of the section.
    part.judge = config::DefaultRunConfig().reward().judge();
    part.judge.MergeFrom(config.judge());
  }
  if (part.name == kModelReward) part.model = config.model();
  return part;
}

// Whether rows need an answer for the part.
bool ComparesWithAnswer(const RewardPart& part) {
  if (part.name != kJudgeReward) return reward::NeedsAnswer(part.name, {.pattern = part.pattern});
  const auto text = reward::ReadJudgeTemplate(part.judge, part.key);
  return text.ok() && text->needs_answer();
}

}  // namespace

std::vector<RewardPart> RewardParts(const config::v1::RewardConfig& config) {
  if (config.rewards().empty()) return {PartOf(config, "reward")};
  std::vector<RewardPart> parts;
  std::map<std::string, int> uses;
  for (const config::v1::WeightedReward& reward : config.rewards()) {
    RewardPart part = PartOf(reward, absl::StrCat("reward.rewards[", parts.size(), "]"));
    part.weight = reward.has_weight() ? reward.weight() : 1;
    if (const int use = ++uses[part.label]; use > 1) absl::StrAppend(&part.label, "_", use);
    parts.push_back(std::move(part));
  }
  return parts;
}

std::string RewardLabel(const config::v1::RewardConfig& config) {
  const std::vector<RewardPart> parts = RewardParts(config);
  return parts.size() == 1 ? parts[0].label : "weighted_sum";
}

bool RunsPython(const config::v1::RewardConfig& config) {
  const std::vector<RewardPart> parts = RewardParts(config);
  return std::any_of(parts.begin(), parts.end(),
                     [](const RewardPart& part) { return !part.path.empty(); });
}

bool NeedsAnswer(const config::v1::RewardConfig& config) {
  const std::vector<RewardPart> parts = RewardParts(config);
  return std::any_of(parts.begin(), parts.end(), ComparesWithAnswer);
}

bool ReadsMessages(const config::v1::RewardConfig& config) { return MayFail(config); }

BlindReward RewardWithoutSight(const config::v1::RewardConfig& config) {
  for (const RewardPart& part : RewardParts(config)) {
    if (part.name == kModelReward) return {part.key + ".model", /*is_judge=*/false};
    if (part.name == kJudgeReward && !part.judge.images()) {
      return {part.key + ".judge.images", /*is_judge=*/true};
    }
  }
  return {};
}

std::string RewardWithSight(const config::v1::RewardConfig& config) {
  for (const RewardPart& part : RewardParts(config)) {
    if (part.name == kJudgeReward && part.judge.images()) return part.key + ".judge.images";
  }
  return "";
}

bool MayFail(const config::v1::RewardConfig& config) {
  const auto may_fail = [](const auto& part) {
    return part.path().empty() && (part.name() == kJudgeReward || part.name() == kModelReward);
  };
  const auto& parts = config.rewards();
  return parts.empty() ? may_fail(config) : std::any_of(parts.begin(), parts.end(), may_fail);
}

reward::AnswerCheck AnswerCheckOf(const config::v1::RewardConfig& config) {
  struct Part {
    std::string asked_by;
    reward::AnswerCheck check;
  };
  std::vector<Part> parts;
  for (const RewardPart& part : RewardParts(config)) {
    if (!reward::NeedsAnswer(part.name, {.pattern = part.pattern})) continue;
    parts.push_back({absl::StrCat(part.key, ".name ", part.name),
                     reward::FindAnswerCheck(part.name, {.pattern = part.pattern})});
  }
  return [parts = std::move(parts)](const std::string& answer) -> absl::Status {
    for (const Part& part : parts) {
      const absl::Status status = part.check(answer);
      if (status.ok()) continue;
      return absl::Status(status.code(), absl::StrCat(status.message(), " (", part.asked_by, ")"));
    }
    return absl::OkStatus();
  };
}

absl::Status CheckRewardNames(const config::v1::RewardConfig& config) {
  std::vector<std::string> known = reward::RewardNames();
  known.push_back(kServiceName);
  known.insert(known.end(), {kEnvironmentReward, kJudgeReward, kModelReward});
  if (config.rewards().empty()) known.push_back(kNoReward);
  for (const RewardPart& part : RewardParts(config)) {
    if (part.name.empty() || std::find(known.begin(), known.end(), part.name) != known.end()) {
      continue;
    }
    return reward::UnknownReward(part.name, known, part.key + ".name");
  }
  return absl::OkStatus();
}

}  // namespace tandem::driver
