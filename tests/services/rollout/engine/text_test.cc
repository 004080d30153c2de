// Text beside ids: stop strings and streamed characters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_model.h"

namespace tandem::rollout {
namespace {

constexpr char kModel[] = "models/tinystories-656k";

class TextTest : public EngineTest {
 protected:
  void StartStories() {
    ASSERT_OK_AND_ASSIGN(tokenizer_, tokenizer::Tokenizer::Load(testing::TestData(kModel)));
    StartFolder({}, testing::TestData(kModel));
    ASSERT_OK_AND_ASSIGN(prompt_, tokenizer_->Encode("Once upon a time", true));
  }
  GenerationRequest Request() {
    GenerationRequest request = Greedy(prompt_, 60);
    request.return_text = true;
    return request;
  }
  std::vector<int32_t> prompt_;
};

TEST_F(TextTest, StreamedTextIsThatOfTheWhole) {
  SKIP_WITHOUT_DATA(kModel);
  StartStories();
  const SampleChunk whole = Generate(Request());
  ASSERT_OK_AND_ASSIGN(const std::string decoded, tokenizer_->Decode(whole.token_ids, true));
  EXPECT_EQ(whole.text, decoded);
  GenerationRequest request = Request();
  request.stream = true;
  request.stop = {"never in the text"};
  EXPECT_EQ(Generate(request).text, decoded);
}

TEST_F(TextTest, AStopStringEndsTheSampleAndIsLeftOut) {
  SKIP_WITHOUT_DATA(kModel);
  StartStories();
  const SampleChunk whole = Generate(Request());
  // Across tokens, and found wherever it begins within one.
  const std::string stop = whole.text.substr(40, 9);
  const size_t at = whole.text.find(stop);
  for (const bool stream : {false, true}) {
    GenerationRequest request = Request();
    request.stream = stream;
    request.stop = {"never in the text", stop};
    const SampleChunk stopped = Generate(request);
    EXPECT_EQ(stopped.text, whole.text.substr(0, at));
    EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
    EXPECT_LT(stopped.token_ids.size(), whole.token_ids.size());
    EXPECT_EQ(stopped.token_ids,
              std::vector<int32_t>(whole.token_ids.begin(),
                                   whole.token_ids.begin() + stopped.token_ids.size()));
  }
}

TEST_F(TextTest, AStopStringBeforeMinTokensIsText) {
  SKIP_WITHOUT_DATA(kModel);
  StartStories();
  const SampleChunk whole = Generate(Request());
  GenerationRequest request = Request();
  request.stop = {whole.text.substr(10, 5)};
  request.min_tokens = 60;
  EXPECT_EQ(Generate(request).text, whole.text);
}

// Special tokens in the text, for those who read marks of calls in it.
class TextOutputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(tokenizer_, tokenizer::Tokenizer::Load(testing::WriteTinyModel(folder_)));
  }
  // "<eos>" is 0, a digit d is d + 2.
  std::string Push(TextOutput& output, const std::vector<int32_t>& ids) {
    std::string text;
    for (const int32_t id : ids) {
      EXPECT_OK(output.Push(id, /*may_stop=*/true).status());
      std::vector<TextSpan> special;
      const std::string piece = output.Take(special);
      for (const TextSpan& span : special) {
        spans_.push_back(piece.substr(span.begin, span.end - span.begin));
      }
      text += piece;
    }
    return text;
  }
  const testing::TempFolder folder_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::vector<std::string> spans_;
};

TEST_F(TextOutputTest, ShowsSpecialTokensAndSaysWhereTheyAre) {
  TextOutput output(*tokenizer_, {"<eos>7"}, /*show_special_tokens=*/true);
  EXPECT_EQ(Push(output, {3, 0}), "1") << "held back: a stop string may begin";
  EXPECT_EQ(Push(output, {4, 0, 0}), "<eos>2<eos>");
  EXPECT_EQ(output.stop_string(), "");
  EXPECT_EQ(Push(output, {9}), "");
  EXPECT_EQ(output.stop_string(), "<eos>7");
  EXPECT_THAT(spans_, ::testing::ElementsAre("<eos>", "<eos>"));
}

TEST_F(TextOutputTest, LeavesThemOutOtherwise) {
  TextOutput output(*tokenizer_, {});
  EXPECT_EQ(Push(output, {3, 0, 4}), "12");
  EXPECT_THAT(spans_, ::testing::IsEmpty());
}

}  // namespace
}  // namespace tandem::rollout
