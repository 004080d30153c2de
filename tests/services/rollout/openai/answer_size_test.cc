#include "services/rollout/openai/answer_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/rollout/openai/api_error.h"
#include "services/rollout/openai/completion_format.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout::openai {
namespace {

CompletionRequest Echo(size_t text_bytes, int32_t n) {
  CompletionRequest request;
  request.prompts.push_back({{1, 2, 3}, std::string(text_bytes, 'a')});
  request.generation.n = n;
  request.generates = false;
  request.echo = true;
  return request;
}

TEST(AnswerSize, IsNearThatOfTheAnswer) {
  CompletionRequest request = Echo(1000, 20);
  std::vector<SampleChunk> chunks(20);
  for (int32_t i = 0; i < 20; ++i) {
    chunks[i].index = i;
    chunks[i].text = std::string(500, 'b');
  }
  const auto size_of_answer = [&] {
    CompletionFormat format(request, /*tokenizer=*/nullptr, "model", {}, 0);
    return static_cast<double>(Dump(format.Whole(chunks)).size());
  };
  EXPECT_NEAR(AnswerBytes(request, chunks) / size_of_answer(), 1.0, 0.2);

  request.return_token_ids = true;
  request.prompts[0].ids.assign(2000, 12345);
  EXPECT_NEAR(AnswerBytes(request, chunks) / size_of_answer(), 1.0, 0.2);

  request.return_token_ids = request.echo = false;
  request.num_logprobs = 2;
  for (SampleChunk& chunk : chunks) {
    chunk.token_ids.assign(100, 12345);
    chunk.logprobs.assign(100, -1.2345f);
    chunk.top_logprobs.assign(100, {{17, -1.25f}, {20000, -2.5678f}});
  }
  EXPECT_NEAR(AnswerBytes(request, chunks) / size_of_answer(), 1.0, 0.5);
}

TEST(AnswerSize, AnAnswerThatRepeatsTooMuchIsRefusedBeforeItIsBuilt) {
  EXPECT_OK(CheckAnswerBytes(Echo(1000000, 60), {}));
  const absl::Status status = CheckAnswerBytes(Echo(1000000, 4096), {});
  EXPECT_EQ(HttpCode(status), 400) << status;
  EXPECT_EQ(ErrorBody(status)["error"]["param"], "n");
}

}  // namespace
}  // namespace tandem::rollout::openai
