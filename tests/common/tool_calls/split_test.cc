// Wherever a stream is cut, its deltas add up to the complete answer.
#include <gtest/gtest.h>

#include <random>

#include "tests/common/tool_calls/answers.h"

namespace tandem::tool_calls {
namespace {

// The text in pieces that end at `cuts`, with hidden ranges that the pieces share.
Answer InPieces(const TestAnswer& answer, const std::vector<TextRange>& hidden,
                const std::vector<size_t>& cuts) {
  StreamParser parser(*answer.format, TestOptions());
  Answer out;
  size_t begin = 0;
  const auto push = [&](size_t end) {
    std::vector<TextRange> inside;
    for (const TextRange& range : hidden) {
      const TextRange part{std::max(range.begin, begin), std::min(range.end, end)};
      if (part.begin < part.end) inside.push_back({part.begin - begin, part.end - begin});
    }
    AddDeltas(parser.Push(answer.text.substr(begin, end - begin), inside), out);
    begin = end;
  };
  for (const size_t cut : cuts) push(cut);
  push(answer.text.size());
  AddDeltas(parser.Finish(), out);
  out.problems = parser.problems();
  return out;
}

Answer Complete(const TestAnswer& answer, const std::vector<TextRange>& hidden) {
  return ParseAnswer(*answer.format, answer.text, hidden, TestOptions());
}

// The marks of gpt-oss and DeepSeek, as their tokenizers have them.
std::vector<TextRange> SpecialTokens(const std::string& text) {
  std::vector<TextRange> out;
  for (size_t begin = 0; (begin = text.find('<', begin)) != std::string::npos; ++begin) {
    const size_t end = text.find('>', begin);
    const bool special = text.compare(begin, 2, "<|") == 0 || text.compare(begin, 4, "<｜") == 0;
    if (special && end != std::string::npos) out.push_back({begin, end + 1});
  }
  return out;
}

TEST(StreamParser, DeltasOfTwoPartsAddUpToTheCompleteAnswerAtEverySplit) {
  for (const TestAnswer& answer : TestAnswers()) {
    for (const auto& hidden : {std::vector<TextRange>(), SpecialTokens(answer.text)}) {
      const Answer complete = Complete(answer, hidden);
      for (size_t cut = 0; cut <= answer.text.size(); ++cut) {
        ASSERT_EQ(InPieces(answer, hidden, {cut}), complete)
            << answer.format->name << ": " << answer.text << "\nat " << cut;
      }
    }
  }
}

TEST(StreamParser, DeltasOfSingleBytesAddUpToTheCompleteAnswer) {
  for (const TestAnswer& answer : TestAnswers()) {
    std::vector<size_t> cuts(answer.text.size());
    for (size_t i = 0; i < cuts.size(); ++i) cuts[i] = i;
    const auto hidden = SpecialTokens(answer.text);
    ASSERT_EQ(InPieces(answer, hidden, cuts), Complete(answer, hidden))
        << answer.format->name << ": " << answer.text;
  }
}

// Pieces of right answers in any order meet in ways that nobody wrote down.
TEST(StreamParser, DeltasOfShuffledAnswersAddUpToo) {
  std::mt19937 random(7);
  const std::vector<TestAnswer> answers = TestAnswers();
  for (int i = 0; i < 3000; ++i) {
    TestAnswer mixed{Formats()[random() % Formats().size()], ""};
    for (int part = 0; part < 3; ++part) {
      const TestAnswer& source = answers[random() % answers.size()];
      if (source.format != mixed.format || source.text.empty()) continue;
      const size_t begin = random() % source.text.size();
      mixed.text += part == 1 ? source.text.substr(begin) : source.text;
    }
    std::vector<size_t> cuts;
    for (size_t at = random() % 9; at < mixed.text.size(); at += 1 + random() % 9)
      cuts.push_back(at);
    ASSERT_EQ(InPieces(mixed, {}, cuts), Complete(mixed, {}))
        << mixed.format->name << ": " << mixed.text;
  }
}

TEST(StreamParser, SendsTheNameBeforeTheArguments) {
  StreamParser parser(Hermes(), TestOptions());
  std::vector<Delta> deltas;
  for (const char c :
       std::string(R"(Hi <tool_call>{"name":"f","arguments":{"x":1}}</tool_call>)")) {
    for (Delta& delta : parser.Push({&c, 1})) deltas.push_back(std::move(delta));
  }
  ASSERT_EQ(deltas.size(), 4);
  EXPECT_EQ(deltas[2], (Delta{Delta::Kind::kCall, "", 0, "id0", "f"}));
  EXPECT_EQ(deltas[3], (Delta{Delta::Kind::kArguments, R"({"x":1})", 0, "", ""}));
  EXPECT_TRUE(parser.Finish().empty());
}

}  // namespace
}  // namespace tandem::tool_calls
