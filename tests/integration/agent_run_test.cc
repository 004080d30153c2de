// Whole runs whose episodes agent programs play: programs that know an OpenAI endpoint and nothing of
// Tandem. Every sampled token is trained on once or accounted for, and with exact numerics the trainer
// agrees with the rollout over all calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/child_process.h"
#include "common/rpc/process.h"
#include "tests/support/addition_data.h"
#include "tests/support/interrupted_run.h"
#include "tests/support/program.h"
#include "tests/support/run_processes.h"

namespace tandem {
namespace {

using ::nlohmann::json;
using ::tandem::testing::Eventually;
using ::tandem::testing::JsonLines;
using ::tandem::testing::Kill;
using ::tandem::testing::Moment;
using ::tandem::testing::ProcessesOf;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunAndKill;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A message is "CONTENT<eos>,", an assistant's begins with "=".
constexpr char kTemplate[] =
    "{% for m in messages %}{% if m.role == 'assistant' %}={% endif %}{{ m.content }}<eos>,"
    "{% endfor %}{% if add_generation_prompt %}={% endif %}";

// Three calls, whose history comes back as messages. A line of WITNESS tells what it sampled.
// Every seventh sample's first program fails, and of every thirteenth sample each program.
constexpr char kAgent[] = R"(
import json, os, sys, urllib.request

def chat(base_url, key, messages, **more):
    request = urllib.request.Request(
        base_url + "/chat/completions",
        json.dumps({"model": "gpt-4o", "messages": messages, "max_tokens": 10, **more}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + key})
    return json.load(urllib.request.urlopen(request, timeout=200))

def play(base_url, key, row, number, attempt, witness):
    messages, tokens, texts = [{"role": "user", "content": row["prompt"]}], 0, []
    with open(witness + ".begun", "a") as file:
        file.write("{}\n")
    fails = number % 7 == 1 and attempt == 0 or number % 13 == 0
    fails = fails and "CALM" not in os.environ
    for turn in range(3):
        answer = chat(base_url, key, messages)
        tokens += answer["usage"]["completion_tokens"]
        message = answer["choices"][0]["message"]
        texts.append(message["content"])
        messages += [message, {"role": "user", "content": str(turn)}]
        if fails:
            break
    with open(witness, "a") as file:
        file.write(json.dumps({"tokens": tokens, "texts": texts, "fails": fails}) + "\n")
    if fails:
        raise RuntimeError("out of luck")
    return sum(len(text) for text in texts) / 100

if __name__ == "__main__":
    number = (int(os.environ["TANDEM_SEED"]) >> 8) + 7 * int(os.environ["TANDEM_SAMPLE"]) // 2
    reward = play(os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"], json.load(sys.stdin),
                  number, int(os.environ["TANDEM_ATTEMPT"]), os.environ["WITNESS"])
    if "SILENT" not in os.environ:
        print(json.dumps({"reward": reward}))
)";

// The same behind a URL.
constexpr char kAgentServer[] = R"(
import http.server, json, os
import agent

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = (task["seed"] >> 8) + 7 * task["sample"] // 2
        try:
            reward = agent.play(task["base_url"], task["api_key"], task["row"], number,
                                task["attempt"], os.environ["WITNESS"])
            code, body = 200, json.dumps({"reward": reward}).encode()
        except RuntimeError as error:
            code, body = 500, str(error).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print("127.0.0.1:%d" % server.server_address[1], flush=True)
server.serve_forever()
)";

class AgentRun : public ::testing::Test {
 protected:
  AgentRun() {
    folder_.Write("agent.py", kAgent);
    setenv("WITNESS", (folder_ / "witness").c_str(), 1);
    unsetenv("SILENT");
    unsetenv("CALM");
  }

  std::string command() const { return "python3 " + (folder_ / "agent.py"); }

  // Arguments of a run with exact numerics into `folder`/run.
  std::vector<std::string> Args(const std::vector<std::string>& sets,
                                const std::string& subcommand = "train") {
    std::vector<std::string> args = TinyRun(folder_, subcommand);
    folder_.Write("model/chat_template.jinja", kTemplate);
    std::vector<std::string> all = {"numerics=exact",
                                    "trainer.test_freq=0",
                                    "trainer.total_steps=2",
                                    "actor.entropy_coeff=0.05",  // a gradient in every step
                                    "rollout.max_tokens=12",
                                    "environment.name=agent",
                                    "environment.max_tokens=60",
                                    "environment.timeout_s=200",
                                    "environment.max_concurrent=8",
                                    "data.max_prompt_length=40",
                                    "seed=3"};
    all.insert(all.end(), sets.begin(), sets.end());
    for (const std::string& set : all) args.insert(args.end(), {"--set", set});
    return args;
  }

  std::vector<json> Rows() const {
    std::vector<json> rows;
    for (int step = 0; step <= 3; ++step) {
      for (json& row :
           JsonLines(ReadWhole(folder_ / absl::StrCat("run/rollouts/", step, ".jsonl")))) {
        rows.push_back(std::move(row));
      }
    }
    return rows;
  }
  std::vector<json> Metrics() const {
    std::vector<json> steps = JsonLines(ReadWhole(folder_ / "run/metrics.jsonl"));
    std::erase_if(steps, [](const json& line) { return line["training/global_step"] == 0; });
    return steps;
  }
  double Sum(const std::string& metric) const {
    double sum = 0;
    for (const json& step : Metrics()) sum += step.value(metric, 0.0);
    return sum;
  }
  // What the agents say they have sampled.
  std::vector<json> Witness() const { return JsonLines(ReadWhole(folder_ / "witness")); }

  // Each row is an episode of three calls; all tokens that agents sampled are there, or were lost.
  void ExpectAllTokensTrainedOnce() const {
    double sampled = 0, trained = 0;
    for (const json& line : Witness()) sampled += line["tokens"].get<double>();
    const std::vector<json> rows = Rows();
    for (const json& row : rows) {
      std::vector<std::string> kinds;
      for (const json& segment : row["segments"]) {
        kinds.push_back(segment["kind"]);
        if (segment["kind"] != "sampled") continue;
        trained += static_cast<double>(segment["ids"].size());
        EXPECT_EQ(segment["versions"].back()[2], segment["ids"].size());
      }
      EXPECT_EQ(kinds, (std::vector<std::string>{"prompt", "sampled", "observation", "sampled",
                                                 "observation", "sampled"}))
          << row;
    }
    EXPECT_GT(trained, 0);
    const double known = trained + Sum("environment/discarded_tokens");
    if (JsonLines(ReadWhole(folder_ / "witness.begun")).size() == Witness().size()) {
      EXPECT_EQ(sampled, known);
    } else {  // of the calls of an agent that was stopped with its group the run alone knows
      EXPECT_LE(trained, sampled);
      EXPECT_LE(sampled, known);
    }
    // The trainer trained on exactly the sampled ones.
    double tokens = 0;
    for (const json& step : Metrics()) {
      double samples = 0;
      for (const json& row : rows) samples += row["step"] == step["training/global_step"] ? 1 : 0;
      tokens += step["response_length/mean"].get<double>() * samples;
    }
    EXPECT_NEAR(tokens, trained, 1e-6 * trained);
  }

  const TempFolder folder_;
};

TEST_F(AgentRun, TokensThatAnAgentSamplesAreTrainedOn) {
  const ProgramResult run = RunProgram(
      "tandem", Args({"environment.command=" + command(), "reward.name=environment"}), 800);

  ASSERT_EQ(run.exit_code, 0) << run.err;
  ASSERT_EQ(Metrics().size(), 2u);
  for (const json& step : Metrics()) {
    EXPECT_EQ(step["training/rollout_probs_diff_max"], 0.0) << step;
    EXPECT_GT(step["actor/grad_norm"], 0.0);
    EXPECT_EQ(step["environment/turns/mean"], 3.0);
    EXPECT_GT(step["environment/cached_prompt_ratio"], 0.0);
  }
  ExpectAllTokensTrainedOnce();
  // Programs that failed were started again, or their groups were dropped; the log has their words.
  EXPECT_GT(Sum("environment/retried_episodes"), 0);
  EXPECT_GT(Sum("environment/dropped_groups"), 0);
  EXPECT_GT(Sum("environment/discarded_tokens"), 0);
  EXPECT_THAT(run.err, HasSubstr("RuntimeError: out of luck"));
  std::map<std::string, int> rewards;
  for (const json& line : Witness()) {
    size_t length = 0;
    for (const json& text : line["texts"]) length += text.get<std::string>().size();
    if (!line["fails"]) ++rewards[absl::StrCat(static_cast<double>(length) / 100)];
  }
  const std::vector<json> rows = Rows();
  EXPECT_EQ(rows.size() % 4, 0u);
  EXPECT_EQ(rows.size(), 2 * 16 - 4 * Sum("environment/dropped_groups"));
  for (const json& row : rows) {
    EXPECT_GE(--rewards[absl::StrCat(row["rewards"].get<double>())], 0) << row;
  }
}

TEST_F(AgentRun, AnAgentBehindAUrlLearnsInModeAsync) {
  folder_.Write("server.py", kAgentServer);
  auto server = rpc::ChildProcess::Start({.argv = {"/bin/sh", "-c", "exec python3 \"$0\" > \"$1\"",
                                                   folder_ / "server.py", folder_ / "address"},
                                          .log_path = folder_ / "server.log"});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto address = rpc::WaitForReadyFile(folder_ / "address", **server, absl::Seconds(60));
  ASSERT_TRUE(address.ok()) << address.status() << ReadWhole(folder_ / "server.log");

  const ProgramResult run = RunProgram("tandem",
                                       Args({"environment.url=http://" + *address + "/play",
                                             "reward.name=environment", "trainer.mode=async"}),
                                       800);

  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(Metrics().size(), 2u);
  EXPECT_EQ(Rows().size(), 2u * 16);
}

TEST_F(AgentRun, AnotherRewardJudgesTheLastCompletion) {
  setenv("SILENT", "1", 1);
  const ProgramResult run = RunProgram(
      "tandem", Args({"environment.command=" + command(), "trainer.total_steps=1"}), 800);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::multiset<std::string> last;
  for (const json& line : Witness()) last.insert(line["texts"].back().get<std::string>());
  for (const json& row : Rows()) {
    EXPECT_GT(last.count(row["completion"].get<std::string>()), 0u) << row;
  }
  ExpectAllTokensTrainedOnce();

  unsetenv("SILENT");
  const ProgramResult told = RunProgram(
      "tandem", Args({"environment.command=" + command(), "run_dir=" + (folder_ / "told")}), 800);
  EXPECT_EQ(told.exit_code, 1);
  EXPECT_THAT(told.err, AllOf(HasSubstr("the agent gave the reward 0."),
                              HasSubstr("set reward.name=environment")));
}

TEST_F(AgentRun, AnEvaluationPlaysAgentsToo) {
  setenv("CALM", "1", 1);
  const ProgramResult run = RunProgram("tandem",
                                       Args({"environment.command=" + command(),
                                             "reward.name=environment", "trainer.total_steps=1"}),
                                       800);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::filesystem::remove(folder_ / "witness");

  const ProgramResult eval =
      RunProgram("tandem",
                 Args({"environment.command=" + command(), "reward.name=environment",
                       "model.path=" + (folder_ / "run/model"), "model.random_init=false",
                       "rollout.val_kwargs.temperature=1"},
                      "eval"),
                 800);

  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  double sum = 0;
  for (const json& line : Witness()) {
    for (const json& text : line["texts"])
      sum += static_cast<double>(text.get<std::string>().size());
  }
  EXPECT_EQ(Witness().size(), 6u);
  EXPECT_NEAR(json::parse(eval.out)["reward"].get<double>(), sum / 100 / 6, 1e-6);
}

// Each of `steps` steps has whole episodes of its own prompts, as often as the metrics say.
void ExpectStepsOfWholeEpisodes(const std::vector<json>& metrics, const std::vector<json>& rows,
                                int steps) {
  ASSERT_EQ(metrics.size(), static_cast<size_t>(steps));
  std::set<int64_t> data_rows;
  for (int step = 1; step <= steps; ++step) {
    EXPECT_EQ(metrics[step - 1]["training/global_step"], step);
    double sampled = 0, samples = 0;
    for (const json& row : rows) {
      if (row["step"] != step) continue;
      ++samples;
      data_rows.insert(row["row"].get<int64_t>());
      int calls = 0;
      for (const json& segment : row["segments"]) {
        if (segment["kind"] != "sampled") continue;
        ++calls;
        sampled += static_cast<double>(segment["ids"].size());
      }
      EXPECT_EQ(calls, 3) << row;
    }
    EXPECT_EQ(samples, 16 - 4 * metrics[step - 1].value("environment/dropped_groups", 0.0));
    EXPECT_NEAR(metrics[step - 1]["response_length/mean"].get<double>() * samples, sampled, 1e-6);
    EXPECT_EQ(metrics[step - 1]["training/rollout_probs_diff_max"], 0.0);
  }
  EXPECT_EQ(static_cast<double>(data_rows.size()) * 4, static_cast<double>(rows.size()));
}

TEST_F(AgentRun, ADriverThatIsKilledAmongAgentsResumes) {
  setenv("CALM", "1", 1);
  std::vector<std::string> args =
      Args({"environment.command=" + command(), "reward.name=environment", "trainer.total_steps=3",
            "trainer.save_freq=1", "trainer.keep_last=2"});
  const Kill kill{"driver", Moment::kGeneration, 1, 400};
  EXPECT_NE(RunAndKill(args, folder_ / "run", kill).exit_code, 0);
  EXPECT_TRUE(Eventually([&] { return ProcessesOf("python3", folder_ / "agent.py").empty(); }, 60));

  args.push_back("--resume");
  const ProgramResult resumed = RunProgram("tandem", args, 800);

  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resuming after step 1"));
  ExpectStepsOfWholeEpisodes(Metrics(), Rows(), 3);
}

TEST_F(AgentRun, SessionsOfARolloutThatDiesArePlayedAgain) {
  setenv("CALM", "1", 1);
  const std::vector<std::string> args =
      Args({"environment.command=" + command(), "reward.name=environment", "trainer.total_steps=3",
            "trainer.update_policy=available"});
  const Kill kill{"rollout-0", Moment::kGeneration, 1, 400};
  const ProgramResult run = RunAndKill(args, folder_ / "run", kill);

  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("rollout-0 killed by SIGKILL"));
  ExpectStepsOfWholeEpisodes(Metrics(), Rows(), 3);
}

TEST_F(AgentRun, WhatCannotRunIsFoundBeforeAnythingStarts) {
  std::vector<std::string> args = Args({"environment.command=no-such-agent"});
  args.push_back("--dry-run");
  const ProgramResult missing = RunProgram("tandem", args);
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("environment.command: no-such-agent is neither a program"));
  const ProgramResult nothing = RunProgram("tandem", Args({}));
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("environment.command: expected one of"));
  args[0] = "doctor";
  std::erase_if(args,
                [](const std::string& arg) { return arg == "--local" || arg == "--dry-run"; });
  const ProgramResult doctor = RunProgram("tandem", args);
  EXPECT_EQ(doctor.exit_code, 1);
  EXPECT_THAT(doctor.out, HasSubstr("environment.command: no-such-agent is neither a program"));
}

TEST_F(AgentRun, AProgramOfOpenAisClientPlaysARun) {
  const std::string tools = std::string(std::getenv("TANDEM_SOURCE")) + "/tools/";
  const std::string program = tools + "python " + tools + "examples/08_agent.py";
  const ProgramResult packages = RunProgram(tools + "python", {"-c", "import openai"}, 300);
  if (packages.exit_code == 77) GTEST_SKIP() << packages.err;

  const ProgramResult run =
      RunProgram("tandem",
                 Args({"environment.command=" + program, "reward.name=environment", "rollout.n=2",
                       "trainer.total_steps=1", "environment.max_concurrent=2"}),
                 800);

  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::vector<json> rows = Rows();
  EXPECT_EQ(rows.size(), 4u * 2);
  for (const json& row : rows) {
    EXPECT_TRUE(row["rewards"] == 0 || row["rewards"] == 1) << row;
    EXPECT_EQ(row["segments"][1]["kind"], "sampled");
  }
  EXPECT_EQ(Metrics()[0]["training/rollout_probs_diff_max"], 0.0);
}

TEST_F(AgentRun, AServiceIsStartedWithTheRun) {
  const std::string tools = std::string(std::getenv("TANDEM_SOURCE")) + "/tools/";
  std::vector<std::string> args =
      Args({"environment.name=service", "environment.max_concurrent=64", "environment.max_turns=3",
            "data.chat_template=true", "reward.name=environment", "trainer.total_steps=1",
            "environment.command=" + tools + "python " + tools +
                "examples/07_environment.py $TANDEM_ENVIRONMENT_ENDPOINT"});
  const ProgramResult run = RunProgram("tandem", args, 800);
  const std::string log = ReadWhole(folder_ / "run/logs/environment.log");
  if (log.find("cannot fetch the packages") != std::string::npos) GTEST_SKIP() << log;
  ASSERT_EQ(run.exit_code, 0) << run.err << log;
  EXPECT_EQ(Rows().size(), 16u);
}

}  // namespace
}  // namespace tandem
