#include "common/config/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/config/load.h"
#include "common/config/rollout_correction_spec.h"
#include "tests/common/config/config_file.h"
#include "tests/support/status_matchers.h"

namespace tandem::config {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ValidationTest : public ConfigTest {};

std::string ErrorOf(const std::string& assignment) {
  const auto config = LoadRunConfig({}, {assignment});
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << assignment;
  return std::string(config.status().message());
}

TEST_F(ValidationTest, ValuesOutOfRangeAreRefusedWithTheKey) {
  for (const char* assignment : {"data.train_batch_size=0",
                                 "data.max_prompt_length=0",
                                 "data.test_limit=-2",
                                 "rollout.n=0",
                                 "rollout.temperature=-0.1",
                                 "rollout.top_k=-2",
                                 "rollout.top_p=0",
                                 "rollout.top_p=1.1",
                                 "rollout.min_p=1",
                                 "rollout.max_tokens=0",
                                 "rollout.replicas=0",
                                 "rollout.replicas=1000000",
                                 "rollout.update_weights_bucket_megabytes=0",
                                 "rollout.block_size=0",
                                 "rollout.kv_cache_megabytes=-1",
                                 "rollout.max_num_seqs=0",
                                 "rollout.max_num_batched_tokens=0",
                                 "rollout.threads=-1",
                                 "rollout.cpus=0-x",
                                 "rollout.max_model_len=-1",
                                 "rollout.request_timeout_s=0",
                                 "rollout.device=gpu",
                                 "trainer.device=gpu",
                                 "rollout.device=cuda:",
                                 "rollout.device=cuda:-1",
                                 "rollout.device=cuda:128",
                                 "rollout.device=cuda0",
                                 "rollout.val_kwargs.n=0",
                                 "rollout.val_kwargs.top_p=2",
                                 "rollout.endpoints=[nohost]",
                                 "rollout.stop=['']",
                                 "rollout.stop_token_ids=[-1]",
                                 "trainer.ranks=0",
                                 "trainer.total_steps=-1",
                                 "trainer.max_staleness=-1",
                                 "trainer.test_freq=-2",
                                 "trainer.save_freq=-2",
                                 "trainer.save_interval_seconds=-1",
                                 "trainer.max_tokens_per_micro_batch=0",
                                 "trainer.threads=-1",
                                 "trainer.prefetch_units=-1",
                                 "trainer.collective_timeout_s=0",
                                 "trainer.update_timeout_s=-1",
                                 "trainer.endpoint=host",
                                 "actor.optim.lr=-1",
                                 "actor.optim.betas=[0.9]",
                                 "actor.optim.betas=[0.9, 1]",
                                 "actor.optim.betas=[-0.1, 0.9]",
                                 "actor.optim.weight_decay=-1",
                                 "actor.optim.grad_clip=-1",
                                 "actor.optim.eps=0",
                                 "actor.optim.warmup_steps=-1",
                                 "actor.optim.min_lr_ratio=2",
                                 "actor.ppo_mini_batch_size=-1",
                                 "actor.ppo_epochs=0",
                                 "actor.clip_ratio_low=-1",
                                 "actor.clip_ratio_high=-1",
                                 "actor.clip_ratio_c=0.5",
                                 "actor.kl_loss_coef=-1",
                                 "actor.loss_scale_factor=-1",
                                 "actor.tau_pos=0",
                                 "actor.tau_neg=-1",
                                 "algorithm.gamma=1.5",
                                 "algorithm.lam=-0.1",
                                 "algorithm.kl_ctrl.kl_coef=-1",
                                 "algorithm.kl_ctrl.horizon=0",
                                 "algorithm.kl_ctrl.target_kl=0",
                                 "algorithm.rollout_correction.rollout_is_threshold=0",
                                 "algorithm.rollout_correction.rollout_is_threshold=3_2",
                                 "algorithm.rollout_correction.rollout_is_threshold=two",
                                 "algorithm.rollout_correction.rollout_rs=token_k4",
                                 "reward.name=",
                                 "reward.name=service",
                                 "rollout.served_model_name=['']",
                                 "reward.timeout_s=0",
                                 "reward.function=f",
                                 "reward.python=",
                                 "reward.workers=0",
                                 "reward.workers=2000",
                                 "reward.overlong_buffer.penalty_factor=-1",
                                 "algorithm.filter_groups.max_num_gen_batches=-1",
                                 "data.gen_batch_size=8",  // without filter_groups
                                 "data.chosen_key=",
                                 "data.train_weights=[0]",
                                 "data.train_weights=[1, 1]",
                                 "data.chat_template_kwargs=text",
                                 "trainer.total_epochs=-1",
                                 "trainer.save_best=val/loss",  // without test_freq
                                 "data.rejected_key=",
                                 "critic.optim.lr=-1",
                                 "critic.optim.betas=[0.9]",
                                 "critic.ppo_mini_batch_size=5",
                                 "critic.ppo_epochs=-1",
                                 "critic.cliprange_value=0",
                                 "trainer.critic_warmup=3",  // without gae
                                 "dpo.beta=0",
                                 "dpo.label_smoothing=0.5",
                                 "data.system_prompt=be brief",
                                 "data.prompt_key="}) {
    const std::string key = std::string(assignment).substr(0, std::string(assignment).find('='));
    EXPECT_THAT(ErrorOf(assignment), HasSubstr(key == "reward.name" ? "reward." : key + ": "));
  }
}

TEST_F(ValidationTest, TheMessageSaysWhereTheValueWasStated) {
  const std::string path = Write("run.yaml", "rollout:\n  temperature: -1\n");
  EXPECT_THAT(LoadRunConfig({path}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       path + ":2: rollout.temperature: expected a number >= 0, found -1"));
  EXPECT_EQ(ErrorOf("trainer.ranks=0"),
            "--set trainer.ranks=0: trainer.ranks: expected an integer from 1 to 65536, found 0");
}

TEST_F(ValidationTest, ChoicesThatAreNotOfferedYetSayWhatIs) {
  EXPECT_OK(LoadRunConfig({}, {"trainer.mode=async"}).status());
  EXPECT_THAT(ErrorOf("trainer.pipeline_model_parallel_size=2"),
              HasSubstr("not supported yet: 2 (supported: 1)"));
}

TEST_F(ValidationTest, ExactNumericsRefuseWhatTheyCannotHold) {
  const auto error = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), "numerics=exact");
    return std::string(LoadRunConfig({}, overrides).status().message());
  };
  EXPECT_OK(LoadRunConfig({}, {"numerics=exact"}).status());
  EXPECT_OK(LoadRunConfig({}, {"numerics=exact", "trainer.ulysses_sequence_parallel_size=2",
                               "trainer.ranks=2"})
                .status());
  EXPECT_THAT(error({"trainer.ranks=4", "trainer.mesh_shape=[2,2]",
                     "trainer.mesh_dim_names=[dp_shard,tp]"}),
              HasSubstr("numerics: exact needs a trainer.mesh_shape without tensor parallelism"));
  EXPECT_THAT(error({"trainer.mesh=auto"}), HasSubstr("trainer.mesh auto may choose"));
  EXPECT_THAT(error({"rollout.tensor_model_parallel_size=2"}),
              HasSubstr("exact needs rollout.tensor_model_parallel_size 1"));
  EXPECT_THAT(error({"model.attn_implementation=eager"}),
              HasSubstr("exact needs model.attn_implementation auto"));
  EXPECT_THAT(error({"rollout.in_flight=keep_kv"}),
              HasSubstr("exact needs rollout.in_flight abort, wait or keep_recompute"));
}

TEST_F(ValidationTest, ReplicasOfSeveralRanksTakeParts) {
  EXPECT_OK(LoadRunConfig({}, {"rollout.tensor_model_parallel_size=8"}).status());
  EXPECT_THAT(ErrorOf("rollout.tensor_model_parallel_size=0"), HasSubstr("from 1 to"));
  for (const char* transport : {"broadcast", "reshard", "delta"}) {
    EXPECT_OK(LoadRunConfig({}, {"rollout.tensor_model_parallel_size=2",
                                 std::string("trainer.weight_transport=") + transport})
                  .status());
  }
  EXPECT_THAT(ErrorOf("rollout.collective_timeout_s=0"), HasSubstr("collective_timeout_s"));
}

TEST_F(ValidationTest, MiniBatchesDivideTheBatch) {
  EXPECT_THAT(ErrorOf("actor.ppo_mini_batch_size=5"),
              HasSubstr("expected a divisor of data.train_batch_size (32 prompts), found 5"));
  EXPECT_THAT(ErrorOf("actor.ppo_mini_batch_size=64"), HasSubstr("found 64"));
  EXPECT_OK(LoadRunConfig({}, {"actor.ppo_mini_batch_size=8"}).status());
}

TEST_F(ValidationTest, RolloutCorrectionSaysWhichRuleAndWhichThreshold) {
  const std::string section = "algorithm.rollout_correction.";
  EXPECT_THAT(ErrorOf(section + "rollout_rs=token_k4"), HasSubstr("did you mean 'token_k"));
  EXPECT_THAT(ErrorOf(section + "rollout_rs=token_k1"),
              HasSubstr("rollout_rs_threshold: expected one threshold, or 1"));
  const auto with_rules = [&section](const std::string& rules, const std::string& thresholds) {
    return LoadRunConfig({}, {section + "rollout_rs=" + rules,
                              section + "rollout_rs_threshold=" + thresholds})
        .status();
  };
  EXPECT_OK(with_rules("token_k1", "0.5_2"));
  EXPECT_OK(with_rules("\"token_k1,seq_mean_k3\"", "\"2,0.01\""));
  EXPECT_OK(with_rules("null", ""));
  EXPECT_THAT(with_rules("token_k2", "0.5_2"), StatusIs(absl::StatusCode::kInvalidArgument,
                                                        HasSubstr("takes only a largest value")));
  EXPECT_THAT(with_rules("token", "0.5"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at least 1")));
  EXPECT_THAT(LoadRunConfig({}, {section + "bypass_mode=true", section + "rollout_is=token"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(section + "rollout_is: expected none")));
}

TEST_F(ValidationTest, GdpoTakesNoPenaltyThatItWouldLeaveOut) {
  for (const std::string key : {"algorithm.use_kl_in_reward", "reward.overlong_buffer.enable"}) {
    const std::string len = "reward.overlong_buffer.len=8";
    EXPECT_OK(LoadRunConfig({}, {len, key + "=true"}).status());
    EXPECT_THAT(LoadRunConfig({}, {len, key + "=true", "algorithm.adv_estimator=gdpo"}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(key)));
  }
}

std::string ErrorsOf(const std::vector<std::string>& assignments) {
  return std::string(LoadRunConfig({}, assignments).status().message());
}

TEST_F(ValidationTest, TeachersAreStatedOnce) {
  EXPECT_EQ(ErrorsOf({"teacher.path=t"}), "");
  EXPECT_EQ(ErrorsOf({"teacher.endpoint=h:1", "teacher.mode=loss", "teacher.coef=2"}), "");
  EXPECT_EQ(ErrorsOf({"teacher.teachers=[{data_source: a, path: t}, {data_source: b, endpoint: "
                      "'h:1'}]"}),
            "");
  EXPECT_THAT(ErrorsOf({"teacher.path=t", "teacher.endpoint=h:1"}),
              HasSubstr("teacher.endpoint: teacher.path is set too"));
  EXPECT_THAT(ErrorsOf({"teacher.endpoint=h"}), HasSubstr("teacher.endpoint: "));
  EXPECT_THAT(ErrorsOf({"teacher.path=t", "teacher.teachers=[{data_source: a, path: t}]"}),
              HasSubstr("teacher.teachers: expected every teacher in this list"));
  EXPECT_THAT(ErrorsOf({"teacher.teachers=[{path: t}]"}),
              HasSubstr("teacher.teachers[0].data_source: expected the data_source"));
  EXPECT_THAT(
      ErrorsOf({"teacher.teachers=[{data_source: a, path: t}, {data_source: a, path: u}]"}),
      HasSubstr("teacher.teachers[1].data_source: expected each data_source once, found a again"));
  EXPECT_THAT(ErrorsOf({"teacher.teachers=[{data_source: a}]"}), HasSubstr("found none"));
  EXPECT_THAT(ErrorsOf({"teacher.teachers=[{data_source: a, path: t, endpoint: 'h:1'}]"}),
              HasSubstr("found both"));
}

TEST_F(ValidationTest, KeysOfTeachersAreRefusedWithoutEffect) {
  for (const char* assignment : {"teacher.mode=loss", "teacher.coef=2", "teacher.reward_coef=1",
                                 "teacher.top_k=5", "teacher.timeout_s=3"}) {
    const std::string key = std::string(assignment).substr(0, std::string(assignment).find('='));
    EXPECT_THAT(ErrorOf(assignment), HasSubstr(key + ": needs a teacher")) << assignment;
    EXPECT_EQ(ErrorsOf({"teacher.path=t", assignment}), "") << assignment;
  }
  for (const char* key : {"teacher.mode=loss", "teacher.coef=2", "teacher.reward_coef=1"}) {
    EXPECT_THAT(ErrorsOf({"teacher.path=t", "teacher.top_k=5", key}),
                HasSubstr("has no effect with teacher.top_k"));
  }
  for (const char* range : {"teacher.coef=0", "teacher.coef=-1", "teacher.reward_coef=-1",
                            "teacher.top_k=-1", "teacher.top_k=1025", "teacher.timeout_s=0"}) {
    EXPECT_THAT(ErrorsOf({"teacher.path=t", range}), HasSubstr("expected a")) << range;
  }
}

TEST_F(ValidationTest, ATeacherAloneLeavesNoUseForRewards) {
  for (const std::string key :
       {"algorithm.adv_estimator=gae", "algorithm.adv_estimator=remax",
        "algorithm.adv_estimator=optimal_token_baseline", "algorithm.filter_groups.enable=true",
        "algorithm.use_kl_in_reward=true", "reward.overlong_buffer.enable=true"}) {
    const std::string len = "reward.overlong_buffer.len=8";
    EXPECT_THAT(ErrorsOf({"teacher.path=t", len, key}),
                AllOf(HasSubstr(key.substr(0, key.find('=')) + ": "),
                      HasSubstr("with teacher.reward_coef 0")))
        << key;
    EXPECT_EQ(ErrorsOf({"teacher.path=t", "teacher.reward_coef=1", len, key}), "") << key;
  }
}

TEST_F(ValidationTest, LossesThatCannotTellATeachersTokensApartAreRefused) {
  EXPECT_THAT(ErrorsOf({"teacher.path=t", "teacher.mode=loss", "actor.kl_loss_type=k1"}),
              HasSubstr("actor.kl_loss_type: k1 as a loss has a gradient of 0 on average"));
  EXPECT_EQ(ErrorsOf({"teacher.path=t", "teacher.mode=loss", "actor.kl_loss_type=k1+"}), "");
  EXPECT_EQ(ErrorsOf({"teacher.path=t", "actor.kl_loss_type=k1"}), "");
  EXPECT_THAT(ErrorsOf({"teacher.path=t", "actor.policy_loss.loss_mode=gmpo"}),
              HasSubstr("actor.policy_loss.loss_mode: gmpo averages the advantages"));
  EXPECT_EQ(ErrorsOf({"teacher.path=t", "teacher.mode=loss", "actor.policy_loss.loss_mode=gmpo"}),
            "");
}

TEST_F(ValidationTest, MuonTakesWholeMatricesAndPlausibleNumbers) {
  const auto errors = [](std::vector<std::string> assignments) {
    assignments.push_back("actor.optim.name=muon");
    return std::string(LoadRunConfig({}, assignments).status().message());
  };
  const std::string mesh = "trainer.mesh_shape=[2]";
  for (const std::string dim : {"dp_shard", "ep"}) {
    EXPECT_EQ(errors({"trainer.ranks=2", mesh, "trainer.mesh_dim_names=[" + dim + "]",
                      "actor.optim.muon.lr=1e-3"}),
              "");
  }
  EXPECT_THAT(errors({"trainer.ranks=2", mesh, "trainer.mesh_dim_names=[tp]"}),
              HasSubstr("actor.optim.name: muon updates whole matrices"));
  EXPECT_THAT(errors({"actor.optim.muon.momentum=1"}), HasSubstr("actor.optim.muon.momentum"));
  EXPECT_THAT(errors({"actor.optim.muon.ns_steps=0"}), HasSubstr("actor.optim.muon.ns_steps"));
  EXPECT_THAT(errors({"actor.optim.lr=0", "actor.optim.muon.lr=1e-3"}),
              HasSubstr("actor.optim.muon.lr: expected 0"));
}

TEST_F(ValidationTest, EachRewardIsChosenOnce) {
  const auto errors = [](const std::vector<std::string>& assignments) {
    return std::string(LoadRunConfig({}, assignments).status().message());
  };
  EXPECT_EQ(errors({"reward.path=a.py", "reward.function=f"}), "");
  EXPECT_EQ(errors({"reward.rewards=[{name: gsm8k}, {path: a.py, weight: -2}, {endpoint: 'h:1'}, "
                    "{name: service, endpoint: 'h:1'}]"}),
            "");
  EXPECT_THAT(errors({"reward.path=a.py", "reward.name=gsm8k"}),
              HasSubstr("reward.path: reward.name is gsm8k; set one of the two"));
  EXPECT_THAT(errors({"reward.rewards=[{name: gsm8k}]", "reward.path=a.py"}),
              HasSubstr("reward.rewards: expected every reward in this list"));
  EXPECT_THAT(errors({"reward.rewards=[{weight: 1}]"}),
              HasSubstr("reward.rewards[0]: expected one of name"));
  EXPECT_THAT(errors({"reward.rewards=[{name: gsm8k, path: a.py}]"}), HasSubstr("found several"));
  EXPECT_THAT(errors({"reward.rewards=[{name: service}]"}),
              HasSubstr("reward.rewards[0].endpoint: expected HOST:PORT"));
  EXPECT_EQ(errors({"reward.name=judge", "reward.judge.url=http://j/v1", "reward.judge.model=m"}),
            "");
  EXPECT_EQ(errors({"reward.rewards=[{name: judge, judge: {url: 'http://j/v1', model: m}}, "
                    "{name: model, model: {path: rm}}, {name: gsm8k}]"}),
            "");
  EXPECT_THAT(errors({"reward.name=judge"}), AllOf(HasSubstr("reward.judge.url: expected"),
                                                   HasSubstr("reward.judge.model: expected")));
  EXPECT_THAT(errors({"reward.judge.retries=5"}),
              HasSubstr("reward.judge: needs reward.name judge"));
  EXPECT_THAT(errors({"reward.rewards=[{name: gsm8k}]", "reward.judge.model=m"}),
              HasSubstr("reward.judge: needs reward.name judge"));
  EXPECT_THAT(errors({"reward.rewards=[{name: gsm8k, judge: {model: m}}]"}),
              HasSubstr("reward.rewards[0].judge: needs reward.rewards[0].name judge"));
  const std::vector<std::string> judge = {"reward.name=judge", "reward.judge.url=http://j/v1",
                                          "reward.judge.model=m"};
  for (const std::string wrong :
       {"max_tokens=0", "temperature=-1", "retries=-1", "retries=1000", "concurrency=0",
        "concurrency=5000", "api_key_env=", "scale=.inf"}) {
    std::vector<std::string> overrides = judge;
    overrides.push_back("reward.judge." + wrong);
    EXPECT_THAT(errors(overrides), HasSubstr("reward.judge." + wrong.substr(0, wrong.find('='))));
  }
  EXPECT_THAT(errors({judge[0], judge[1], judge[2], "reward.judge.template='{completion}'",
                      "reward.judge.template_file=t"}),
              HasSubstr("reward.judge.template_file: set one of"));
  EXPECT_THAT(errors({"reward.name=model"}), HasSubstr("reward.model.path: expected the folder"));
  EXPECT_THAT(errors({"reward.model.path=rm"}), HasSubstr("reward.model: needs reward.name model"));
  EXPECT_THAT(errors({"reward.name=model", "reward.model.endpoint=nowhere"}),
              HasSubstr("reward.model.endpoint: "));
  EXPECT_THAT(errors({"reward.rewards=[{name: gsm8k, weight: .inf}]"}),
              HasSubstr("reward.rewards[0].weight: expected a number"));
}

TEST_F(ValidationTest, ARewardFileIsLookedFor) {
  const std::string path =
      Write("run.yaml", "reward:\n  rewards:\n  - name: gsm8k\n  - path: " + folder_ + "/a.py\n");
  Places places;
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config, LoadRunConfig({path}, {}, &places));
  EXPECT_THAT(CheckFiles(config, {.model = false}, places),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(path + ":4: reward.rewards[1].path: no file " + folder_)));
  Write("a.py", "");
  EXPECT_OK(CheckFiles(config, {.model = false}, places));
}

TEST_F(ValidationTest, PromptAndCompletionFitTheContext) {
  EXPECT_THAT(ErrorOf("rollout.max_model_len=767"), HasSubstr("= 768, found 767"));
  EXPECT_OK(LoadRunConfig({}, {"rollout.max_model_len=768"}).status());
}

TEST_F(ValidationTest, ServicesComputeOnACpuOrAGpu) {
  for (const char* device : {"auto", "cpu", "cuda", "cuda:0", "cuda:127"}) {
    EXPECT_OK(LoadRunConfig({}, {absl::StrCat("trainer.device=", device)}).status());
    EXPECT_OK(LoadRunConfig({}, {absl::StrCat("rollout.device=", device)}).status());
  }
  EXPECT_THAT(ErrorOf("rollout.device=gpu"),
              HasSubstr("rollout.device: expected auto, cpu, cuda or cuda:N"));
  EXPECT_OK(LoadRunConfig({}, {"rollout.device=cuda", "rollout.tensor_model_parallel_size=2"}));
  EXPECT_OK(LoadRunConfig({}, {"rollout.device=cuda", "numerics=exact"}));
}

TEST_F(ValidationTest, FilesAreLookedForOnlyWhereNeeded) {
  const std::string path =
      Write("run.yaml", "model: {path: " + folder_ + "/m}\ndata:\n  train_files: [" + folder_ +
                            "/none.jsonl]\n");
  Places places;
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config, LoadRunConfig({path}, {}, &places));
  EXPECT_OK(CheckFiles(config, {.model = false}));
  EXPECT_THAT(
      CheckFiles(config, {.model = true, .train_files = true, .test_files = true}, places),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr(path + ":3: data.train_files: no file " + folder_ + "/none.jsonl"),
                     HasSubstr("\ndata.test_files: expected at least one file, found none"),
                     HasSubstr("\n" + path + ":1: model.path: no folder " + folder_ + "/m"))));
  std::filesystem::create_directories(folder_ + "/m");
  EXPECT_THAT(CheckFiles(config, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("found no " + folder_ + "/m/config.json")));
  Write("m/config.json", "{}");
  EXPECT_OK(CheckFiles(config, {}));
}

TEST_F(ValidationTest, WholeExpertsNeedRanksThatShareThem) {
  const auto error = [](std::vector<std::string> assignments) {
    return std::string(LoadRunConfig({}, assignments).status().message());
  };
  const std::string whole = "rollout.enable_expert_parallel=true";
  EXPECT_THAT(error({whole}), HasSubstr("rollout.enable_expert_parallel: needs"));
  EXPECT_EQ(error({whole, "rollout.tensor_model_parallel_size=2"}), "");
  // Replicas elsewhere have the ranks that they have.
  EXPECT_EQ(error({whole, "rollout.endpoints=[\"h:1\"]"}), "");
}

TEST_F(ValidationTest, AnEnvironmentHasWhatItNeedsAndNothingElse) {
  const auto error = [](std::vector<std::string> assignments) {
    return std::string(LoadRunConfig({}, assignments).status().message());
  };
  const std::string agent = "environment.name=agent", command = "environment.command=play";
  const std::string service = "environment.name=service";
  EXPECT_EQ(error({agent, command}), "");
  EXPECT_EQ(error({agent, command, "actor.router_replay=r3"}), "");
  EXPECT_EQ(error({agent, "environment.url=http://h:1/p", "environment.max_concurrent=2"}), "");
  EXPECT_EQ(error({agent, command, "reward.name=environment"}), "");
  EXPECT_EQ(error({service, command}), "");
  EXPECT_EQ(error({service, command, "environment.endpoint=h:1"}), "");
  struct Case {
    std::vector<std::string> assignments;
    const char* says;
  };
  for (const Case& c : {
           Case{{agent}, "environment.command: expected one of environment.command and"},
           Case{{agent, command, "environment.url=http://h:1/"}, "found both"},
           Case{{agent, "environment.url=ftp://h/"}, "environment.url: expected http[s]://HOST"},
           Case{{agent, command, "environment.endpoint=h:1"}, "environment.endpoint: needs"},
           Case{{agent, command, "environment.max_turns=3"},
                "environment.max_turns: has no effect"},
           Case{{agent, command, "environment.on_template_mismatch=split"},
                "environment.on_template_mismatch: has no effect"},
           Case{{agent, command, "environment.timeout_s=86001"}, "environment.timeout_s: expected"},
           Case{{agent, command, "environment.max_concurrent=0"}, "environment.max_concurrent"},
           Case{{agent, command, "rollout.in_flight=abort"}, "rollout.in_flight: abort would"},
           Case{{agent, command, "reward.overlong_buffer.enable=true",
                 "reward.overlong_buffer.len=1"},
                "reward.overlong_buffer.enable: counts"},
           Case{{service}, "environment.endpoint: expected HOST:PORT, or a program"},
           Case{{service, command, "environment.url=http://h:1/"}, "environment.url: needs"},
           Case{{service, command, "environment.max_concurrent=2"},
                "environment.max_concurrent: needs environment.name agent"},
           Case{{command}, "environment.command: needs environment.name service or agent"},
           Case{{"reward.name=environment"}, "environment needs environment.name service or agent"},
       }) {
    EXPECT_THAT(error(c.assignments), HasSubstr(c.says));
  }
}

TEST(RolloutCorrection, AutoCorrectsTheAgeOfSamplesWhereTheyHaveOne) {
  const auto resolved = [](const std::vector<std::string>& sets) {
    const absl::StatusOr<v1::RunConfig> config = LoadRunConfig({}, sets);
    EXPECT_OK(config);
    return config.ok() ? ResolveRolloutIs(*config) : v1::ROLLOUT_IS_UNSPECIFIED;
  };
  const std::string section = "algorithm.rollout_correction.";
  EXPECT_EQ(resolved({}), v1::ROLLOUT_IS_NONE);
  EXPECT_EQ(resolved({"trainer.mode=one_step_off"}), v1::ROLLOUT_IS_TOKEN);
  EXPECT_EQ(resolved({"trainer.mode=async"}), v1::ROLLOUT_IS_TOKEN);
  EXPECT_EQ(resolved({"trainer.mode=async", "trainer.max_staleness=0"}), v1::ROLLOUT_IS_NONE);
  EXPECT_EQ(resolved({"trainer.mode=async", section + "bypass_mode=true"}), v1::ROLLOUT_IS_NONE);
  EXPECT_EQ(resolved({"trainer.mode=async", section + "rollout_is=none"}), v1::ROLLOUT_IS_NONE);
  EXPECT_EQ(resolved({section + "rollout_is=sequence"}), v1::ROLLOUT_IS_SEQUENCE);
}

TEST(RolloutCorrection, ReinforceNeedsTheProbabilitiesOfThePolicyThatSampled) {
  const std::string section = "algorithm.rollout_correction.";
  EXPECT_THAT(ErrorOf(section + "loss_type=reinforce"), HasSubstr("needs bypass_mode=true"));
  EXPECT_OK(LoadRunConfig({}, {section + "loss_type=reinforce", section + "bypass_mode=true",
                               section + "rollout_is=sequence"}));
}

TEST(KlLossType, APlusIsPartOfTheName) {
  for (const auto& [name, type] : {std::pair{"k3+", v1::KL_LOSS_TYPE_K3_PLUS},
                                   {"low_var_kl+", v1::KL_LOSS_TYPE_LOW_VAR_KL_PLUS},
                                   {"k1_plus", v1::KL_LOSS_TYPE_K1_PLUS}}) {
    ASSERT_OK_AND_ASSIGN(const v1::RunConfig config,
                         LoadRunConfig({}, {std::string("actor.kl_loss_type=") + name}));
    EXPECT_EQ(config.actor().kl_loss_type(), type) << name;
  }
}

}  // namespace
}  // namespace tandem::config
