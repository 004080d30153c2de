#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/config/checks/checks.h"
#include "common/config/load.h"
#include "common/config/teacher.h"

namespace tandem::config {
namespace {

// Which teachers there are.
void CheckTeachers(const v1::TeacherConfig& teacher, Checker* check) {
  if (!teacher.endpoint().empty()) check->Address("teacher.endpoint", teacher.endpoint());
  if (!teacher.path().empty() && !teacher.endpoint().empty()) {
    check->Fail("teacher.endpoint", "teacher.path is set too; set one of the two");
  }
  if (!teacher.teachers().empty() && (!teacher.path().empty() || !teacher.endpoint().empty())) {
    check->Fail("teacher.teachers",
                "expected every teacher in this list, found one in teacher.path or endpoint too");
  }
  std::set<std::string> sources;
  for (int i = 0; i < teacher.teachers_size(); ++i) {
    const v1::SourceTeacher& source = teacher.teachers(i);
    const std::string key = absl::StrFormat("teacher.teachers[%d]", i);
    if (source.data_source().empty()) {
      check->Fail(key + ".data_source", "expected the data_source of rows, found \"\"");
    } else if (!sources.insert(source.data_source()).second) {
      check->Fail(key + ".data_source", absl::StrCat("expected each data_source once, found ",
                                                     source.data_source(), " again"));
    }
    if (source.path().empty() == source.endpoint().empty()) {
      check->Fail(key,
                  absl::StrCat("expected one of path (a model folder) and endpoint (a rollout), "
                               "found ",
                               source.path().empty() ? "none" : "both"));
    }
    if (!source.endpoint().empty()) check->Address(key + ".endpoint", source.endpoint());
  }
}

// Keys of the section that have no effect as the others are.
void CheckTeacherEffects(const v1::TeacherConfig& teacher, bool has_teacher, Checker* check) {
  const v1::TeacherConfig usual = DefaultRunConfig().teacher();
  const bool supervised = teacher.top_k() > 0 && teacher.mode() != v1::DISTILLATION_MODE_LOSS;
  const auto fail = [&](const char* key, bool is_usual, bool is_for_sft) {
    if (is_usual) return;
    if (!has_teacher) {
      check->Fail(key, "needs a teacher: teacher.path, teacher.endpoint or teacher.teachers");
    } else if (supervised && !is_for_sft) {
      check->Fail(key,
                  "has no effect with teacher.top_k, which replaces the tokens that tandem sft "
                  "trains on; remove one of the two, or set teacher.mode loss for tandem train");
    }
  };
  fail("teacher.mode", teacher.mode() == usual.mode(), false);
  fail("teacher.coef", teacher.coef() == usual.coef(), false);
  fail("teacher.reward_coef", teacher.reward_coef() == usual.reward_coef(), false);
  fail("teacher.top_k", teacher.top_k() == usual.top_k(), true);
  fail("teacher.timeout_s", teacher.timeout_s() == usual.timeout_s(), true);
}

// What a run without rewards in its advantages has no use for.
void CheckTeacherAlone(const v1::RunConfig& config, Checker* check) {
  const v1::AlgorithmConfig& algorithm = config.algorithm();
  const auto fail = [check](const char* key, absl::string_view what) {
    check->Fail(key, absl::StrCat(what,
                                  ", but with teacher.reward_coef 0 the policy learns from the "
                                  "teacher alone; set teacher.reward_coef above 0, or ",
                                  absl::EndsWith(key, "adv_estimator") ? "use grpo" : "remove it"));
  };
  switch (algorithm.adv_estimator()) {
    case v1::ADV_ESTIMATOR_GAE:
      fail("algorithm.adv_estimator", "gae trains a critic on rewards");
      break;
    case v1::ADV_ESTIMATOR_REMAX:
      fail("algorithm.adv_estimator", "remax samples a baseline for rewards");
      break;
    case v1::ADV_ESTIMATOR_OPTIMAL_TOKEN_BASELINE:
    case v1::ADV_ESTIMATOR_TIR_OPTIMAL_TOKEN_BASELINE:
      fail("algorithm.adv_estimator",
           "the optimal token baselines cost a forward pass for rewards");
      break;
    default:
      break;
  }
  if (algorithm.filter_groups().enable()) {
    fail("algorithm.filter_groups.enable", "it keeps the groups whose rewards differ");
  }
  if (algorithm.use_kl_in_reward()) {
    fail("algorithm.use_kl_in_reward", "it changes rewards");
  }
  if (config.reward().overlong_buffer().enable()) {
    fail("reward.overlong_buffer.enable", "it changes rewards");
  }
}

}  // namespace

void CheckTeacher(const v1::RunConfig& config, Checker* check) {
  const v1::TeacherConfig& teacher = config.teacher();
  check->Number("teacher.coef", teacher.coef(), teacher.coef() > 0, "> 0");
  check->AtLeastZero("teacher.reward_coef", teacher.reward_coef());
  check->Integer("teacher.top_k", teacher.top_k(), 0, kMaxTeacherTopK);
  check->Seconds("teacher.timeout_s", teacher.timeout_s());
  CheckTeachers(teacher, check);
  CheckTeacherEffects(teacher, !TeachersOf(config).empty(), check);
  if (!DistilsOnPolicy(config)) return;
  if (teacher.reward_coef() == 0) CheckTeacherAlone(config, check);
  const v1::KlLossType type = config.actor().kl_loss_type();
  if (teacher.mode() == v1::DISTILLATION_MODE_LOSS && teacher.top_k() == 0 &&
      (type == v1::KL_LOSS_TYPE_K1 || type == v1::KL_LOSS_TYPE_KL)) {
    check->Fail("actor.kl_loss_type",
                "k1 as a loss has a gradient of 0 on average, so teacher.mode loss would train "
                "nothing; use k1+, k2 or k3, teacher.top_k, or teacher.mode advantage");
  }
  if (teacher.mode() == v1::DISTILLATION_MODE_ADVANTAGE &&
      config.actor().policy_loss().loss_mode() == v1::POLICY_LOSS_MODE_GMPO) {
    check->Fail("actor.policy_loss.loss_mode",
                "gmpo averages the advantages of a completion, so the teacher could not tell its "
                "tokens apart; use another loss, or teacher.mode loss");
  }
}

}  // namespace tandem::config
