// The OpenAI endpoint and rewards with packages that others wrote. Each package has a Python environment
// of its own: the list NAME.txt beside the script that uses it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/fakes/scripted_model.h"
#include "tests/services/rollout/service/service_fixture.h"
#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/tiny_model.h"

namespace tandem::rollout {
namespace {

using ::nlohmann::json;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;

// tools/python's answer where PyPI cannot be reached.
constexpr int kNoPackages = 77;
constexpr int kSeconds = 1100;  // of a script, its packages' installation included

#define SKIP_WITHOUT_PACKAGES(result) \
  if ((result).exit_code == kNoPackages) GTEST_SKIP() << (result).err

std::string Source(const std::string& path) {
  return absl::StrCat(std::getenv("TANDEM_SOURCE"), "/", path);
}

// The last line of what a script prints; others may be the package's own.
json LastLine(const std::string& out) {
  const std::string text = out.substr(0, out.find_last_not_of('\n') + 1);
  return json::parse(text.substr(text.find_last_of('\n') + 1));
}

class PackagesTest : public RolloutServiceTest {
 protected:
  void SetUp() override {
    openai_.listen = "127.0.0.1:0";
    setenv("TANDEM_OPENAI_TOKEN", "", 1);
    // Nothing is looked for on the network.
    setenv("HF_HUB_OFFLINE", "1", 1);
    setenv("HF_DATASETS_CACHE", (folder_ / "datasets").c_str(), 1);
    // A model that asks for the weather in Rome and tells it. Its template writes calls as they were
    // sampled.
    testing::Script script;
    script.lines = {
        {"<|ask|>", "Let me ", "look.\n", "<tool_call>", R"({"name": "get_weather", )",
         R"("arguments": {"city": "Rome"}})", "</tool_call>"},
        {"<|told|>", "It is ", "sunny in ", "Rome", "."},
    };
    script.special = {"<|ask|>", "<|told|>", "<tool_call>", "</tool_call>"};
    script.more_tokens = {"<|user|>", "<|tool|>", "weather?", "sunny"};
    script.chat_template =
        "{{ tools | tojson if tools }}"
        "{% for m in messages %}"
        "{% if m.role == 'assistant' %}{% if m.tool_calls %}<|ask|>{{ m.content }}"
        "{% for c in m.tool_calls %}{% set f = c.function or c %}<tool_call>"
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"{{ f.arguments.city }}\"}}"
        "</tool_call>{% endfor %}"
        "{% else %}<|told|>{{ m.content }}{% endif %}<eos>"
        "{% else %}<|{{ m.role }}|>{{ m.content }}\n{% endif %}"
        "{% endfor %}"
        "{% if add_generation_prompt %}"
        "{% if messages[-1].role == 'tool' %}<|told|>{% else %}<|ask|>{% endif %}{% endif %}";
    ASSERT_OK_AND_ASSIGN(path_, testing::WriteScriptedModel(folder_, script));
  }

  std::string url() const { return "http://" + process_->openai_server()->address(); }

  // tests/packages/SCRIPT with the packages of tests/packages/LIST.txt.
  static ProgramResult Python(const std::string& list, const std::string& script,
                              std::vector<std::string> args) {
    args.insert(args.begin(), {"--requirements", Source("tests/packages/" + list + ".txt"),
                               Source("tests/packages/" + script)});
    return testing::RunProgram(Source("tools/python"), args, kSeconds);
  }

  const testing::TempFolder folder_;
};

TEST_F(PackagesTest, OpenEnvGradesTheEndpointAsTrainable) {
  openai_.processed_logprobs = true;
  Start();
  const ProgramResult run = Python("openenv", "openenv_llm.py", {url(), "model"});
  SKIP_WITHOUT_PACKAGES(run);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json report = LastLine(run.out);
  EXPECT_EQ(report["ok"], true) << report;
  EXPECT_EQ(report["capture_level"], "tokens");
  EXPECT_EQ(report["logprobs_mode"], "processed");
  EXPECT_EQ(report["tool_support"], "ok");
  EXPECT_EQ(report["findings"], json::array());
  EXPECT_EQ(report["param_fixes"], json::array()) << "fields that it had to leave out";
}

TEST_F(PackagesTest, OpenEnvSeesThatLogprobsAreRaw) {
  Start();
  const ProgramResult run = Python("openenv", "openenv_llm.py", {url(), "model"});
  SKIP_WITHOUT_PACKAGES(run);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json report = LastLine(run.out);
  EXPECT_EQ(report["logprobs_mode"], "raw");
  EXPECT_EQ(report["capture_level"], "logprobs");
}

TEST_F(PackagesTest, VerifiersPlaysRolloutsWithTokensAndWithMessages) {
  openai_.processed_logprobs = true;
  Start();
  const ProgramResult run =
      Python("verifiers", "verifiers_rollouts.py", {url(), "model", folder_ / "model"});
  SKIP_WITHOUT_PACKAGES(run);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json out = LastLine(run.out);
  for (const char* client : {"train", "eval"}) {
    ASSERT_EQ(out[client].size(), 4);
    for (const json& rollout : out[client]) {
      EXPECT_EQ(rollout["errors"], json::array());
      EXPECT_EQ(rollout["reward"], 1.0);
      ASSERT_EQ(rollout["turns"].size(), 2) << rollout;
      EXPECT_EQ(rollout["turns"][0]["calls"],
                json::parse(R"([["get_weather", "{\"city\": \"Rome\"}"]])"));
      EXPECT_EQ(rollout["turns"][1]["content"], "It is sunny in Rome.");
    }
  }
  // The successor's logit is 16 of 64 at temperature 0.5.
  const double logprob = -std::log1p(63 * std::exp(-32.0));
  for (const json& rollout : out["train"]) {
    for (const json& turn : rollout["turns"]) {
      ASSERT_EQ(turn["ids"].size(), turn["logprobs"].size());
      EXPECT_EQ(turn["ids"].back(), 0);
      for (const json& found : turn["logprobs"]) EXPECT_NEAR(found, logprob, 1e-6);
    }
    EXPECT_EQ(rollout["turns"][0]["ids"].size(), 7);
    EXPECT_EQ(rollout["turns"][1]["ids"].size(), 5);
  }
}

TEST_F(PackagesTest, OpenAisClientStreamsAChatThatASessionRecords) {
  Start();
  v1::OpenSessionRequest open;
  open.set_session_id("an-episode-of-a-weather-agent");
  open.mutable_sampling()->set_temperature(0);
  v1::OpenSessionResponse opened;
  ASSERT_OK(
      rpc::FromGrpcStatus(stub_->OpenSession(rpc::MakeContext(kTimeout).get(), open, &opened)));

  const ProgramResult run = testing::RunProgram(
      Source("tools/python"),
      {Source("tests/packages/openai_session.py"), opened.url(), "an-episode-of-a-weather-agent"},
      kSeconds);
  SKIP_WITHOUT_PACKAGES(run);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json out = LastLine(run.out);
  v1::CloseSessionRequest close;
  close.set_session_id("an-episode-of-a-weather-agent");
  v1::CloseSessionResponse closed;
  ASSERT_OK(
      rpc::FromGrpcStatus(stub_->CloseSession(rpc::MakeContext(kTimeout).get(), close, &closed)));

  EXPECT_EQ(out["messages"].back()["content"], "It is sunny in Rome.");
  ASSERT_EQ(closed.calls_size(), 2);
  EXPECT_EQ(out["usages"],
            json({closed.calls(0).token_ids_size(), closed.calls(1).token_ids_size()}));
  // The second prompt begins with the tokens of the first call, as they were.
  std::vector<uint32_t> first(closed.calls(0).prompt_token_ids().begin(),
                              closed.calls(0).prompt_token_ids().end());
  first.insert(first.end(), closed.calls(0).token_ids().begin(), closed.calls(0).token_ids().end());
  const auto& second = closed.calls(1).prompt_token_ids();
  ASSERT_LT(first.size(), static_cast<size_t>(second.size()));
  EXPECT_TRUE(std::equal(first.begin(), first.end(), second.begin()));
}

TEST_F(PackagesTest, LmEvalScoresAndGenerates) {
  Start();
  const ProgramResult run =
      Python("lm_eval", "lm_eval_task.py", {url(), "model", folder_ / "model", folder_ / ""});
  SKIP_WITHOUT_PACKAGES(run);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json out = LastLine(run.out);
  EXPECT_EQ(out["acc"], 1.0);
  EXPECT_EQ(out["exact_match"], 1.0);
  // A token that follows its script costs next to nothing, another one 16.
  const std::vector<std::vector<double>> expected = {{0, -16, -16}, {-16, 0}};
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(out["scores"][i].size(), expected[i].size());
    for (size_t k = 0; k < expected[i].size(); ++k) {
      EXPECT_NEAR(out["scores"][i][k], expected[i][k], 1e-2) << i << " " << k;
    }
  }
}

TEST_F(PackagesTest, ReasoningGymJudgesARun) {
  const std::string list = Source("tests/packages/reasoning_gym.txt");
  const std::string example = Source("tools/examples/09_reasoning_gym.py");
  const auto rows = [&](const std::string& seed) {
    return testing::RunProgram(Source("tools/python"),
                               {"--requirements", list, example, "letter_counting", "8", seed},
                               kSeconds);
  };
  const ProgramResult train = rows("1"), test = rows("2");
  SKIP_WITHOUT_PACKAGES(train);
  ASSERT_EQ(train.exit_code, 0) << train.err;
  std::vector<std::string> args = testing::TinyRun(folder_, "train");
  json model = testing::TinyModelConfig();
  model["max_position_embeddings"] = 512;
  folder_.Write("model/config.json", model.dump());
  const std::string python =
      folder_.Write("python", absl::StrCat("#!/bin/sh\nexec ", Source("tools/python"),
                                           " --requirements ", list, " \"$@\"\n"));
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  for (const std::string& set :
       {"data.train_files=[" + folder_.Write("rg_train.jsonl", train.out) + "]",
        "data.test_files=[" + folder_.Write("rg_test.jsonl", test.out) + "]",
        std::string("trainer.total_steps=1"), std::string("trainer.test_freq=0"),
        std::string("data.max_prompt_length=400"), "reward.path=" + example,
        "reward.python=" + python}) {
    args.insert(args.end(), {"--set", set});
  }
  const ProgramResult run = testing::RunProgram("tandem", args);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::vector<json> samples = JsonLines(testing::ReadWhole(folder_ / "run/rollouts/1.jsonl"));
  ASSERT_EQ(samples.size(), 16u);

  // What the package says of answers that are right, nearly right and none at all.
  std::string input;
  std::vector<double> expected;
  for (json row : JsonLines(train.out)) {
    const std::string answer = row["answer"];
    for (const std::string& completion :
         {answer, "I see <answer> " + answer + "</answer>.", std::string("many")}) {
      row["completion"] = completion;
      input += row.dump() + "\n";
    }
  }
  const ProgramResult judged =
      testing::RunProgram("tandem", {"reward", "--path", example, "--python", python, "--input",
                                     folder_.Write("samples.jsonl", input)});
  ASSERT_EQ(judged.exit_code, 0) << judged.err;
  const std::vector<json> verdicts = JsonLines(judged.out);
  ASSERT_GE(verdicts.size(), 24u);
  for (size_t i = 0; i < 24; ++i) {
    const double reward = verdicts[i]["reward"];
    if (i % 3 < 2) {
      EXPECT_EQ(reward, 1.0) << verdicts[i];
    } else {
      EXPECT_LT(reward, 0.1) << verdicts[i];
    }
  }
}

}  // namespace
}  // namespace tandem::rollout
