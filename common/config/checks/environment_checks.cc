#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/checks/checks.h"
#include "common/config/load.h"

namespace tandem::config {
namespace {

constexpr int64_t kMaxAgents = 4096;
constexpr double kMaxAgentSeconds = 86000;

// What an agent decides itself, or what its sessions cannot do.
void CheckAgent(const v1::RunConfig& config, Checker* check) {
  const v1::EnvironmentConfig& environment = config.environment();
  if (environment.command().empty() == environment.url().empty()) {
    check->Fail("environment.command",
                absl::StrCat("expected one of environment.command and environment.url, because "
                             "environment.name is agent; found ",
                             environment.url().empty() ? "neither" : "both"));
  }
  check->Number("environment.timeout_s", environment.timeout_s(),
                environment.timeout_s() <= kMaxAgentSeconds,
                "of seconds up to 86000, because sessions of agents last a day at most");
  if (environment.max_turns() != DefaultRunConfig().environment().max_turns()) {
    check->Fail(
        "environment.max_turns",
        "has no effect with environment.name agent, whose program decides how many calls it "
        "makes; environment.max_tokens bounds what they sample");
  }
  if (environment.on_template_mismatch() == v1::ON_TEMPLATE_MISMATCH_SPLIT) {
    check->Fail("environment.on_template_mismatch",
                "has no effect with environment.name agent: a call that rewrites the past always "
                "begins a further sample of its group");
  }
  if (config.rollout().in_flight() == v1::IN_FLIGHT_POLICY_ABORT) {
    check->Fail("rollout.in_flight",
                "abort would return parts of answers to agents, which cannot continue them; use "
                "keep_recompute, keep_kv or wait with environment.name agent");
  }
  if (config.reward().overlong_buffer().enable()) {
    check->Fail("reward.overlong_buffer.enable",
                "counts the tokens after the data's prompt, but an agent's prompts are its own; "
                "leave it out with environment.name agent");
  }
}

}  // namespace

void CheckEnvironment(const v1::RunConfig& config, Checker* check) {
  const v1::EnvironmentConfig& environment = config.environment();
  const bool is_service = environment.name() == v1::ENVIRONMENT_NAME_SERVICE;
  const bool is_agent = environment.name() == v1::ENVIRONMENT_NAME_AGENT;
  check->Integer("environment.max_turns", environment.max_turns(), 1);
  check->Integer("environment.max_tokens", environment.max_tokens(), 0);
  check->Integer("environment.max_concurrent", environment.max_concurrent(), 1, kMaxAgents);
  check->Seconds("environment.timeout_s", environment.timeout_s());
  if (!environment.endpoint().empty()) {
    check->Address("environment.endpoint", environment.endpoint());
    if (!is_service) check->Fail("environment.endpoint", "needs environment.name service");
  } else if (is_service && environment.command().empty()) {
    check->Fail("environment.endpoint",
                "expected HOST:PORT, or a program in environment.command, because environment.name "
                "is service");
  }
  if (!environment.command().empty() && !is_service && !is_agent) {
    check->Fail("environment.command", "needs environment.name service or agent");
  }
  if (!environment.url().empty() && !is_agent) {
    check->Fail("environment.url", "needs environment.name agent");
  }
  if (!environment.url().empty() && !absl::StartsWith(environment.url(), "http://") &&
      !absl::StartsWith(environment.url(), "https://")) {
    check->Fail("environment.url", absl::StrCat("expected http[s]://HOST[:PORT][/PATH], found \"",
                                                environment.url(), "\""));
  }
  if (environment.max_concurrent() != DefaultRunConfig().environment().max_concurrent() &&
      !is_agent) {
    check->Fail("environment.max_concurrent", "needs environment.name agent");
  }
  if (is_agent) CheckAgent(config, check);
  if (HasReward(config.reward(), "environment") && !is_service && !is_agent) {
    check->Fail("reward.name",
                "environment needs environment.name service or agent: no other environment gives "
                "rewards");
  }
}

}  // namespace tandem::config
