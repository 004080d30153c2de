#include "common/config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/common/config/config_file.h"
#include "tests/support/status_matchers.h"

namespace tandem::config {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class LoadTest : public ConfigTest {
 protected:
  // What loading run.yaml with this text says; paths are cut to the file's name.
  std::string ErrorOf(const std::string& text) {
    const std::string path = Write("run.yaml", text);
    const auto config = LoadRunConfig({path}, {});
    EXPECT_EQ(config.status().code(), kInvalid) << config.status();
    std::string message(config.status().message());
    for (size_t at; (at = message.find(folder_ + "/")) != std::string::npos;) {
      message.erase(at, folder_.size() + 1);
    }
    return message;
  }
};

TEST_F(LoadTest, TakesAnIpv6AddressInBracketsForAnAddress) {
  const auto load = [&](const std::string& set) {
    return LoadRunConfig({Write("run.yaml", "seed: 1\n")}, {set});
  };
  const auto endpoint = load("trainer.endpoint=[fd77::1]:5000");
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_EQ(endpoint->trainer().endpoint(), "[fd77::1]:5000");
  const auto list = load("rollout.endpoints=[[fd77::1]:5000, host:5001,[fe80::2%eth0]:5002]");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(list->rollout().endpoints(),
              ElementsAre("[fd77::1]:5000", "host:5001", "[fe80::2%eth0]:5002"));
  const auto single = load("rollout.endpoints=[::1]:5000");
  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_THAT(single->rollout().endpoints(), ElementsAre("[::1]:5000"));
  const auto quoted = load("rollout.endpoints=[\"[::1]:5000\"]");
  ASSERT_TRUE(quoted.ok()) << quoted.status();
  EXPECT_THAT(quoted->rollout().endpoints(), ElementsAre("[::1]:5000"));
  const auto files = load("data.train_files=[a.jsonl,b.jsonl]");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->data().train_files(), ElementsAre("a.jsonl", "b.jsonl"));
}

TEST_F(LoadTest, SaysThatAnAddressInAFileNeedsQuotes) {
  EXPECT_THAT(ErrorOf("trainer: {endpoint: [fd77::1]}\n"),
              AllOf(StartsWith("run.yaml:1"), HasSubstr("needs the quotes")));
  EXPECT_THAT(ErrorOf("trainer:\n  endpoint: [fd77::1]:5000\n"), HasSubstr("run.yaml:2"));
}

TEST_F(LoadTest, ReadsEveryKindOfValue) {
  const std::string path = Write("run.yaml", R"(
model: {path: /models/q, dtype: float32, random_init: true}
data:
  train_files: [a.jsonl, "b c.jsonl"]
  prompt_suffix: "\n<sep>"
  shuffle: false
rollout:
  stop_token_ids: [1, 2]
  in_flight: keep-kv
actor:
  optim: {lr: 3e-4, betas: [0.8, 0.95]}
  loss_agg_mode: seq-mean-token-sum
seed: 18446744073709551615
)");
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config, LoadRunConfig({path}, {}));
  EXPECT_EQ(config.model().path(), "/models/q");
  EXPECT_EQ(config.model().dtype(), v1::ELEMENT_TYPE_FLOAT32);
  EXPECT_TRUE(config.model().random_init());
  EXPECT_THAT(config.data().train_files(), ElementsAre("a.jsonl", "b c.jsonl"));
  EXPECT_EQ(config.data().prompt_suffix(), "\n<sep>");
  EXPECT_FALSE(config.data().shuffle());
  EXPECT_THAT(config.rollout().stop_token_ids(), ElementsAre(1, 2));
  EXPECT_EQ(config.rollout().in_flight(), v1::IN_FLIGHT_POLICY_KEEP_KV);
  EXPECT_EQ(config.actor().optim().lr(), 3e-4);
  EXPECT_THAT(config.actor().optim().betas(), ElementsAre(0.8, 0.95));
  EXPECT_EQ(config.actor().loss_agg_mode(), v1::LOSS_AGG_MODE_SEQ_MEAN_TOKEN_SUM);
  EXPECT_EQ(config.seed(), 18446744073709551615u);
}

TEST_F(LoadTest, LaterFilesAndThenOverridesWin) {
  const std::string first =
      Write("a.yaml", "rollout: {n: 2, max_tokens: 7}\ndata: {train_files: [x, y]}\n");
  const std::string second = Write("b.yaml", "rollout: {n: 3}\ndata: {train_files: [z]}\n");
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config,
                       LoadRunConfig({first, second}, {"rollout.n=4", "actor.optim={lr: 0.5}"}));
  EXPECT_EQ(config.rollout().n(), 4);
  EXPECT_EQ(config.rollout().max_tokens(), 7);
  EXPECT_THAT(config.data().train_files(), ElementsAre("z"));
  EXPECT_EQ(config.actor().optim().lr(), 0.5);
  EXPECT_EQ(config.actor().optim().eps(), 1e-8);
}

TEST_F(LoadTest, OverridesTakeScalarsListsAndEmptySections) {
  ASSERT_OK_AND_ASSIGN(
      const v1::RunConfig config,
      LoadRunConfig({}, {"actor.optim.betas=[0.5, 0.6]", "data.train_files=only.jsonl", "actor={}",
                         "data.prompt_suffix=a=b", "rollout.stop=[\"\\n\"]", "model.path="}));
  EXPECT_THAT(config.actor().optim().betas(), ElementsAre(0.5, 0.6));
  EXPECT_THAT(config.data().train_files(), ElementsAre("only.jsonl"));
  EXPECT_EQ(config.data().prompt_suffix(), "a=b");
  EXPECT_THAT(config.rollout().stop(), ElementsAre("\n"));
  EXPECT_EQ(config.model().path(), "");
}

TEST_F(LoadTest, VariablesOfTheChatTemplateAreTextOrAMapping) {
  const auto from_file = [this](const std::string& value) {
    const auto config =
        LoadRunConfig({Write("run.yaml", "data:\n  chat_template_kwargs: " + value + "\n")}, {});
    return config.ok() ? config->data().chat_template_kwargs()
                       : std::string(config.status().message());
  };
  const std::string text = R"({"enable_thinking": false})";
  EXPECT_EQ(from_file("'" + text + "'"), text);
  EXPECT_EQ(from_file("{enable_thinking: false, b: \"1\", a: [1, 0.5, null, x]}"),
            R"({"enable_thinking":false,"b":"1","a":[1,0.5,null,"x"]})");
  EXPECT_EQ(from_file("\n    style: {of: words}\n    on: yes"),
            R"({"style":{"of":"words"},"on":true})");
  EXPECT_THAT(from_file("[1]"), HasSubstr("data.chat_template_kwargs: expected text"));
  EXPECT_THAT(from_file("&a {b: *a}"),
              HasSubstr("run.yaml:2: data.chat_template_kwargs: expected"));

  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config,
                       LoadRunConfig({}, {R"(data.chat_template_kwargs={"a":1})"}));
  EXPECT_EQ(config.data().chat_template_kwargs(), R"({"a":1})");
}

TEST_F(LoadTest, TakesVerlsNameOfALoss) {
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config,
                       LoadRunConfig({}, {"actor.policy_loss.loss_mode=geo_mean"}));
  EXPECT_EQ(config.actor().policy_loss().loss_mode(), v1::POLICY_LOSS_MODE_GMPO);
}

TEST_F(LoadTest, ALaterRewardTakesThePlaceOfAnEarlierOne) {
  const std::string named = Write("named.yaml", "reward: {name: gsm8k, timeout_s: 5}\n");
  const std::string python = Write("python.yaml", "reward: {path: a.py, function: f}\n");

  ASSERT_OK_AND_ASSIGN(const v1::RunConfig overridden,
                       LoadRunConfig({named}, {"reward.path=b.py"}));
  EXPECT_EQ(overridden.reward().path(), "b.py");
  EXPECT_EQ(overridden.reward().name(), "");
  EXPECT_EQ(overridden.reward().timeout_s(), 5);
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig layered, LoadRunConfig({named, python}, {}));
  EXPECT_EQ(layered.reward().path(), "a.py");
  EXPECT_EQ(layered.reward().name(), "");
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig back,
                       LoadRunConfig({named, python}, {"reward.name=exact_match"}));
  EXPECT_EQ(back.reward().path(), "");
  EXPECT_EQ(back.reward().function(), "");
  EXPECT_EQ(back.reward().name(), "exact_match");
  // An empty name is none.
  EXPECT_OK(LoadRunConfig({named}, {"reward.path=b.py", "reward.name="}).status());
  EXPECT_OK(LoadRunConfig({}, {"reward.name=", "reward.rewards=[{name: gsm8k}]"}).status());
}

TEST_F(LoadTest, AListOfSectionsIsReadAsAWhole) {
  const std::string file = Write("run.yaml",
                                 "reward:\n  rewards:\n  - {name: gsm8k}\n  - path: a.py\n"
                                 "    weight: 0.5\n");
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config, LoadRunConfig({file}, {}));
  ASSERT_EQ(config.reward().rewards_size(), 2);
  EXPECT_FALSE(config.reward().rewards(0).has_weight());
  EXPECT_EQ(config.reward().rewards(1).path(), "a.py");
  EXPECT_EQ(config.reward().rewards(1).weight(), 0.5);
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig other,
                       LoadRunConfig({file}, {"reward.rewards=[{name: regex, pattern: x}]"}));
  ASSERT_EQ(other.reward().rewards_size(), 1);
  EXPECT_EQ(other.reward().rewards(0).pattern(), "x");
}

TEST_F(LoadTest, ErrorsInAListOfSectionsNamePlaceAndElement) {
  const auto error_of = [this](const std::string& element) {
    const std::string file =
        Write("run.yaml", "reward:\n  rewards:\n  - name: gsm8k\n  - " + element + "\n");
    return std::string(LoadRunConfig({file}, {}).status().message());
  };
  EXPECT_THAT(error_of("nmae: gsm8k"),
              HasSubstr("run.yaml:4: reward.rewards[1].nmae: unknown key; did you mean 'name'?"));
  EXPECT_THAT(error_of("7"),
              HasSubstr("run.yaml:4: reward.rewards[1]: expected a section of keys"));
  EXPECT_THAT(std::string(LoadRunConfig({}, {"reward.rewards=gsm8k"}).status().message()),
              HasSubstr("reward.rewards: expected a list of sections"));
}

TEST_F(LoadTest, AnEmptyFileAndEmptySectionsStateNothing) {
  ASSERT_OK_AND_ASSIGN(
      const v1::RunConfig config,
      LoadRunConfig({Write("a.yaml", ""), Write("b.yaml", "actor:\n  optim:\n")}, {}));
  EXPECT_EQ(config.actor().optim().lr(), 1e-6);
}

TEST_F(LoadTest, ARunFolderIsChosenWhereNoneIsStated) {
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config, LoadRunConfig({}, {}));
  EXPECT_THAT(config.run_dir(), ::testing::MatchesRegex("runs/[0-9]+-[0-9]+"));
}

TEST_F(LoadTest, TakesMinusOneForNeverAndAllAsVerlWritesIt) {
  ASSERT_OK_AND_ASSIGN(
      const v1::RunConfig config,
      LoadRunConfig({}, {"trainer.test_freq=-1", "trainer.save_freq=-1", "rollout.top_k=-1"}));
  EXPECT_EQ(config.trainer().test_freq(), 0);
  EXPECT_EQ(config.trainer().save_freq(), 0);
  EXPECT_EQ(config.rollout().top_k(), 0);
}

TEST_F(LoadTest, AnUnknownKeyIsAnsweredWithFileLineAndNearestName) {
  EXPECT_THAT(
      ErrorOf("actor:\n  optim:\n    # a comment\n    lrr: 3e-4\n"),
      AllOf(StartsWith("run.yaml:4: actor.optim.lrr: unknown key; did you mean 'lr'? (known: lr, "
                       "betas, weight_decay"),
            Not(HasSubstr("\n"))));
  EXPECT_THAT(ErrorOf("rolout: {n: 2}"),
              StartsWith("run.yaml:1: rolout: unknown key; did you mean 'rollout'?"));
}

TEST_F(LoadTest, AKeyInTheWrongSectionIsAnsweredWithTheRightOne) {
  EXPECT_THAT(ErrorOf("actor:\n  lr: 1\n"),
              HasSubstr("did you mean 'actor.optim.lr' or 'actor.optim.muon.lr' or "
                        "'critic.optim.lr' or 'critic.optim.muon.lr'?"));
}

TEST_F(LoadTest, AKeyThatIsNearNothingGetsTheListOnly) {
  EXPECT_THAT(
      ErrorOf("reward: {frobnicate: 1}"),
      "run.yaml:1: reward.frobnicate: unknown key (known: name, endpoint, pattern, "
      "timeout_s, overlong_buffer, path, function, python, workers, rewards, model, judge)");
}

TEST_F(LoadTest, OverridesAreTheirOwnPlace) {
  EXPECT_THAT(
      LoadRunConfig({}, {"actor.optim.lrr=3"}),
      StatusIs(kInvalid, StartsWith("--set actor.optim.lrr=3: actor.optim.lrr: unknown key; "
                                    "did you mean 'lr'?")));
  EXPECT_THAT(LoadRunConfig({}, {"actr.optim.lr=3"}),
              StatusIs(kInvalid, HasSubstr("actr: unknown key; did you mean 'actor'?")));
  EXPECT_THAT(LoadRunConfig({}, {"seed.x=3"}),
              StatusIs(kInvalid, HasSubstr("has no keys below it")));
  EXPECT_THAT(LoadRunConfig({}, {"seed"}), StatusIs(kInvalid, HasSubstr("expected KEY=VALUE")));
  EXPECT_THAT(LoadRunConfig({}, {"=3"}), StatusIs(kInvalid, HasSubstr("expected KEY=VALUE")));
  EXPECT_THAT(LoadRunConfig({}, {"seed=[1"}), StatusIs(kInvalid, HasSubstr("not valid YAML")));
  EXPECT_THAT(LoadRunConfig({}, {"actor..lr=1"}), StatusIs(kInvalid, HasSubstr("unknown key")));
}

TEST_F(LoadTest, WrongTypesSayWhatWasExpectedAndFound) {
  EXPECT_EQ(ErrorOf("rollout:\n  n: many\n"),
            "run.yaml:2: rollout.n: expected an integer, found \"many\"");
  EXPECT_EQ(ErrorOf("rollout: {n: 1.5}"),
            "run.yaml:1: rollout.n: expected an integer, found \"1.5\"");
  EXPECT_EQ(ErrorOf("rollout: {n: '3'}"),
            "run.yaml:1: rollout.n: expected an integer, found \"3\" in quotes");
  EXPECT_EQ(ErrorOf("rollout: {n: [3]}"),
            "run.yaml:1: rollout.n: expected an integer, found a list of 1");
  EXPECT_EQ(ErrorOf("rollout: {n: }"), "run.yaml:1: rollout.n: expected an integer, found nothing");
  EXPECT_EQ(ErrorOf("rollout: {n: {a: 1}}"),
            "run.yaml:1: rollout.n: expected an integer, found a section of keys");
  EXPECT_EQ(ErrorOf("actor: {optim: {lr: fast}}"),
            "run.yaml:1: actor.optim.lr: expected a number, found \"fast\"");
  EXPECT_EQ(ErrorOf("actor: {optim: {lr: nan}}"),
            "run.yaml:1: actor.optim.lr: expected a finite number, found \"nan\"");
  EXPECT_EQ(ErrorOf("actor: {optim: {lr: 1e999}}"),
            "run.yaml:1: actor.optim.lr: expected a finite number, found \"1e999\"");
  EXPECT_EQ(ErrorOf("model: {random_init: 2}"),
            "run.yaml:1: model.random_init: expected true or false, found \"2\"");
  EXPECT_EQ(ErrorOf("model: {path: [a]}"),
            "run.yaml:1: model.path: expected text, found a list of 1");
  EXPECT_EQ(ErrorOf("data:\n  train_files:\n    a: 1\n"),
            "run.yaml:3: data.train_files: expected a list, found a section of keys");
  EXPECT_EQ(ErrorOf("actor: {optim: {betas: [0.9, x]}}"),
            "run.yaml:1: actor.optim.betas: element 1: expected a number, found \"x\"");
  EXPECT_THAT(ErrorOf("model: 3"),
              StartsWith("run.yaml:1: model: expected a section of keys (path, dtype, "));
  EXPECT_THAT(ErrorOf("- 1\n"), HasSubstr("expected a section of keys (model, data, "));
}

TEST_F(LoadTest, IntegersOutOfRangeAreRefused) {
  EXPECT_THAT(ErrorOf("rollout: {n: 99999999999999999999}"),
              HasSubstr("expected an integer from -9223372036854775808 to 9223372036854775807"));
  EXPECT_THAT(ErrorOf("seed: -1"),
              HasSubstr("expected an integer from 0 to 18446744073709551615, found \"-1\""));
}

TEST_F(LoadTest, UnknownEnumValuesListTheKnownOnes) {
  EXPECT_EQ(ErrorOf("trainer: {mode: asink}"),
            "run.yaml:1: trainer.mode: expected one of sync, one_step_off, async, found \"asink\"; "
            "did you "
            "mean 'async'?");
  EXPECT_THAT(ErrorOf("trainer: {mode: unspecified}"), HasSubstr("expected one of sync"));
  EXPECT_THAT(ErrorOf("trainer: {mode: 1}"), HasSubstr("expected one of sync"));
}

TEST_F(LoadTest, DuplicateKeysNameBothPlaces) {
  EXPECT_EQ(ErrorOf("rollout:\n  n: 2\n  top_k: 1\n  n: 3\n"),
            "run.yaml:4: rollout.n: stated twice; the first is at run.yaml:2");
}

TEST_F(LoadTest, AllErrorsAreReportedALineEach) {
  const std::string message =
      ErrorOf("rollout:\n  n: many\n  tpo_p: 1\n  temperature: -1\nsed: 1\n");
  EXPECT_THAT(message, HasSubstr("run.yaml:2: rollout.n: expected an integer"));
  EXPECT_THAT(message,
              HasSubstr("\nrun.yaml:3: rollout.tpo_p: unknown key; did you mean 'top_p'?"));
  EXPECT_THAT(message, HasSubstr("\nrun.yaml:5: sed: unknown key; did you mean 'seed'?"));
  EXPECT_THAT(message,
              HasSubstr("\nrun.yaml:4: rollout.temperature: expected a number >= 0, found -1"));
}

TEST_F(LoadTest, BrokenYamlIsAnsweredWithTheLine) {
  EXPECT_THAT(ErrorOf("rollout:\n  n: [1, 2\nseed: 1\n"),
              StartsWith("run.yaml:3: not valid YAML: "));
  EXPECT_THAT(ErrorOf("a: 1\n---\nb: 2\n"), HasSubstr("run.yaml:2: expected one YAML document"));
  // These have documents without end to yaml-cpp.
  for (const char* text : {",", ", a: 1", "---\n,", "seed: 1\n...\n,"}) {
    EXPECT_THAT(ErrorOf(text), HasSubstr("expected one YAML document, found a second one")) << text;
  }
  EXPECT_THAT(ErrorOf("model: {path: *nowhere}"), HasSubstr("not valid YAML"));
}

TEST_F(LoadTest, FilesThatCannotBeReadAreNamed) {
  EXPECT_THAT(
      LoadRunConfig({folder_ + "/none.yaml"}, {}),
      StatusIs(kInvalid, HasSubstr("none.yaml: cannot read the configuration: No such file")));
  EXPECT_THAT(LoadRunConfig({folder_}, {}), StatusIs(kInvalid, HasSubstr("found a folder")));
  EXPECT_THAT(LoadRunConfig({"/dev/zero"}, {}),
              StatusIs(kInvalid, HasSubstr("at most 1048576 bytes")));
}

TEST_F(LoadTest, DeepNestingAndAliasBombsAreBounded) {
  EXPECT_THAT(ErrorOf("seed: " + std::string(100000, '[')), HasSubstr("run.yaml"));
  std::string dashes = "data:\n  train_files:\n    ";
  for (int i = 0; i < 20000; ++i) dashes += "- ";
  EXPECT_THAT(ErrorOf(dashes), HasSubstr("run.yaml"));
  std::string laughs = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'z'; ++c) {
    laughs += std::string(1, c) + ": &" + c + " [";
    for (int i = 0; i < 9; ++i) laughs += std::string(i ? ", *" : "*") + static_cast<char>(c - 1);
    laughs += "]\n";
  }
  EXPECT_THAT(ErrorOf(laughs + "data: {train_files: *y}\n"),
              HasSubstr("data.train_files: element 0: expected text, found a list of 9"));
  EXPECT_THAT(ErrorOf("data: &d\n  train_files: *d\n"), HasSubstr("data.train_files"));
}

TEST_F(LoadTest, WhatAliasesRepeatIsBounded) {
  std::string names = "data: {train_files: [&a " + std::string(10000, 'x');
  for (int i = 0; i < 1000; ++i) names += ", *a";
  EXPECT_THAT(ErrorOf(names + "]}"),
              AllOf(HasSubstr("run.yaml:1: data.train_files"), HasSubstr("use fewer aliases")));
}

TEST_F(LoadTest, BytesThatAreNotUtf8AreRefused) {
  EXPECT_THAT(LoadRunConfig({}, {"model.path=a\xff\xfe"}),
              StatusIs(kInvalid, HasSubstr("model.path: expected UTF-8, found other bytes")));
}

TEST_F(LoadTest, PlacesTellWhereValuesWereStated) {
  const std::string path = Write("run.yaml", "rollout:\n  n: 3\n\n  stop: [a]\n");
  Places places;
  ASSERT_OK(LoadRunConfig({path}, {"seed=4"}, &places).status());
  EXPECT_EQ(places["rollout.n"], path + ":2");
  EXPECT_EQ(places["rollout.stop"], path + ":4");
  EXPECT_EQ(places["seed"], "--set seed=4");
  EXPECT_EQ(places.count("rollout.top_p"), 0u);
}

}  // namespace
}  // namespace tandem::config
