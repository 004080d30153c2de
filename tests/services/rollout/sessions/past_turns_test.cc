// Which earlier turn a prompt repeats.
#include "services/rollout/sessions/past_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/rollout/sessions/message_digests.h"

namespace tandem::rollout {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;

ordered_json Messages(const std::string& text) { return ordered_json::parse(text); }

PastTurn Turn(int32_t id, const std::string& text = "") {
  return {.token_ids = {id}, .text = text, .end_token = ""};
}

TEST(MessageDigests, SpellingsOfOneMessageAreTheSame) {
  const auto answered = MessageDigests(Messages(R"([{"role": "user", "content": "1"},
      {"role": "assistant", "content": "2", "refusal": null, "tool_calls": [{"id": "a",
       "type": "function", "function": {"name": "f", "arguments": {"x": 1, "y": 2}}}]}])"));
  const auto sent_back = MessageDigests(Messages(R"([{"content": "1", "role": "user", "name": null},
      {"content": "2", "role": "assistant", "reasoning_content": "hm", "tool_calls": [{"id": "b",
       "function": {"arguments": {"y": 2, "x": 1}, "name": "f"}}]}])"));
  EXPECT_EQ(answered, sent_back);
  // No content is that of a call alone.
  EXPECT_EQ(MessageDigests(Messages(R"([{"role": "assistant", "content": null}])")),
            MessageDigests(Messages(R"([{"role": "assistant", "content": ""}])")));
}

TEST(MessageDigests, WhatTheModelReadsCounts) {
  const std::string base = R"({"role": "assistant", "content": "2", "tool_calls": [{"function":
      {"name": "f", "arguments": {"x": 1}}}]})";
  const auto digest = MessageDigests(Messages("[" + base + "]"));
  for (const auto& [from, to] : {std::pair("\"2\"", "\"3\""), std::pair("\"f\"", "\"g\""),
                                 std::pair("\"x\": 1", "\"x\": 2")}) {
    std::string other = base;
    other.replace(other.find(from), std::string(from).size(), to);
    EXPECT_NE(MessageDigests(Messages("[" + other + "]")), digest) << other;
  }
  // A tool's answer says to which call it belongs.
  EXPECT_NE(MessageDigests(Messages(R"([{"role": "tool", "content": "1", "tool_call_id": "a"}])")),
            MessageDigests(Messages(R"([{"role": "tool", "content": "1", "tool_call_id": "b"}])")));
}

TEST(PastTurns, AChatContinuesTheTurnWithTheMostMessages) {
  const ordered_json messages = Messages(R"([{"role": "user", "content": "1"},
      {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"},
      {"role": "assistant", "content": "4"}, {"role": "user", "content": "5"}])");
  const std::vector<std::string> digests = MessageDigests(messages);
  PastTurns turns;
  EXPECT_EQ(turns.FindChat(digests), nullptr);
  turns.AddChat({digests.begin(), digests.begin() + 4}, Turn(4));
  turns.AddChat({digests.begin(), digests.begin() + 2}, Turn(2));

  ASSERT_NE(turns.FindChat(digests), nullptr);
  EXPECT_THAT(turns.FindChat(digests)->token_ids, ElementsAre(4));
  EXPECT_EQ(turns.FindChat(digests)->num_messages, 4u);
  // A history that differs in its second answer.
  ordered_json edited = messages;
  edited[3]["content"] = "four";
  EXPECT_THAT(turns.FindChat(MessageDigests(edited))->token_ids, ElementsAre(2));
  edited[0]["content"] = "one";
  EXPECT_EQ(turns.FindChat(MessageDigests(edited)), nullptr);
}

TEST(PastTurns, ATextContinuesTheLongestOneThatItBeginsWith) {
  PastTurns turns;
  turns.AddText(Turn(1, "ab"));
  turns.AddText(Turn(2, "abcd"));
  turns.AddText(Turn(3, "abxyz"));
  turns.AddText(Turn(4, "abcdefgh"));
  EXPECT_THAT(turns.FindText("abcdef")->token_ids, ElementsAre(2));
  EXPECT_THAT(turns.FindText("abcd")->token_ids, ElementsAre(2));
  EXPECT_THAT(turns.FindText("abc")->token_ids, ElementsAre(1));
  EXPECT_EQ(turns.FindText("b"), nullptr);
}

}  // namespace
}  // namespace tandem::rollout
