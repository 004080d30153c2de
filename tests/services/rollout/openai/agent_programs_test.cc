// What agent programs send: tools, penalties, token ids. The model's answers are written down in a
// script.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/fakes/scripted_model.h"
#include "tests/services/rollout/service/service_fixture.h"
#include "tests/support/http_clients.h"
#include "tests/support/http_get.h"
#include "tests/support/program.h"

namespace tandem::rollout {
namespace {

using ::nlohmann::json;
using ::tandem::testing::HttpAnswer;
using ::testing::HasSubstr;

// tools/python's answer where PyPI cannot be reached.
constexpr int kNoPackages = 77;

const json& Tools() {
  static const auto& tools = *new json(json::parse(R"([{"type": "function", "function": {
      "name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}}}}}])"));
  return tools;
}

class AgentProgramsTest : public RolloutServiceTest {
 protected:
  void SetUp() override {
    openai_.listen = "127.0.0.1:0";
    setenv("TANDEM_OPENAI_TOKEN", "", 1);
    testing::Script script;
    script.lines = {
        {"<|ask|>", "Let me ", "look.\n", "<tool_call>", R"({"name": "get_weather", )",
         R"("arguments": {"city": "Rome"}})", "</tool_call>"},
        {"<|told|>", "It is ", "sunny in ", "Rome", "."},
        {"<|break|>", "Hm. ", "<tool_call>{oops", "} </tool_call>"},
        // Where a forced call continues.
        {R"("arguments":)", R"( {"city": "Oslo"}})", "\n</tool_call>"},
    };
    // As most models have them; Qwen's marks are plain tokens.
    script.special = {"<|ask|>", "<|told|>", "<|break|>", "<tool_call>", "</tool_call>"};
    script.chat_template =
        "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}"
        "<tool_call>{{ c.function.arguments.city }}{% endfor %}{% endif %}{% endfor %}"
        "{{ tools | tojson if tools }}"
        "{% if messages[-1].role == 'tool' %}<|told|>"
        "{% elif messages[-1].content == 'break' %}<|break|>{% else %}<|ask|>{% endif %}";
    ASSERT_OK_AND_ASSIGN(path_, testing::WriteScriptedModel(folder_, script));
  }

  int port() const { return process_->openai_server()->port(); }

  HttpAnswer Post(const std::string& path, const json& body) {
    return testing::HttpAsk(port(), testing::HttpPost(path, body.dump()), 60);
  }
  json Chat(json body) {
    body["temperature"] = 0;
    const HttpAnswer answer = Post("/v1/chat/completions", body);
    EXPECT_EQ(answer.code, 200) << answer.body;
    return answer.code == 200 ? json::parse(answer.body) : json();
  }
  static json User(const std::string& content) { return {{"role", "user"}, {"content", content}}; }
  // The objects of a stream of events.
  static std::vector<json> Events(const std::string& body) {
    std::vector<json> out;
    const std::string mark = "data: {";
    for (size_t at = 0; (at = body.find(mark, at)) != std::string::npos; ++at) {
      const size_t begin = at + mark.size() - 1;
      out.push_back(json::parse(body.substr(begin, body.find('\n', begin) - begin)));
    }
    return out;
  }

  const testing::TempFolder folder_;
};

TEST_F(AgentProgramsTest, AToolIsCalledAndItsResultAnswered) {
  Start();
  json messages = json::array({User("weather?")});
  const json first = Chat({{"messages", messages}, {"tools", Tools()}})["choices"][0];

  EXPECT_EQ(first["finish_reason"], "tool_calls");
  EXPECT_EQ(first["message"]["content"], "Let me look.");
  ASSERT_EQ(first["message"]["tool_calls"].size(), 1);
  const json call = first["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"]["name"], "get_weather");
  EXPECT_EQ(call["function"]["arguments"], R"({"city": "Rome"})");
  EXPECT_THAT(call["id"].get<std::string>(), ::testing::StartsWith("call_"));

  messages.push_back(first["message"]);
  messages.push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "sunny"}});
  const json second = Chat({{"messages", messages}, {"tools", Tools()}})["choices"][0];
  EXPECT_EQ(second["message"]["content"], "It is sunny in Rome.");
  EXPECT_EQ(second["finish_reason"], "stop");
  EXPECT_FALSE(second["message"].contains("tool_calls"));
}

TEST_F(AgentProgramsTest, AStreamNamesTheCallAndThenItsArguments) {
  Start();
  const HttpAnswer answer = Post("/v1/chat/completions", {{"messages", {User("weather?")}},
                                                          {"tools", Tools()},
                                                          {"temperature", 0},
                                                          {"stream", true},
                                                          {"logprobs", true}});
  ASSERT_EQ(answer.code, 200) << answer.body;
  std::string content, arguments;
  std::vector<json> calls;
  size_t num_tokens = 0;
  const std::vector<json> events = Events(answer.body);
  for (size_t i = 0; i < events.size(); ++i) {
    const json& choice = events[i]["choices"][0];
    const json& delta = choice["delta"];
    EXPECT_EQ(delta.contains("role"), i == 0);
    EXPECT_EQ(choice["finish_reason"].is_null(), i + 1 < events.size());
    if (delta.contains("content") && !delta["content"].is_null()) content += delta["content"];
    num_tokens += choice["logprobs"]["content"].size();
    for (const json& call : delta.value("tool_calls", json::array())) {
      EXPECT_EQ(call["index"], 0);
      if (call.contains("id")) calls.push_back(call);
      arguments += call["function"]["arguments"].get<std::string>();
    }
  }
  EXPECT_EQ(content, "Let me look.");
  ASSERT_EQ(calls.size(), 1);
  EXPECT_EQ(calls[0]["function"]["name"], "get_weather");
  EXPECT_EQ(arguments, R"({"city": "Rome"})");
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(num_tokens, 7) << "each token once";
}

TEST_F(AgentProgramsTest, AMalformedCallIsContentWithWhatIsWrong) {
  Start();
  const json choice = Chat({{"messages", {User("break")}}, {"tools", Tools()}})["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "Hm. <tool_call>{oops} </tool_call>");
  EXPECT_EQ(choice["finish_reason"], "stop");
  ASSERT_EQ(choice["tool_call_problems"].size(), 1);
  EXPECT_EQ(choice["tool_call_problems"][0]["offset"], 15);
  EXPECT_THAT(choice["tool_call_problems"][0]["message"].get<std::string>(),
              HasSubstr("parse error"));
}

TEST_F(AgentProgramsTest, AForcedCallBeginsInThePrompt) {
  Start();
  const json choice =
      Chat({{"messages", {User("weather?")}},
            {"tools", Tools()},
            {"tool_choice",
             {{"type", "function"}, {"function", {{"name", "get_weather"}}}}}})["choices"][0];
  ASSERT_TRUE(choice["message"].contains("tool_calls")) << choice;
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"city": "Oslo"})");
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
}

TEST_F(AgentProgramsTest, WithoutAParserCallsStayText) {
  openai_.tool_call_parser = "none";
  Start();
  const json choice = Chat({{"messages", {User("weather?")}}, {"tools", Tools()}})["choices"][0];
  EXPECT_EQ(choice["message"]["content"],
            "Let me look.\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}");
  EXPECT_EQ(choice["finish_reason"], "stop");
  const HttpAnswer refused =
      Post("/v1/chat/completions",
           {{"messages", {User("weather?")}}, {"tools", Tools()}, {"tool_choice", "required"}});
  EXPECT_EQ(refused.code, 400);
  EXPECT_EQ(json::parse(refused.body)["error"]["param"], "tool_choice");
}

TEST_F(AgentProgramsTest, OpenAisClientCallsATool) {
  Start();
  const std::string source = std::getenv("TANDEM_SOURCE");
  const testing::ProgramResult client =
      testing::RunProgram(source + "/tools/python",
                          {source + "/tests/services/rollout/openai/openai_tools.py",
                           "http://" + process_->openai_server()->address(), "model"},
                          300);
  if (client.exit_code == kNoPackages) GTEST_SKIP() << client.err;
  ASSERT_EQ(client.exit_code, 0) << client.err;
  const json out = json::parse(client.out);
  const json expected = {{{"name", "get_weather"}, {"arguments", R"({"city": "Rome"})"}}};

  EXPECT_EQ(out["first"]["finish_reason"], "tool_calls");
  EXPECT_EQ(out["first"]["message"]["tool_calls"][0]["function"]["name"], "get_weather");
  EXPECT_EQ(out["streamed"]["content"], "Let me look.");
  EXPECT_EQ(out["streamed"]["calls"], expected);
  EXPECT_EQ(out["streamed"]["finish"], "tool_calls");
  EXPECT_EQ(out["streamed"]["has_ids"], true);
  EXPECT_EQ(out["second"]["message"]["content"], "It is sunny in Rome.");
  EXPECT_EQ(out["forced"]["message"]["tool_calls"][0]["function"]["arguments"],
            R"({"city": "Oslo"})");
}

TEST_F(AgentProgramsTest, TokensGoInAndOut) {
  Start();
  const json chat = Chat({{"messages", {User("weather?")}}, {"return_token_ids", true}});
  const json prompt = chat["prompt_token_ids"], ids = chat["choices"][0]["token_ids"];
  const json params = {{"temperature", 0}, {"max_tokens", 20}, {"logprobs", 1}};
  json body = {{"token_ids", prompt},
               {"sampling_params", params},
               {"request_id", "r1"},
               {"cache_salt", "1"}};

  const HttpAnswer answer = Post("/inference/v1/generate", body);

  ASSERT_EQ(answer.code, 200) << answer.body;
  const json out = json::parse(answer.body);
  EXPECT_EQ(out["request_id"], "r1");
  EXPECT_EQ(out["usage"]["prompt_tokens"], prompt.size());
  const json& choice = out["choices"][0];
  EXPECT_EQ(choice["token_ids"], ids);
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["stop_reason"].is_null());
  EXPECT_EQ(choice["weight_versions"], json({{{"version", 0}, {"start", 0}, {"end", ids.size()}}}));
  ASSERT_EQ(choice["logprobs"]["content"].size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const json& token = choice["logprobs"]["content"][i];
    EXPECT_EQ(token["token_id"], ids[i]);
    EXPECT_EQ(token["rank"], 1);
    EXPECT_EQ(token["top_logprobs"][0]["token_id"], ids[i]);
    EXPECT_EQ(token["top_logprobs"][0]["logprob"], token["logprob"]);
  }

  body["sampling_params"]["stop_token_ids"] = json::array({ids[2]});
  body["stream"] = true;
  json streamed = json::array(), last;
  for (const json& event : Events(Post("/inference/v1/generate", body).body)) {
    last = event["choices"][0];
    for (const json& id : last["token_ids"]) streamed.push_back(id);
  }
  EXPECT_EQ(streamed, json({ids[0], ids[1], ids[2]}));
  EXPECT_EQ(last["stop_reason"], ids[2]);
}

TEST_F(AgentProgramsTest, BadTokenRequestsNameTheField) {
  Start();
  const auto param = [&](const json& body) {
    const HttpAnswer answer = Post("/inference/v1/generate", body);
    EXPECT_EQ(answer.code, 400) << answer.body;
    return json::parse(answer.body)["error"]["param"];
  };
  EXPECT_EQ(param({{"token_ids", json::array()}}), "token_ids");
  EXPECT_EQ(param({{"token_ids", {1, 9999}}}), "token_ids[1]");
  EXPECT_EQ(param({{"token_ids", {1}}, {"sampling_params", {{"temperature", -1}}}}),
            "sampling_params.temperature");
  EXPECT_EQ(param({{"token_ids", {1}}, {"sampling_params", {{"logprobs", 21}}}}),
            "sampling_params.logprobs");
  EXPECT_EQ(param({{"token_ids", std::vector<int>(2000, 1)}}), "token_ids");
  EXPECT_EQ(param({{"prompt", "a"}}), "token_ids");
  EXPECT_EQ(testing::HttpGet(port(), "/inference/v1/generate").code, 405);
}

// The model's own choice after <|told|>, and the one that a bias makes likelier.
class LogprobsModeTest : public AgentProgramsTest {
 protected:
  // The first token of a completion with a bias of 20 for "." at temperature 2.
  json FirstToken() {
    Start();
    const json chat = Chat({{"messages", {User("weather?"), {{"role", "tool"}, {"content", "1"}}}},
                            {"return_token_ids", true}});
    const json ids = chat["choices"][0]["token_ids"];
    period_ = ids[3].get<int>();
    const HttpAnswer answer =
        Post("/v1/completions", {{"prompt", chat["prompt_token_ids"]},
                                 {"max_tokens", 1},
                                 {"temperature", 2},
                                 {"top_k", 1},
                                 {"logprobs", 1},
                                 {"return_token_ids", true},
                                 {"logit_bias", {{std::to_string(period_), 20}}}});
    EXPECT_EQ(answer.code, 200) << answer.body;
    return json::parse(answer.body)["choices"][0];
  }
  // The model gives its successor 16 and all others 0.
  static double Logprob(double logit, double scale, double bias) {
    return logit * scale - std::log(62 + std::exp(16 * scale) + std::exp(bias * scale));
  }
  int period_ = 0;
};

TEST_F(LogprobsModeTest, RawOnesAreOfTheModelAlone) {
  const json choice = FirstToken();
  EXPECT_EQ(choice["token_ids"], json({period_}));
  EXPECT_NEAR(choice["logprobs"]["token_logprobs"][0], Logprob(0, 1.0, 0), 1e-3);
  EXPECT_NEAR(choice["logprobs"]["top_logprobs"][0]["It is "], Logprob(16, 1.0, 0), 1e-3);
}

TEST_F(LogprobsModeTest, ProcessedOnesHaveTheBiasAndTheTemperature) {
  openai_.processed_logprobs = true;
  const json choice = FirstToken();
  EXPECT_EQ(choice["token_ids"], json({period_}));
  EXPECT_NEAR(choice["logprobs"]["token_logprobs"][0], Logprob(20, 0.5, 20), 1e-3);
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][0].size(), 1);
}

TEST_F(AgentProgramsTest, PenaltiesChangeTheAnswer) {
  Start();
  const json messages = {User("weather?"), {{"role", "tool"}, {"content", "1"}}};
  const json plain = Chat({{"messages", messages}, {"return_token_ids", true}});
  EXPECT_EQ(plain["choices"][0]["message"]["content"], "It is sunny in Rome.");
  const int period = plain["choices"][0]["token_ids"][3].get<int>();
  const json biased = Chat(
      {{"messages", messages}, {"max_tokens", 3}, {"logit_bias", {{std::to_string(period), 100}}}});
  EXPECT_EQ(biased["choices"][0]["message"]["content"], "...");
  const HttpAnswer refused =
      Post("/v1/chat/completions", {{"messages", messages}, {"frequency_penalty", 5}});
  EXPECT_EQ(refused.code, 400);
  EXPECT_EQ(json::parse(refused.body)["error"]["param"], "frequency_penalty");
}

}  // namespace
}  // namespace tandem::rollout
