#include "common/config/validation.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/config/load.h"
#include "common/config/rollout_correction_spec.h"
#include "common/config/summary.h"
#include "common/config/teacher.h"
#include "common/host/cpu_list.h"
#include "common/net/host_port.h"

namespace tandem::config {
namespace {

// Keeps products of two counts within int64, and a typo from starting a billion processes.
constexpr int64_t kMaxCount = 1000000000;
constexpr int64_t kMaxProcesses = 65536;
constexpr int kMaxDevices = 128;  // what LibTorch can number
constexpr int64_t kMaxMegabytes = int64_t{1} << 24;
constexpr double kMaxSeconds = 1e7;
constexpr int64_t kMaxWorkers = 1024;
constexpr int64_t kMaxNewtonSchulzSteps = 100;
constexpr double kMaxWeight = 1e9;
constexpr int64_t kMaxJudgeRetries = 100;
constexpr int64_t kMaxAgents = 4096;
constexpr double kMaxAgentSeconds = 86000;

class Checker {
 public:
  explicit Checker(const Places& places, Support support = Support::kThisBuild)
      : places_(places), support_(support) {}

  void Fail(const std::string& key, absl::string_view problem) {
    const auto place = places_.find(key);
    lines_.push_back(absl::StrCat(place == places_.end() ? "" : absl::StrCat(place->second, ": "),
                                  key, ": ", problem));
  }

  void Integer(const std::string& key, int64_t value, int64_t least, int64_t most = kMaxCount) {
    if (value >= least && value <= most) return;
    Fail(key, absl::StrFormat("expected an integer from %d to %d, found %d", least, most, value));
  }

  // `range` states the condition: ">= 0", "in (0, 1]".
  void Number(const std::string& key, double value, bool ok, absl::string_view range) {
    if (ok && std::isfinite(value)) return;
    Fail(key, absl::StrCat("expected a number ", range, ", found ", value));
  }

  void AtLeastZero(const std::string& key, double value) { Number(key, value, value >= 0, ">= 0"); }

  void Seconds(const std::string& key, double value) {
    Number(key, value, value > 0 && value <= kMaxSeconds, "of seconds in (0, 1e7]");
  }

  void Address(const std::string& key, const std::string& value) {
    const absl::StatusOr<net::HostPort> address = net::ParseHostPort(value);
    if (!address.ok()) Fail(key, std::string(address.status().message()));
  }

  // Reports a size that the schema describes and this version does not support: only 1 is.
  void OnlyOne(const std::string& key, int64_t value, int64_t most) {
    if (value > 1 && value <= most && support_ == Support::kThisBuild) {
      Fail(key, absl::StrFormat("not supported yet: %d (supported: 1)", value));
    } else {
      Integer(key, value, 1, most);
    }
  }

  std::vector<std::string> Take() { return std::move(lines_); }

 private:
  const Places& places_;
  const Support support_;
  std::vector<std::string> lines_;
};

// A mini-batch of prompts must divide the batch.
void CheckMiniBatch(const std::string& key, int64_t mini_batch, int64_t batch, Checker* check) {
  check->Integer(key, mini_batch, 0);
  if (mini_batch > 0 && batch > 0 && batch % mini_batch != 0) {
    check->Fail(
        key, absl::StrFormat("expected a divisor of data.train_batch_size (%d prompts), found %d; "
                             "0 takes the whole batch",
                             batch, mini_batch));
  }
}

void CheckFilterGroups(const v1::RunConfig& config, Checker* check) {
  const v1::FilterGroupsConfig& filter = config.algorithm().filter_groups();
  check->Integer("algorithm.filter_groups.max_num_gen_batches", filter.max_num_gen_batches(), 0);
  check->Integer("data.gen_batch_size", config.data().gen_batch_size(), 0);
  if (config.data().gen_batch_size() > 0 && !filter.enable()) {
    check->Fail("data.gen_batch_size", "needs algorithm.filter_groups.enable, which is false");
  }
}

void CheckOverlongBuffer(const v1::RunConfig& config, Checker* check) {
  const v1::OverlongBufferConfig& buffer = config.reward().overlong_buffer();
  check->AtLeastZero("reward.overlong_buffer.penalty_factor", buffer.penalty_factor());
  if (!buffer.enable()) return;
  check->Integer("reward.overlong_buffer.len", buffer.len(), 1, LongestCompletion(config));
}

void CheckTemplateVariables(const std::string& text, Checker* check) {
  if (text.empty()) return;
  const nlohmann::json variables = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!variables.is_object()) {
    check->Fail(
        "data.chat_template_kwargs",
        absl::StrCat(R"(expected a JSON object ({"enable_thinking": false}), found )", text));
  }
}

void CheckData(const v1::DataConfig& data, Checker* check) {
  check->Integer("data.train_batch_size", data.train_batch_size(), 1);
  check->Integer("data.max_prompt_length", data.max_prompt_length(), 1);
  check->Integer("data.test_limit", data.test_limit(), 0);
  if (data.prompt_key().empty()) check->Fail("data.prompt_key", "expected a key, found \"\"");
  if (data.chosen_key().empty()) check->Fail("data.chosen_key", "expected a key, found \"\"");
  if (data.rejected_key().empty()) check->Fail("data.rejected_key", "expected a key, found \"\"");
  if (data.answer_key().empty()) check->Fail("data.answer_key", "expected a key, found \"\"");
  for (const double weight : data.train_weights()) {
    check->Number("data.train_weights", weight, weight > 0 && weight <= 1000, "in (0, 1000]");
  }
  if (!data.train_weights().empty() && data.train_weights_size() != data.train_files_size()) {
    check->Fail("data.train_weights",
                absl::StrFormat("expected one weight for each of the %d entries of "
                                "data.train_files, found %d",
                                data.train_files_size(), data.train_weights_size()));
  }
  CheckTemplateVariables(data.chat_template_kwargs(), check);
  if (!data.system_prompt().empty() && !data.chat_template()) {
    check->Fail("data.system_prompt", "needs data.chat_template, which is false");
  }
}

void CheckDevice(const char* key, const std::string& value, Checker* check) {
  absl::string_view device = value;
  if (device.empty() || device == "auto" || device == "cpu") return;
  int index = 0;
  const bool is_gpu = absl::ConsumePrefix(&device, "cuda") &&
                      (device.empty() || (absl::ConsumePrefix(&device, ":") && !device.empty() &&
                                          absl::ascii_isdigit(device.front()) &&
                                          absl::SimpleAtoi(device, &index) && index < kMaxDevices));
  if (!is_gpu) {
    check->Fail(key, absl::StrCat("expected auto, cpu, cuda or cuda:N with N from 0 to ",
                                  kMaxDevices - 1, ", found \"", value, "\""));
  }
}

void CheckRolloutCpus(const v1::RolloutConfig& rollout, Checker* check) {
  if (rollout.cpus().empty() || rollout.cpus() == "auto") return;
  const auto cpus = host::ParseCpuList(rollout.cpus());
  if (!cpus.ok()) {
    check->Fail("rollout.cpus", absl::StrCat("auto, or a list: ", cpus.status().message()));
  }
}

void CheckRollout(const v1::RolloutConfig& rollout, Checker* check) {
  check->Integer("rollout.n", rollout.n(), 1);
  check->AtLeastZero("rollout.temperature", rollout.temperature());
  check->Integer("rollout.top_k", rollout.top_k(), 0);
  check->Number("rollout.top_p", rollout.top_p(), rollout.top_p() > 0 && rollout.top_p() <= 1,
                "in (0, 1]");
  check->Number("rollout.min_p", rollout.min_p(), rollout.min_p() >= 0 && rollout.min_p() < 1,
                "in [0, 1)");
  check->Integer("rollout.max_tokens", rollout.max_tokens(), 1);
  check->Integer("rollout.replicas", rollout.replicas(), 1, kMaxProcesses);
  check->Integer("rollout.update_weights_bucket_megabytes",
                 rollout.update_weights_bucket_megabytes(), 1, 65536);
  check->Integer("rollout.block_size", rollout.block_size(), 1, 65536);
  check->Integer("rollout.kv_cache_megabytes", rollout.kv_cache_megabytes(), 0, kMaxMegabytes);
  check->Integer("rollout.max_num_seqs", rollout.max_num_seqs(), 1);
  check->Integer("rollout.max_num_batched_tokens", rollout.max_num_batched_tokens(), 1);
  check->Integer("rollout.threads", rollout.threads(), 0, kMaxProcesses);
  check->Integer("rollout.max_model_len", rollout.max_model_len(), 0);
  check->Integer("rollout.max_concurrent_groups", rollout.max_concurrent_groups(), 0);
  check->Seconds("rollout.request_timeout_s", rollout.request_timeout_s());
  const v1::ValKwargs& val = rollout.val_kwargs();
  check->AtLeastZero("rollout.val_kwargs.temperature", val.temperature());
  check->Integer("rollout.val_kwargs.n", val.n(), 1);
  check->Integer("rollout.val_kwargs.top_k", val.top_k(), 0);
  check->Number("rollout.val_kwargs.top_p", val.top_p(), val.top_p() > 0 && val.top_p() <= 1,
                "in (0, 1]");
  for (const std::string& address : rollout.endpoints())
    check->Address("rollout.endpoints", address);
  for (const std::string& stop : rollout.stop()) {
    if (stop.empty()) check->Fail("rollout.stop", "expected text, found \"\"");
  }
  for (const std::string& name : rollout.served_model_name()) {
    if (name.empty()) check->Fail("rollout.served_model_name", "expected a name, found \"\"");
  }
  for (const int64_t id : rollout.stop_token_ids()) {
    check->Integer("rollout.stop_token_ids", id, 0, INT32_MAX);
  }
  check->Integer("rollout.tensor_model_parallel_size", rollout.tensor_model_parallel_size(), 1,
                 kMaxProcesses);
  check->Seconds("rollout.collective_timeout_s", rollout.collective_timeout_s());
  CheckDevice("rollout.device", rollout.device(), check);
  CheckRolloutCpus(rollout, check);
}

void CheckTrainer(const v1::TrainerConfig& trainer, Checker* check) {
  check->Integer("trainer.ranks", trainer.ranks(), 1, kMaxProcesses);
  check->Integer("trainer.total_steps", trainer.total_steps(), 0);
  check->Number("trainer.total_epochs", trainer.total_epochs(),
                trainer.total_epochs() >= 0 && trainer.total_epochs() <= 1e6, "in [0, 1e6]");
  if (absl::StartsWith(trainer.save_best(), "val") && trainer.test_freq() == 0) {
    check->Fail("trainer.save_best", absl::StrCat("needs trainer.test_freq > 0, for only ",
                                                  "evaluations measure ", trainer.save_best()));
  }
  check->Integer("trainer.max_staleness", trainer.max_staleness(), 0);
  check->Integer("trainer.test_freq", trainer.test_freq(), 0);
  check->Integer("trainer.save_freq", trainer.save_freq(), 0);
  CheckDevice("trainer.device", trainer.device(), check);
  check->Number(
      "trainer.save_interval_seconds", trainer.save_interval_seconds(),
      trainer.save_interval_seconds() >= 0 && trainer.save_interval_seconds() <= kMaxSeconds,
      "of seconds in [0, 1e7]");
  check->Integer("trainer.keep_last", trainer.keep_last(), 0);
  check->Integer("trainer.max_skipped_steps", trainer.max_skipped_steps(), 0);
  check->Integer("trainer.max_tokens_per_micro_batch", trainer.max_tokens_per_micro_batch(), 1);
  check->Integer("trainer.threads", trainer.threads(), 0, kMaxProcesses);
  check->Integer("trainer.prefetch_units", trainer.prefetch_units(), 0);
  check->Integer("trainer.activation_checkpointing_interval",
                 trainer.activation_checkpointing_interval(), 1);
  check->Seconds("trainer.collective_timeout_s", trainer.collective_timeout_s());
  check->Seconds("trainer.update_timeout_s", trainer.update_timeout_s());
  check->Number("trainer.driver_lease_s", trainer.driver_lease_s(),
                trainer.driver_lease_s() > 0 && trainer.driver_lease_s() <= 86400,
                "of seconds in (0, 86400]");
  if (!trainer.endpoint().empty()) check->Address("trainer.endpoint", trainer.endpoint());
  for (const int64_t size : trainer.mesh_shape())
    check->Integer("trainer.mesh_shape", size, 1, kMaxProcesses);
  check->Integer("trainer.min_unit_bytes", trainer.min_unit_bytes(), 0);
  check->Integer("trainer.max_unit_bytes", trainer.max_unit_bytes(), 0);
  if (trainer.max_unit_bytes() > 0 && trainer.max_unit_bytes() < trainer.min_unit_bytes()) {
    check->Fail("trainer.max_unit_bytes",
                absl::StrFormat("expected 0 or at least trainer.min_unit_bytes (%d), found %d",
                                trainer.min_unit_bytes(), trainer.max_unit_bytes()));
  }
  check->OnlyOne("trainer.pipeline_model_parallel_size", trainer.pipeline_model_parallel_size(),
                 kMaxProcesses);
  if (!trainer.mesh().empty() && trainer.mesh() != "auto") {
    check->Fail("trainer.mesh", absl::StrCat("expected auto or nothing, found \"", trainer.mesh(),
                                             "\"; set a shape with trainer.mesh_shape"));
  }
  check->Integer("trainer.memory_megabytes", trainer.memory_megabytes(), 0, kMaxMegabytes);
}

// `section` is the section's key path, ending in a dot.
void CheckOptim(const std::string& section, const v1::OptimConfig& optim, Checker* check) {
  check->AtLeastZero(section + "lr", optim.lr());
  check->AtLeastZero(section + "weight_decay", optim.weight_decay());
  check->AtLeastZero(section + "grad_clip", optim.grad_clip());
  check->Number(section + "eps", optim.eps(), optim.eps() > 0, "> 0");
  check->Integer(section + "warmup_steps", optim.warmup_steps(), 0);
  check->Number(section + "min_lr_ratio", optim.min_lr_ratio(),
                optim.min_lr_ratio() >= 0 && optim.min_lr_ratio() <= 1, "in [0, 1]");
  const v1::MuonConfig& muon = optim.muon();
  check->AtLeastZero(section + "muon.lr", muon.lr());
  if (optim.name() == v1::OPTIMIZER_NAME_MUON && muon.lr() > 0 && optim.lr() == 0) {
    check->Fail(section + "muon.lr", absl::StrCat("expected 0 with ", section, "lr 0"));
  }
  check->Number(section + "muon.momentum", muon.momentum(),
                muon.momentum() >= 0 && muon.momentum() < 1, "in [0, 1)");
  check->AtLeastZero(section + "muon.weight_decay", muon.weight_decay());
  check->Integer(section + "muon.ns_steps", muon.ns_steps(), 1, kMaxNewtonSchulzSteps);
  if (optim.betas_size() != 2) {
    check->Fail(section + "betas",
                absl::StrFormat("expected two numbers in [0, 1), found %d", optim.betas_size()));
    return;
  }
  for (const double beta : optim.betas()) {
    check->Number(section + "betas", beta, beta >= 0 && beta < 1, "in [0, 1)");
  }
}

void CheckActor(const v1::RunConfig& config, Checker* check) {
  const v1::ActorConfig& actor = config.actor();
  CheckOptim("actor.optim.", actor.optim(), check);
  check->Integer("actor.ppo_epochs", actor.ppo_epochs(), 1);
  check->Number("actor.clip_ratio_low", actor.clip_ratio_low(),
                actor.clip_ratio_low() >= 0 && actor.clip_ratio_low() <= 1, "in [0, 1]");
  check->AtLeastZero("actor.clip_ratio_high", actor.clip_ratio_high());
  check->Number("actor.clip_ratio_c", actor.clip_ratio_c(),
                actor.clip_ratio_c() == 0 || actor.clip_ratio_c() > 1, "> 1, or 0");
  check->AtLeastZero("actor.kl_loss_coef", actor.kl_loss_coef());
  check->Number("actor.entropy_coeff", actor.entropy_coeff(), true, "that is finite");
  check->AtLeastZero("actor.loss_scale_factor", actor.loss_scale_factor());
  check->Number("actor.tau_pos", actor.tau_pos(), actor.tau_pos() > 0, "> 0");
  check->Number("actor.tau_neg", actor.tau_neg(), actor.tau_neg() > 0, "> 0");
  const v1::PolicyLossConfig& loss = actor.policy_loss();
  check->AtLeastZero("actor.policy_loss.dro_beta", loss.dro_beta());
  check->Number("actor.policy_loss.clip_cov_ratio", loss.clip_cov_ratio(),
                loss.clip_cov_ratio() >= 0 && loss.clip_cov_ratio() <= 1, "in [0, 1]");
  check->Number("actor.policy_loss.clip_cov_lb", loss.clip_cov_lb(), true, "that is finite");
  check->Number("actor.policy_loss.clip_cov_ub", loss.clip_cov_ub(),
                loss.clip_cov_ub() > loss.clip_cov_lb(), "above clip_cov_lb");
  check->Number("actor.policy_loss.kl_cov_ratio", loss.kl_cov_ratio(),
                loss.kl_cov_ratio() >= 0 && loss.kl_cov_ratio() <= 1, "in [0, 1]");
  check->AtLeastZero("actor.policy_loss.ppo_kl_coef", loss.ppo_kl_coef());
  check->Number("actor.top_entropy_quantile", actor.top_entropy_quantile(),
                actor.top_entropy_quantile() > 0 && actor.top_entropy_quantile() <= 1, "in (0, 1]");

  check->AtLeastZero("actor.router_aux_loss_coef", actor.router_aux_loss_coef());
  check->AtLeastZero("actor.router_z_loss_coef", actor.router_z_loss_coef());
  check->AtLeastZero("actor.router_bias_update_rate", actor.router_bias_update_rate());
  CheckMiniBatch("actor.ppo_mini_batch_size", actor.ppo_mini_batch_size(),
                 config.data().train_batch_size(), check);
}

void CheckRolloutCorrection(const v1::RolloutCorrectionConfig& correction, Checker* check) {
  const std::string section = "algorithm.rollout_correction.";
  if (const auto bounds = ParseWeightBounds(correction.rollout_is_threshold()); !bounds.ok()) {
    check->Fail(section + "rollout_is_threshold", bounds.status().message());
  }
  const auto rules =
      ParseRejectionRules(correction.rollout_rs(), correction.rollout_rs_threshold());
  if (!rules.ok()) {
    const bool of_rules = absl::StartsWith(rules.status().message(), "expected rules");
    check->Fail(section + (of_rules ? "rollout_rs" : "rollout_rs_threshold"),
                rules.status().message());
  }
  const bool is_reinforce = correction.loss_type() == v1::CORRECTION_LOSS_TYPE_REINFORCE;
  if (is_reinforce && !correction.bypass_mode()) {
    check->Fail(section + "loss_type", "reinforce needs bypass_mode=true");
  }
  if (correction.bypass_mode() && !is_reinforce && correction.rollout_is() != v1::ROLLOUT_IS_NONE &&
      correction.rollout_is() != v1::ROLLOUT_IS_AUTO) {
    check->Fail(section + "rollout_is",
                "expected none: with bypass_mode the loss's ratio already uses the rollout's "
                "probabilities; set only one of the two");
  }
}

void CheckAlgorithm(const v1::AlgorithmConfig& algorithm, const v1::RewardConfig& reward,
                    Checker* check) {
  const auto share = [check](const std::string& key, double value) {
    check->Number(key, value, value >= 0 && value <= 1, "in [0, 1]");
  };
  share("algorithm.gamma", algorithm.gamma());
  share("algorithm.lam", algorithm.lam());
  const v1::KlControlConfig& control = algorithm.kl_ctrl();
  check->AtLeastZero("algorithm.kl_ctrl.kl_coef", control.kl_coef());
  check->Integer("algorithm.kl_ctrl.horizon", control.horizon(), 1);
  check->Number("algorithm.kl_ctrl.target_kl", control.target_kl(), control.target_kl() > 0, "> 0");
  if (algorithm.adv_estimator() == v1::ADV_ESTIMATOR_GDPO && algorithm.use_kl_in_reward()) {
    check->Fail("algorithm.use_kl_in_reward",
                "expected false with algorithm.adv_estimator gdpo, which normalises each reward by "
                "itself; use actor.use_kl_loss");
  }
  if (algorithm.adv_estimator() == v1::ADV_ESTIMATOR_GDPO && reward.overlong_buffer().enable()) {
    check->Fail("reward.overlong_buffer.enable",
                "expected false with algorithm.adv_estimator gdpo, which would leave the penalty "
                "out; make it one of reward.rewards");
  }
  CheckRolloutCorrection(algorithm.rollout_correction(), check);
}

void CheckCritic(const v1::RunConfig& config, Checker* check) {
  const v1::CriticConfig& critic = config.critic();
  CheckOptim("critic.optim.", critic.optim(), check);
  CheckMiniBatch("critic.ppo_mini_batch_size", critic.ppo_mini_batch_size(),
                 config.data().train_batch_size(), check);
  check->Integer("critic.ppo_epochs", critic.ppo_epochs(), 0);
  check->Number("critic.cliprange_value", critic.cliprange_value(), critic.cliprange_value() > 0,
                "> 0");
  check->Integer("trainer.critic_warmup", config.trainer().critic_warmup(), 0);
  if (config.trainer().critic_warmup() > 0 &&
      config.algorithm().adv_estimator() != v1::ADV_ESTIMATOR_GAE) {
    check->Fail("trainer.critic_warmup", "needs algorithm.adv_estimator gae");
  }
}

void CheckDpo(const v1::DpoConfig& dpo, Checker* check) {
  check->Number("dpo.beta", dpo.beta(), dpo.beta() > 0, "> 0");
  check->Number("dpo.label_smoothing", dpo.label_smoothing(),
                dpo.label_smoothing() >= 0 && dpo.label_smoothing() < 0.5, "in [0, 0.5)");
}

// The section reward.judge at `key`, in which unset values have their defaults.
void CheckJudge(const v1::JudgeConfig& judge, const std::string& key, Checker* check) {
  if (judge.url().empty()) {
    check->Fail(key + ".url",
                "expected the judge's base URL, such as http://127.0.0.1:8000/v1, found none");
  }
  if (judge.model().empty()) {
    check->Fail(key + ".model",
                "expected the name of the model that the judge's server has, found none");
  }
  if (!judge.template_().empty() && !judge.template_file().empty()) {
    check->Fail(key + ".template_file",
                absl::StrCat("set one of template_file and ", key, ".template"));
  }
  check->Integer(key + ".max_tokens", judge.max_tokens(), 1);
  check->AtLeastZero(key + ".temperature", judge.temperature());
  check->Integer(key + ".retries", judge.retries(), 0, kMaxJudgeRetries);
  check->Integer(key + ".concurrency", judge.concurrency(), 1, kMaxWorkers);
  if (judge.api_key_env().empty()) {
    check->Fail(key + ".api_key_env", "expected the name of an environment variable, found none");
  }
  check->Number(key + ".scale", judge.scale(), std::abs(judge.scale()) <= kMaxWeight,
                "from -1e9 to 1e9");
}

// The sections judge and model of a reward, each of which is for the reward of its name. `judge` and
// `model` have the defaults that are not set.
void CheckRewardSections(const std::string& name, const v1::JudgeConfig& judge, bool sets_judge,
                         const v1::RewardModelConfig& model, const std::string& key,
                         Checker* check) {
  if (name == "judge") {
    CheckJudge(judge, key + ".judge", check);
  } else if (sets_judge) {
    check->Fail(key + ".judge", absl::StrCat("needs ", key, ".name judge"));
  }
  const bool sets_model = !model.path().empty() || !model.endpoint().empty();
  if (!model.endpoint().empty()) check->Address(key + ".model.endpoint", model.endpoint());
  if (name == "model" && !sets_model) {
    check->Fail(
        key + ".model.path",
        "expected the folder of a reward model, or the endpoint of a rollout that serves one");
  } else if (name != "model" && sets_model) {
    check->Fail(key + ".model", absl::StrCat("needs ", key, ".name model"));
  }
}

// The keys that say which reward is used, of the section at `key`.
template <typename Reward>
void CheckRewardChoice(const Reward& reward, const std::string& key, Checker* check) {
  if (!reward.endpoint().empty()) check->Address(key + ".endpoint", reward.endpoint());
  if (reward.name() == "service" && reward.endpoint().empty()) {
    check->Fail(key + ".endpoint",
                absl::StrCat("expected HOST:PORT, because ", key, ".name is service"));
  }
  if (!reward.function().empty() && reward.path().empty()) {
    check->Fail(key + ".function", absl::StrCat("needs ", key, ".path, the file of the function"));
  }
}

void CheckWeightedReward(const v1::WeightedReward& reward, const std::string& key, Checker* check) {
  CheckRewardChoice(reward, key, check);
  v1::JudgeConfig judge = DefaultRunConfig().reward().judge();
  judge.MergeFrom(reward.judge());
  CheckRewardSections(reward.name(), judge, reward.has_judge(), reward.model(), key, check);
  const bool is_service =
      !reward.endpoint().empty() && (reward.name().empty() || reward.name() == "service");
  const int choices = (reward.name().empty() ? 0 : 1) + (reward.path().empty() ? 0 : 1) +
                      (reward.endpoint().empty() ? 0 : 1);
  if (choices != 1 && !(is_service && reward.path().empty())) {
    check->Fail(key, absl::StrCat("expected one of name (a built-in reward), path (a Python file) "
                                  "and endpoint (a RewardService), found ",
                                  choices == 0 ? "none" : "several"));
  }
  check->Number(key + ".weight", reward.weight(), std::abs(reward.weight()) <= kMaxWeight,
                "from -1e9 to 1e9");
}

void CheckReward(const v1::RewardConfig& reward, Checker* check) {
  // The default counts as none: another choice need not unset it.
  const bool has_other_name =
      !reward.name().empty() && reward.name() != DefaultRunConfig().reward().name();
  if (reward.name().empty() && reward.path().empty() && reward.endpoint().empty() &&
      reward.rewards_size() == 0) {
    check->Fail(
        "reward.name",
        "expected the name of a reward, found none, and no reward.path, endpoint or rewards");
  }
  CheckRewardChoice(reward, "reward", check);
  const bool sets_judge =
      reward.judge().SerializeAsString() != DefaultRunConfig().reward().judge().SerializeAsString();
  CheckRewardSections(reward.path().empty() && reward.rewards().empty() ? reward.name() : "",
                      reward.judge(), sets_judge, reward.model(), "reward", check);
  if (!reward.path().empty() && has_other_name) {
    check->Fail("reward.path", absl::StrCat("reward.name is ", reward.name(),
                                            "; set one of the two, or both in reward.rewards"));
  }
  if (reward.rewards_size() > 0 && (has_other_name || !reward.path().empty() ||
                                    !reward.endpoint().empty() || !reward.pattern().empty())) {
    check->Fail("reward.rewards",
                "expected every reward in this list, found one in reward.name, path, endpoint or "
                "pattern too");
  }
  for (int i = 0; i < reward.rewards_size(); ++i) {
    CheckWeightedReward(reward.rewards(i), absl::StrFormat("reward.rewards[%d]", i), check);
  }
  if (reward.python().empty()) {
    check->Fail("reward.python", "expected a Python interpreter, found none");
  }
  check->Integer("reward.workers", reward.workers(), 1, kMaxWorkers);
  check->Seconds("reward.timeout_s", reward.timeout_s());
}

// Whether one of the rewards has this name.
bool HasReward(const v1::RewardConfig& reward, absl::string_view name) {
  if (reward.rewards().empty()) return reward.name() == name && reward.path().empty();
  return std::any_of(reward.rewards().begin(), reward.rewards().end(),
                     [name](const v1::WeightedReward& part) { return part.name() == name; });
}

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
  if (config.actor().router_replay() == v1::ROUTER_REPLAY_R3) {
    check->Fail(
        "actor.router_replay",
        "r3 needs the experts of every sampled token, which sessions of agents do not record; "
        "use disabled with environment.name agent");
  }
  if (config.reward().overlong_buffer().enable()) {
    check->Fail("reward.overlong_buffer.enable",
                "counts the tokens after the data's prompt, but an agent's prompts are its own; "
                "leave it out with environment.name agent");
  }
}

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
  const bool top_k = teacher.top_k() > 0;
  const auto fail = [&](const char* key, bool is_usual, bool is_for_sft) {
    if (is_usual) return;
    if (!has_teacher) {
      check->Fail(key, "needs a teacher: teacher.path, teacher.endpoint or teacher.teachers");
    } else if (top_k && !is_for_sft) {
      check->Fail(key,
                  "has no effect with teacher.top_k, which replaces the tokens that tandem sft "
                  "trains on; remove one of the two");
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
  if (teacher.mode() == v1::DISTILLATION_MODE_LOSS &&
      (type == v1::KL_LOSS_TYPE_K1 || type == v1::KL_LOSS_TYPE_KL)) {
    check->Fail("actor.kl_loss_type",
                "k1 as a loss has a gradient of 0 on average, so teacher.mode loss would train "
                "nothing; use k1+, k2 or k3, or teacher.mode advantage");
  }
  if (teacher.mode() == v1::DISTILLATION_MODE_ADVANTAGE &&
      config.actor().policy_loss().loss_mode() == v1::POLICY_LOSS_MODE_GMPO) {
    check->Fail("actor.policy_loss.loss_mode",
                "gmpo averages the advantages of a completion, so the teacher could not tell its "
                "tokens apart; use another loss, or teacher.mode loss");
  }
}

// Muon updates whole matrices, which tensor parallelism splits.
void CheckMuon(const v1::RunConfig& config, const std::string& key, const v1::OptimConfig& optim,
               Checker* check) {
  const v1::TrainerConfig& trainer = config.trainer();
  if (optim.name() != v1::OPTIMIZER_NAME_MUON) return;
  const int num_dims = std::min(trainer.mesh_dim_names_size(), trainer.mesh_shape_size());
  for (int i = 0; i < num_dims; ++i) {
    if (trainer.mesh_shape(i) <= 1) continue;
    const std::string& dim = trainer.mesh_dim_names(i);
    if (dim == "tp") {
      check->Fail(
          key,
          absl::StrCat("muon updates whole matrices, which a trainer.mesh_shape with tp ",
                       trainer.mesh_shape(i), " splits; use dp_shard in place of tp, or adamw"));
    } else if (dim == "ep") {
      check->Fail(
          key,
          absl::StrCat("muon does not update experts that a trainer.mesh_shape with ep ",
                       trainer.mesh_shape(i), " splits; use dp_shard in place of ep, or adamw"));
    }
  }
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
