// The OpenAI-compatible endpoint: by OpenAI's own Python client, and by clients that misbehave.
#include "services/rollout/openai/openai_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/services/rollout/service/service_fixture.h"
#include "tests/support/hostile_clients.h"
#include "tests/support/http_clients.h"
#include "tests/support/http_get.h"
#include "tests/support/program.h"
#include "tests/support/run_processes.h"

namespace tandem::rollout {
namespace {

using ::nlohmann::json;
using ::tandem::testing::HttpAnswer;
using ::tandem::testing::HttpAsk;
using ::tandem::testing::HttpGet;
using ::tandem::testing::HttpOpen;
using ::tandem::testing::HttpPost;
using ::tandem::testing::ProgramResult;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kDigits[] = "models/digit-completion";
constexpr char kPrompt[] = "Once upon a time";
// tools/python's answer where PyPI cannot be reached.
constexpr int kNoPackages = 77;

#define SKIP_WITHOUT_PACKAGES(result) \
  if ((result).exit_code == kNoPackages) GTEST_SKIP() << (result).err

class OpenAiServerTest : public RolloutServiceTest {
 protected:
  void SetUp() override {
    openai_.listen = "127.0.0.1:0";
    setenv("TANDEM_OPENAI_TOKEN", "", 1);
  }

  int port() const { return process_->openai_server()->port(); }
  std::string url() const { return "http://" + process_->openai_server()->address(); }

  static ProgramResult Python(const std::string& script, std::vector<std::string> args) {
    const std::string source = std::getenv("TANDEM_SOURCE");
    args.insert(args.begin(), source + "/tests/services/rollout/openai/" + script);
    return testing::RunProgram(source + "/tools/python", args, 300);
  }

  HttpAnswer Post(const json& body, const std::string& path = "/v1/completions") {
    return HttpAsk(port(), HttpPost(path, body.dump()), 60);
  }

  void Pause() {
    v1::PauseResponse response;
    const auto context = rpc::MakeContext(kTimeout);
    ASSERT_OK(rpc::FromGrpcStatus(stub_->Pause(context.get(), {}, &response)));
  }
  void Resume() {
    v1::ResumeResponse response;
    const auto context = rpc::MakeContext(kTimeout);
    ASSERT_OK(rpc::FromGrpcStatus(stub_->Resume(context.get(), {}, &response)));
  }
  bool AwaitRequests(int64_t count) {
    return testing::Eventually(
        [&] {
          const auto info = Info();
          return info.num_running_requests() + info.num_waiting_requests() == count;
        },
        60);
  }
};

TEST_F(OpenAiServerTest, OpenAisClientGetsWhatTandemGenerateGets) {
  SKIP_WITHOUT_DATA(kStories);
  setenv("TANDEM_OPENAI_TOKEN", "secret", 1);
  Start();
  const ProgramResult client = Python("openai_client.py", {url(), "secret", "tinystories-656k"});
  SKIP_WITHOUT_PACKAGES(client);
  ASSERT_EQ(client.exit_code, 0) << client.err;
  const json out = json::parse(client.out);
  const ProgramResult generated = testing::RunProgram(
      "tandem", {"generate", "--endpoint", process_->address(), "--prompt", kPrompt, "--max-tokens",
                 "24", "--temperature", "0", "--json"});
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  const json expected = json::parse(generated.out);

  EXPECT_EQ(out["models"], json({"tinystories-656k"}));
  EXPECT_EQ(out["version_header"], "0");
  const json& greedy = out["greedy"]["choices"][0];
  EXPECT_EQ(greedy["text"], expected["text"]);
  EXPECT_EQ(greedy["token_ids"], expected["ids"]);
  EXPECT_EQ(greedy["finish_reason"], "length");
  EXPECT_EQ(greedy["version_spans"], json({{{"policy_version", 0}, {"begin", 0}, {"end", 24}}}));
  EXPECT_EQ(out["greedy"]["system_fingerprint"], "policy_version:0");
  EXPECT_EQ(out["greedy"]["usage"]["completion_tokens"], 24);
  EXPECT_EQ(out["stream"]["text"], expected["text"]);
  EXPECT_EQ(out["stream"]["finish"], "length");
  EXPECT_EQ(out["stream"]["usage"]["total_tokens"], out["greedy"]["usage"]["total_tokens"]);
  EXPECT_EQ(out["from_ids"], expected["text"]);
  EXPECT_EQ(out["from_id_lists"], json({expected["text"], expected["text"]}));

  // Two prompts of three samples, in their order, and the same by the same seed.
  ASSERT_EQ(out["samples"].size(), 6);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(out["samples"][i][0], i);
  EXPECT_EQ(out["samples"], out["samples_again"]);
  EXPECT_EQ(out["samples_usage"]["completion_tokens"], 48);

  // Text up to the stop string, also where it came in pieces.
  const std::string text = expected["text"], word = out["stop"]["word"];
  EXPECT_EQ(out["stop"]["text"], text.substr(0, text.find(word)));
  EXPECT_EQ(out["stop"]["finish"], "stop");
  EXPECT_EQ(out["stop_streamed"], out["stop"]["text"]);
}

TEST_F(OpenAiServerTest, OpenAisClientGetsTheEnginesLogprobs) {
  SKIP_WITHOUT_DATA(kStories);
  setenv("TANDEM_OPENAI_TOKEN", "secret", 1);
  Start();
  const ProgramResult client = Python("openai_client.py", {url(), "secret", "tinystories-656k"});
  SKIP_WITHOUT_PACKAGES(client);
  ASSERT_EQ(client.exit_code, 0) << client.err;
  const json out = json::parse(client.out);
  const ProgramResult generated = testing::RunProgram(
      "tandem", {"generate", "--endpoint", process_->address(), "--prompt", kPrompt, "--max-tokens",
                 "24", "--temperature", "0", "--json"});
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  const json expected = json::parse(generated.out)["logprobs"];

  const json& logprobs = out["logprobs"];
  const json& echo = out["echo"]["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), 24);
  ASSERT_EQ(echo["tokens"].size(), 30);
  EXPECT_TRUE(echo["token_logprobs"][0].is_null());
  EXPECT_EQ(out["echo"]["usage"]["completion_tokens"], 0);
  for (int i = 0; i < 24; ++i) {
    const double logprob = logprobs["token_logprobs"][i];
    const json& top = logprobs["top_logprobs"][i];
    EXPECT_EQ(logprob, expected[i]) << i;
    EXPECT_EQ(top.size(), 3) << i;
    EXPECT_EQ(top[logprobs["tokens"][i].get<std::string>()], logprob) << i;
    // Greedy: the likeliest. The same tokens as a prompt have the same log-probs.
    for (const auto& [token, other] : top.items()) EXPECT_LE(other, logprob) << token;
    EXPECT_NEAR(echo["token_logprobs"][6 + i], logprob, 1e-4) << i;
    EXPECT_EQ(echo["top_logprobs"][6 + i].size(), 1) << i;
    EXPECT_EQ(echo["tokens"][6 + i], logprobs["tokens"][i]) << i;
  }
}

TEST_F(OpenAiServerTest, OpenAisClientUnderstandsTheErrors) {
  SKIP_WITHOUT_DATA(kStories);
  setenv("TANDEM_OPENAI_TOKEN", "secret", 1);
  Start();
  const ProgramResult client = Python("openai_client.py", {url(), "secret", "tinystories-656k"});
  SKIP_WITHOUT_PACKAGES(client);
  ASSERT_EQ(client.exit_code, 0) << client.err;
  const json errors = json::parse(client.out)["errors"];

  const auto expect = [&](const char* name, const char* kind, int code, const json& param,
                          const json& reason) {
    const json& found = errors[name];
    EXPECT_EQ(found["kind"], kind) << name;
    EXPECT_EQ(found["code"], code) << name;
    EXPECT_EQ(found["param"], param) << name;
    EXPECT_EQ(found["reason"], reason) << name << found;
  };
  expect("temperature", "BadRequestError", 400, "temperature", nullptr);
  expect("type", "BadRequestError", 400, "max_tokens", nullptr);
  expect("unknown", "BadRequestError", 400, "temprature", nullptr);
  expect("unsupported", "BadRequestError", 400, "suffix", nullptr);
  expect("penalty", "BadRequestError", 400, "presence_penalty", nullptr);
  expect("top_logprobs", "BadRequestError", 400, "top_logprobs", nullptr);
  expect("too_long", "BadRequestError", 400, "prompt", "context_length_exceeded");
  expect("bad_id", "BadRequestError", 400, "prompt", nullptr);
  expect("no_template", "BadRequestError", 400, "messages", nullptr);
  expect("model", "NotFoundError", 404, nullptr, "model_not_found");
  expect("too_large", "APIStatusError", 413, nullptr, "request_too_large");
  expect("token", "AuthenticationError", 401, nullptr, "invalid_api_key");
}

TEST_F(OpenAiServerTest, ChatsGoThroughTheModelsTemplate) {
  SKIP_WITHOUT_DATA(kDigits);
  model_ = kDigits;
  Start();
  const std::string content = "12,14,16,";
  const ProgramResult client = Python("openai_chat.py", {url(), "digit-completion", content});
  SKIP_WITHOUT_PACKAGES(client);
  ASSERT_EQ(client.exit_code, 0) << client.err;
  const json out = json::parse(client.out);
  const testing::TempFolder folder;
  folder.Write("chat.jsonl",
               json{{"messages", {{{"role", "user"}, {"content", content}}}}}.dump() + "\n");
  const ProgramResult generated = testing::RunProgram(
      "tandem", {"generate", "--model", testing::TestData(kDigits), "--input",
                 folder / "chat.jsonl", "--max-tokens", "12", "--temperature", "0"});
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  const json expected = json::parse(generated.out);

  EXPECT_EQ(out["text"], expected["text"]);
  EXPECT_EQ(out["role"], "assistant");
  EXPECT_EQ(out["finish"], expected["finish_reason"]);
  EXPECT_EQ(out["from_parts"], out["text"]);
  EXPECT_EQ(out["streamed"], out["text"]);
  EXPECT_EQ(out["streamed_roles"], json({"assistant"}));
  EXPECT_EQ(out["streamed_usage"], out["usage"]);
  const json& tokens = out["logprobs"]["content"];
  ASSERT_EQ(tokens.size(), expected["ids"].size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_NEAR(tokens[i]["logprob"], expected["logprobs"][i], 1e-4);
    ASSERT_EQ(tokens[i]["top_logprobs"].size(), 2);
    EXPECT_EQ(tokens[i]["top_logprobs"][0]["token"], tokens[i]["token"]);
  }
}

TEST_F(OpenAiServerTest, AClientThatGoesAwayEndsItsRequests) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  Pause();
  const json body = {{"prompt", {kPrompt, kPrompt}}, {"max_tokens", 400}, {"ignore_eos", true}};
  json streamed = body;
  streamed["stream"] = true;
  const int whole = HttpOpen(port(), HttpPost("/v1/completions", body.dump()));
  const int stream = HttpOpen(port(), HttpPost("/v1/completions", streamed.dump()));
  ASSERT_TRUE(AwaitRequests(4));

  close(whole);
  EXPECT_TRUE(AwaitRequests(2));
  close(stream);
  EXPECT_TRUE(AwaitRequests(0));
}

TEST_F(OpenAiServerTest, ASlowReaderHoldsUpNobody) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  const json body = {{"prompt", kPrompt}, {"max_tokens", 450}, {"ignore_eos", true},
                     {"stream", true},    {"n", 32},           {"logprobs", 20}};
  // Some 40 MB of events, of which the client takes none.
  const int slow = HttpOpen(port(), HttpPost("/v1/completions", body.dump()));
  ASSERT_TRUE(AwaitRequests(1));

  const HttpAnswer other = Post({{"prompt", kPrompt}, {"max_tokens", 5}, {"temperature", 0}});

  EXPECT_EQ(other.code, 200) << other.body;
  EXPECT_TRUE(AwaitRequests(0)) << "the engine does not wait for the reader";
  close(slow);
}

TEST_F(OpenAiServerTest, RefusesWhatIsNotARequest) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  const auto reason = [](const HttpAnswer& answer) {
    return json::parse(answer.body)["error"]["code"];
  };
  const HttpAnswer get = HttpGet(port(), "/v1/completions");
  EXPECT_EQ(get.code, 405);
  EXPECT_EQ(reason(get), "method_not_allowed");
  EXPECT_EQ(HttpGet(port(), "/v1/embeddings").code, 404);
  EXPECT_EQ(HttpGet(port(), "/etc/passwd").code, 404);
  EXPECT_EQ(HttpGet(port(), "/v1/models/other").code, 404);
  EXPECT_EQ(HttpGet(port(), "/v1/models/tinystories-656k").code, 200);
  EXPECT_EQ(HttpAsk(port(),
                    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain"
                    "\r\nContent-Length: 2\r\n\r\n{}")
                .code,
            415);
  const std::string path = "/v1/completions";
  EXPECT_EQ(HttpAsk(port(), HttpPost(path, "{\"prompt\": ")).code, 400);
  EXPECT_EQ(HttpAsk(port(), HttpPost(path, "[1]")).code, 400);
  EXPECT_EQ(HttpAsk(port(), HttpPost(path, "{\"prompt\": \"\xff\"}")).code, 400);
  EXPECT_EQ(HttpAsk(port(), HttpPost(path, std::string(100000, '['))).code, 400);
  EXPECT_EQ(Post({{"prompt", ""}, {"add_special_tokens", false}}).code, 400);
  EXPECT_EQ(Post({{"prompt", kPrompt}, {"n", 0}}).code, 400);
  EXPECT_EQ(Post({{"prompt", kPrompt}, {"max_tokens", 0}}).code, 400);
  EXPECT_EQ(Post({{"prompt", kPrompt}, {"stream", true}, {"n", 5000}}).code, 400);
  EXPECT_TRUE(AwaitRequests(0));
}

TEST_F(OpenAiServerTest, ServesTheModelUnderTheNamesItIsGiven) {
  SKIP_WITHOUT_DATA(kStories);
  Start(/*commit_folder=*/true, [](config::v1::RolloutConfig& rollout) {
    rollout.add_served_model_name("policy");
    rollout.add_served_model_name("org/policy");
  });

  const json models = json::parse(HttpGet(port(), "/v1/models").body)["data"];
  ASSERT_EQ(models.size(), 2);
  EXPECT_EQ(models[0]["id"], "policy");
  EXPECT_EQ(models[1]["id"], "org/policy");
  EXPECT_EQ(json::parse(HttpGet(port(), "/v1/models/org/policy").body)["id"], "org/policy");
  EXPECT_EQ(HttpGet(port(), "/v1/models/tinystories-656k").code, 404);

  const json request = {{"prompt", kPrompt}, {"max_tokens", 1}};
  for (const char* name : {"policy", "org/policy", ""}) {
    json named = request;
    if (*name != '\0') named["model"] = name;
    const HttpAnswer answer = Post(named);
    ASSERT_EQ(answer.code, 200) << name << answer.body;
    EXPECT_EQ(json::parse(answer.body)["model"], "policy");
  }
  for (const std::string& name : {std::string("tinystories-656k"), testing::TestData(kStories)}) {
    json named = request;
    named["model"] = name;
    const HttpAnswer answer = Post(named);
    EXPECT_EQ(answer.code, 404) << name;
    EXPECT_EQ(json::parse(answer.body)["error"]["code"], "model_not_found");
  }
}

TEST_F(OpenAiServerTest, NoBodyEndsTheProcess) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  const std::string prompt = R"({"prompt": "1", )";
  const std::vector<std::string> bodies = {
      prompt + R"("temperature": 1e999})",
      prompt + R"("temperature": -1e999})",
      prompt + R"("max_tokens": 1e400})",
      prompt + R"("seed": 99999999999999999999999})",
      prompt + R"("top_p": 1e-999})",
      prompt + R"("n": 9223372036854775807})",
      prompt + R"("echo": true, "max_tokens": 0, "n": 2000000000})",
      prompt + R"("echo": true, "max_tokens": 0, "n": -1})",
      prompt + R"("echo": true, "max_tokens": 0, "n": 0})",
      prompt + R"("user": ")" + std::string("\xed\xa0\x80") + "\"}",
      R"({"prompt": [)" + std::string(200000, '[') + "]}",
      R"({"prompt": )" + std::string(200, '[') + std::string(200, ']') + "}",
      R"({"prompt": [1e999]})",
      R"({"prompt": [1e18, -1e18]})",
      R"({"prompt": [1.5]})",
      R"({"prompt": [[]]})",
      R"({"prompt": [[1],"a",{}]})",
      R"({"prompt": [-1]})"};
  for (const std::string& body : bodies) {
    for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
      const HttpAnswer answer = HttpAsk(port(), HttpPost(path, body));
      EXPECT_EQ(answer.code, 400) << path << " " << body.substr(0, 100) << "\n" << answer.body;
    }
  }
  std::string many = R"({"prompt": [)";
  for (int i = 0; i < 20000; ++i) many += "[1],";
  EXPECT_EQ(HttpAsk(port(), HttpPost("/v1/completions", many + "[1]]}")).code, 400);
  EXPECT_EQ(HttpGet(port(), "/health").code, 200);
}

// Each took gigabytes or minutes; the last is taken, now that a name costs the same among many.
TEST_F(OpenAiServerTest, ABodyWhoseWorkWouldExhaustTheProcessIsRefused) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  const auto peak_mb = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss >> 10;
  };
  std::string names = R"({"prompt": "1", "metadata": {)";
  for (int i = 0; i < 80000; ++i) absl::StrAppend(&names, i == 0 ? "" : ",", "\"k", i, "\":1");
  std::string texts = R"({"prompt": [)";
  for (int i = 0; i < 5500000; ++i) texts += i == 0 ? R"("")" : R"(,"")";
  const std::string echo = R"(, "n": 4096, "max_tokens": 0, "echo": true})";
  const std::vector<std::string> bodies = {
      R"({"prompt": ")" + std::string(1000000, 'a') + "\"" + echo,
      R"({"prompt": ")" + std::string(15000000, 'a') + "\"}", texts + "]}"};
  const int64_t before = peak_mb();
  for (const std::string& body : bodies) {
    const HttpAnswer answer = HttpAsk(port(), HttpPost("/v1/completions", body), 60);
    EXPECT_EQ(answer.code, 400) << body.substr(0, 40) << " " << answer.body.substr(0, 500);
  }
  EXPECT_EQ(HttpAsk(port(), HttpPost("/v1/completions", names + "}}"), 60).code, 200);
  // The bodies themselves, as the client and the server have them.
  EXPECT_LT(peak_mb() - before, 250);
  EXPECT_EQ(Post({{"prompt", kPrompt}, {"max_tokens", 2}}).code, 200);
}

TEST_F(OpenAiServerTest, AWebPageOfAnotherSiteIsRefused) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  const std::string body = json{{"prompt", kPrompt}, {"max_tokens", 2}}.dump();
  const auto ask = [&](const std::string& host, const std::string& headers) {
    return HttpAsk(port(), "POST /v1/completions HTTP/1.1\r\nHost: " + host + "\r\n" + headers +
                               "Content-Type: application/json\r\nContent-Length: " +
                               std::to_string(body.size()) + "\r\n\r\n" + body);
  };
  EXPECT_EQ(ask("localhost", "").code, 200);
  EXPECT_EQ(ask("127.0.0.1:8000", "Origin: http://127.0.0.1:8000\r\n").code, 200);
  EXPECT_EQ(ask("rebound.example", "").code, 421);
  EXPECT_EQ(ask("rebound.example", "Origin: http://rebound.example\r\n").code, 421);
  const HttpAnswer page = ask("localhost", "Origin: http://evil.example\r\n");
  EXPECT_EQ(page.code, 403);
  EXPECT_EQ(json::parse(page.body)["error"]["code"], "origin_not_allowed");
  const HttpAnswer preflight =
      HttpAsk(port(),
              "OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: "
              "http://evil.example\r\nAccess-Control-Request-Method: POST\r\n"
              "Access-Control-Request-Headers: content-type\r\n\r\n");
  EXPECT_EQ(preflight.code, 403);
  EXPECT_THAT(preflight.head, Not(HasSubstr("Access-Control")));
  EXPECT_THAT(HttpGet(port(), "/health").head, Not(HasSubstr("Access-Control")));
}

TEST_F(OpenAiServerTest, ItsTokenStandsForANameThatItDoesNotKnow) {
  SKIP_WITHOUT_DATA(kStories);
  setenv("TANDEM_OPENAI_TOKEN", "secret", 1);
  Start();
  const std::string get = "GET /v1/models HTTP/1.1\r\nHost: behind.a.proxy.example\r\n";
  EXPECT_EQ(HttpAsk(port(), get + "Authorization: Bearer secret\r\n\r\n").code, 200);
  EXPECT_EQ(HttpAsk(port(), get + "Authorization: Bearer wrong\r\n\r\n").code, 421);
}

TEST_F(OpenAiServerTest, ClientsThatWaitHoldUpNobody) {
  SKIP_WITHOUT_DATA(kStories);
  openai_.max_requests = 4;
  Start();
  // More than there were ever threads.
  const testing::IdleClients idle(port(), 1500);
  EXPECT_GT(idle.num_open(), 900);
  std::vector<host::FileDescriptor> trickling;
  for (int i = 0; i < 40; ++i) {
    trickling.push_back(testing::HttpDial(
        port(),
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: 1000\r\n\r\n{\"prompt\""));
  }
  EXPECT_EQ(HttpGet(port(), "/health").code, 200);
  EXPECT_EQ(Post({{"prompt", kPrompt}, {"max_tokens", 2}}).code, 200);
}

TEST_F(OpenAiServerTest, MoreRequestsThanItAnswersAtOnceAreToldSo) {
  SKIP_WITHOUT_DATA(kStories);
  openai_.max_requests = 1;
  Start();
  Pause();
  const json body = {{"prompt", kPrompt}, {"max_tokens", 2}};
  const int first = HttpOpen(port(), HttpPost("/v1/completions", body.dump()));
  ASSERT_TRUE(AwaitRequests(1));

  const HttpAnswer second = Post(body);

  EXPECT_EQ(second.code, 429);
  EXPECT_THAT(second.head, HasSubstr("Retry-After"));
  EXPECT_EQ(HttpGet(port(), "/health").code, 503);  // paused
  Resume();
  EXPECT_TRUE(AwaitRequests(0));
  close(first);
  EXPECT_TRUE(testing::Eventually([&] { return Post(body).code == 200; }, 30));
}

TEST_F(OpenAiServerTest, WithoutWeightsItIsNotThereYet) {
  SKIP_WITHOUT_DATA(kStories);
  Start(/*commit_folder=*/false);
  EXPECT_EQ(HttpGet(port(), "/health").code, 503);
  const HttpAnswer answer = Post({{"prompt", kPrompt}});
  EXPECT_EQ(answer.code, 503);
  EXPECT_EQ(json::parse(answer.body)["error"]["code"], "stale");
  EXPECT_THAT(answer.head, HasSubstr("Retry-After"));
}

TEST_F(OpenAiServerTest, ADrainLetsStreamsFinishAndHandsBackTheRest) {
  SKIP_WITHOUT_DATA(kStories);
  Start();
  Pause();
  const json body = {{"prompt", kPrompt}, {"max_tokens", 20}, {"temperature", 0}};
  HttpAnswer held;
  std::thread client([&] { held = Post(body); });
  EXPECT_TRUE(AwaitRequests(1));

  // Paused, so it cannot finish: what there is of it is the answer.
  process_->Drain(absl::Seconds(10));
  client.join();

  ASSERT_EQ(held.code, 200) << held.body;
  EXPECT_EQ(json::parse(held.body)["choices"][0]["finish_reason"], "abort");
  EXPECT_EQ(Post(body).code, 0) << "nobody listens any more";
}

}  // namespace
}  // namespace tandem::rollout
