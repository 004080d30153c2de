// What a session records of an agent program's calls: tokens as they were computed and sampled, also
// where the agent sends its history back as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/fakes/scripted_model.h"
#include "tests/services/rollout/service/service_fixture.h"
#include "tests/support/http_get.h"

namespace tandem::rollout {
namespace {

using ::nlohmann::json;
using ::tandem::testing::HttpAnswer;
using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<uint32_t>;

constexpr char kId[] = "session-0123456789";
constexpr char kDigits[] = "models/digit-completion";

const json& Tools() {
  static const auto& tools = *new json(json::parse(R"([{"type": "function", "function": {
      "name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}}}}}])"));
  return tools;
}

json User(const std::string& content) { return {{"role", "user"}, {"content", content}}; }

Ids PromptOf(const v1::RecordedCall& call) {
  return {call.prompt_token_ids().begin(), call.prompt_token_ids().end()};
}
Ids SampledBy(const v1::RecordedCall& call) {
  return {call.token_ids().begin(), call.token_ids().end()};
}
Ids AllOf(const v1::RecordedCall& call) {
  Ids out = PromptOf(call);
  out.insert(out.end(), call.token_ids().begin(), call.token_ids().end());
  return out;
}
bool Begins(const Ids& beginning, const Ids& ids) {
  return beginning.size() < ids.size() &&
         std::equal(beginning.begin(), beginning.end(), ids.begin());
}

class AgentSessionsTest : public RolloutServiceTest {
 protected:
  void SetUp() override {
    openai_.listen = "127.0.0.1:0";
    setenv("TANDEM_OPENAI_TOKEN", "", 1);
  }

  // A model that asks for the weather in Rome and tells it.
  void StartScripted() {
    testing::Script script;
    script.lines = {
        {"<|ask|>", "Let me ", "look.\n", "<tool_call>", R"({"name": "get_weather", )",
         R"("arguments": {"city": "Rome"}})", "</tool_call>"},
        {"<|told|>", "It is ", "sunny in ", "Rome", "."},
    };
    script.special = {"<|ask|>", "<|told|>", "<tool_call>", "</tool_call>"};
    script.more_tokens = {"<|user|>", "<|tool|>", "weather?", "sunny", "thanks", "\n"};
    script.chat_template =
        "{{ tools | tojson if tools }}"
        "{% for m in messages %}"
        "{% if m.role == 'assistant' %}{% if m.tool_calls %}<|ask|>{{ m.content }}"
        "{% for c in m.tool_calls %}<tool_call>{{ c.function.arguments.city }}</tool_call>{% "
        "endfor %}"
        "{% else %}<|told|>{{ m.content }}{% endif %}<eos>"
        "{% else %}<|{{ m.role }}|>{{ m.content }}\n{% endif %}"
        "{% endfor %}"
        "{% if add_generation_prompt %}"
        "{% if messages[-1].role == 'tool' %}<|told|>{% else %}<|ask|>{% endif %}{% endif %}";
    ASSERT_OK_AND_ASSIGN(path_, testing::WriteScriptedModel(folder_, script));
    Start();
  }

  absl::Status Open(const v1::OpenSessionRequest& request, v1::OpenSessionResponse& response) {
    const auto context = rpc::MakeContext(kTimeout);
    return rpc::FromGrpcStatus(stub_->OpenSession(context.get(), request, &response));
  }
  void Open(double temperature = 0, int64_t max_tokens = 0) {
    v1::OpenSessionRequest request;
    request.set_session_id(kId);
    request.mutable_sampling()->set_temperature(temperature);
    request.mutable_sampling()->set_seed(7);
    request.set_max_tokens(max_tokens);
    v1::OpenSessionResponse response;
    ASSERT_OK(Open(request, response));
    EXPECT_EQ(response.url(), absl::StrCat("http://127.0.0.1:", port(), "/v1"));
  }
  std::vector<v1::RecordedCall> Close() {
    v1::CloseSessionRequest request;
    request.set_session_id(kId);
    v1::CloseSessionResponse response;
    const auto context = rpc::MakeContext(kTimeout);
    EXPECT_OK(rpc::FromGrpcStatus(stub_->CloseSession(context.get(), request, &response)));
    return {response.calls().begin(), response.calls().end()};
  }

  int port() const { return process_->openai_server()->port(); }

  HttpAnswer Post(const std::string& path, const json& body, const std::string& key = kId) {
    return testing::HttpAsk(
        port(), testing::HttpPost(path, body.dump(), "Authorization: Bearer " + key + "\r\n"), 60);
  }
  // The choices of a complete answer.
  json Choices(const std::string& path, json body) {
    const HttpAnswer answer = Post(path, body);
    EXPECT_EQ(answer.code, 200) << answer.body;
    return answer.code == 200 ? json::parse(answer.body)["choices"] : json();
  }
  json Chat(json body) {
    body["tools"] = Tools();
    return Choices("/v1/chat/completions", std::move(body))[0]["message"];
  }
  static json ToolAnswer(const json& message) {
    return {
        {"role", "tool"}, {"tool_call_id", message["tool_calls"][0]["id"]}, {"content", "sunny"}};
  }

  const testing::TempFolder folder_;
};

TEST_F(AgentSessionsTest, AHistoryThatComesBackKeepsItsTokens) {
  StartScripted();
  Open();
  json messages = json::array({User("weather?")});
  // What a client sends: a model that it knows, and parameters of its own.
  const json first = Chat({{"messages", messages}, {"model", "gpt-4o"}, {"temperature", 1.5}});
  ASSERT_EQ(first["tool_calls"].size(), 1) << first;
  messages.push_back(first);
  messages.push_back(ToolAnswer(first));
  const json second = Chat({{"messages", messages}});
  EXPECT_EQ(second["content"], "It is sunny in Rome.");
  messages.push_back({{"role", "assistant"}, {"content", second["content"]}});
  messages.push_back(User("thanks"));
  Chat({{"messages", messages}});

  const std::vector<v1::RecordedCall> calls = Close();

  ASSERT_EQ(calls.size(), 3u);
  for (size_t i = 1; i < calls.size(); ++i) {
    EXPECT_TRUE(Begins(AllOf(calls[i - 1]), PromptOf(calls[i]))) << i;
  }
  // The sampled call has spaces that the template does not write.
  EXPECT_EQ(calls[0].token_ids_size(), 7);
  EXPECT_EQ(calls[0].text(), "Let me look.");
  EXPECT_EQ(calls[1].text(), "It is sunny in Rome.");
  for (const v1::RecordedCall& call : calls) {
    EXPECT_EQ(call.temperature(), 0);
    EXPECT_EQ(call.finish_reason(), common::v1::FINISH_REASON_STOP);
    EXPECT_EQ(call.logprobs_size(), call.token_ids_size());
    EXPECT_EQ(call.processed_logprobs_size(), call.token_ids_size());
    ASSERT_EQ(call.version_spans_size(), 1);
    EXPECT_EQ(call.version_spans(0).end(), call.token_ids_size());
  }
  EXPECT_GT(calls[2].num_cached_tokens(), 0);
}

TEST_F(AgentSessionsTest, AHistoryThatDiffersBeginsASequence) {
  StartScripted();
  Open();
  json messages = json::array({User("weather?")});
  const json first = Chat({{"messages", messages}});
  json edited = first;
  edited["content"] = "sunny";
  json other = messages;
  other.push_back(edited);
  other.push_back(ToolAnswer(first));
  Chat({{"messages", other}});
  // The history as it was, without the tools in front.
  messages.push_back(first);
  messages.push_back(ToolAnswer(first));
  Choices("/v1/chat/completions", {{"messages", messages}});
  // And as it was.
  Chat({{"messages", messages}});

  const std::vector<v1::RecordedCall> calls = Close();

  ASSERT_EQ(calls.size(), 4u);
  EXPECT_FALSE(Begins(AllOf(calls[0]), PromptOf(calls[1])));
  EXPECT_FALSE(Begins(AllOf(calls[0]), PromptOf(calls[2])));
  EXPECT_TRUE(Begins(AllOf(calls[0]), PromptOf(calls[3])));
}

TEST_F(AgentSessionsTest, StreamsAndChoicesAreRecordedBeforeTheyAreSent) {
  StartScripted();
  Open();
  const json messages = json::array({User("weather?")});
  const HttpAnswer stream =
      Post("/v1/chat/completions", {{"messages", messages}, {"tools", Tools()}, {"stream", true}});
  EXPECT_THAT(stream.body, HasSubstr("data: [DONE]"));
  const json choices =
      Choices("/v1/chat/completions", {{"messages", messages}, {"tools", Tools()}, {"n", 2}});
  ASSERT_EQ(choices.size(), 2u);
  json history = messages;
  history.push_back(choices[1]["message"]);
  history.push_back(ToolAnswer(choices[1]["message"]));
  Chat({{"messages", history}});

  const std::vector<v1::RecordedCall> calls = Close();

  ASSERT_EQ(calls.size(), 4u);  // a choice is a call
  for (int i = 1; i < 3; ++i) EXPECT_EQ(AllOf(calls[i]), AllOf(calls[0]));
  EXPECT_TRUE(Begins(AllOf(calls[0]), PromptOf(calls[3])));
}

TEST_F(AgentSessionsTest, TextAndTokensAreRecordedAsTheyAre) {
  SKIP_WITHOUT_DATA(kDigits);
  model_ = kDigits;
  Start();
  Open(/*temperature=*/1);
  const json first = Choices(
      "/v1/completions",
      {{"prompt", "1+2="}, {"max_tokens", 5}, {"ignore_eos", true}, {"return_token_ids", true}});
  const Ids sampled = first[0]["token_ids"];
  const json tokens =
      Choices("/inference/v1/generate",
              {{"token_ids", {3, 12, 4, 13}}, {"sampling_params", {{"max_tokens", 3}, {"n", 2}}}});
  std::vector<v1::RecordedCall> calls = Close();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(SampledBy(calls[0]), sampled);
  EXPECT_EQ(calls[0].text(), first[0]["text"]);
  EXPECT_EQ(calls[0].finish_reason(), common::v1::FINISH_REASON_LENGTH);
  for (int i : {0, 1}) {
    EXPECT_THAT(PromptOf(calls[i + 1]), ElementsAre(3, 12, 4, 13));
    EXPECT_EQ(SampledBy(calls[i + 1]), tokens[i]["token_ids"].get<Ids>());
  }
  // Their log-probs are those of the recorded tokens.
  for (const v1::RecordedCall& call : calls) {
    v1::ScoreRequest request;
    for (const uint32_t id : AllOf(call)) request.add_token_ids(id);
    v1::ScoreResponse response;
    const auto context = rpc::MakeContext(kTimeout);
    ASSERT_OK(rpc::FromGrpcStatus(stub_->Score(context.get(), request, &response)));
    const int skipped = call.prompt_token_ids_size() - 1;
    for (int i = 0; i < call.token_ids_size(); ++i) {
      EXPECT_NEAR(response.logprobs(skipped + i), call.logprobs(i), 1e-5);
      EXPECT_NEAR(response.logprobs(skipped + i), call.processed_logprobs(i), 1e-5);
    }
  }
}

TEST_F(AgentSessionsTest, ATextThatGoesOnKeepsItsTokens) {
  StartScripted();
  Open();
  const json answer =
      Choices("/v1/completions",
              {{"prompt", "weather?<|told|>"}, {"max_tokens", 3}, {"stop", {"sunny in "}}});
  const std::string text = answer[0]["text"];
  EXPECT_EQ(text, "It is ");
  Choices("/v1/completions",
          {{"prompt", "weather?<|told|>" + text + "sunny in Rome<|told|>"}, {"max_tokens", 2}});
  Choices("/v1/completions", {{"prompt", "weather?<|told|>" + text + "Rome"}, {"max_tokens", 2}});
  const std::vector<v1::RecordedCall> calls = Close();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_TRUE(Begins(AllOf(calls[0]), PromptOf(calls[1])));
  // The agent did not take the stop string.
  EXPECT_FALSE(Begins(AllOf(calls[0]), PromptOf(calls[2])));
}

TEST_F(AgentSessionsTest, AnUnknownKeyRecordsNothing) {
  StartScripted();
  Open();
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "weather?"}, {"max_tokens", 1}}, "sk-other").code,
            200);
  EXPECT_EQ(Close().size(), 0u);
  // A session that is closed is as unknown.
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "weather?"}, {"max_tokens", 1}}).code, 200);
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "weather?"}, {"model", "gpt-4o"}}).code, 404);
}

TEST_F(AgentSessionsTest, ItsIdIsAKey) {
  setenv("TANDEM_OPENAI_TOKEN", "secret", 1);
  StartScripted();
  const json body = {{"prompt", "weather?"}, {"max_tokens", 1}};
  EXPECT_EQ(Post("/v1/completions", body).code, 401);
  Open();
  EXPECT_EQ(Post("/v1/completions", body).code, 200);
  const HttpAnswer by_header = testing::HttpAsk(
      port(),
      testing::HttpPost(
          "/v1/completions", body.dump(),
          absl::StrCat("Authorization: Bearer secret\r\nX-Session-Id: ", kId, "\r\n")),
      60);
  EXPECT_EQ(by_header.code, 200);
  EXPECT_EQ(Close().size(), 2u);
  EXPECT_EQ(Post("/v1/completions", body).code, 401);
}

TEST_F(AgentSessionsTest, ItsTokensAreBounded) {
  StartScripted();
  Open(/*temperature=*/0, /*max_tokens=*/3);
  const json body = {{"prompt", "<|told|>"}, {"max_tokens", 2}};
  EXPECT_EQ(Choices("/v1/completions", body)[0]["text"], "It is sunny in ");
  EXPECT_EQ(Choices("/v1/completions", body)[0]["text"], "It is ");
  const HttpAnswer answer = Post("/v1/completions", body);
  EXPECT_EQ(answer.code, 400);
  EXPECT_EQ(json::parse(answer.body)["error"]["code"], "session_limit");
  EXPECT_EQ(Close().size(), 2u);
}

TEST_F(AgentSessionsTest, WeightsOfAnotherTrainerSampleNothing) {
  StartScripted();
  v1::OpenSessionRequest request;
  request.set_session_id(kId);
  request.set_incarnation(5);
  v1::OpenSessionResponse response;
  ASSERT_OK(Open(request, response));
  const HttpAnswer answer = Post("/v1/completions", {{"prompt", "weather?"}, {"max_tokens", 1}});
  EXPECT_EQ(answer.code, 503);
  EXPECT_EQ(json::parse(answer.body)["error"]["code"], "foreign_weights");
  EXPECT_EQ(Close().size(), 0u);
}

TEST_F(AgentSessionsTest, WithoutAnEndpointNoSessionOpens) {
  SKIP_WITHOUT_DATA(kDigits);
  model_ = kDigits;
  openai_.listen.clear();
  Start();
  v1::OpenSessionRequest request;
  request.set_session_id(kId);
  v1::OpenSessionResponse response;
  EXPECT_THAT(Open(request, response),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--openai-listen")));
}

}  // namespace
}  // namespace tandem::rollout
