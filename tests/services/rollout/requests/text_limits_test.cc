#include "services/rollout/requests/text_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/rpc/status_conversion.h"
#include "tandem/common/v1/error.pb.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

TEST(TextLimits, LeaveRoomForAContextOfTheLongestTokens) {
  const testing::TempFolder folder;
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       tokenizer::Tokenizer::Load(testing::WriteTinyModel(folder)));
  size_t longest = 0;
  for (int32_t id = 0; id < 1000; ++id) {
    if (const std::string* token = tokenizer->IdToToken(id))
      longest = std::max(longest, token->size());
  }
  const TextLimits limits = MakeTextLimits(
      {.vocab_size = 1000, .max_model_len = 1 << 20, .has_tokenizer = true}, tokenizer.get());
  EXPECT_EQ(limits.max_text_bytes, static_cast<int64_t>(longest) << 20);

  EXPECT_OK(limits.CheckText(std::string(longest << 20, 'a'), "text"));
  const absl::Status status = limits.CheckText(std::string((longest << 20) + 1, 'a'), "text");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("text: expected")));
  EXPECT_EQ(rpc::GetDetail<common::v1::ErrorInfo>(status)->reason(), "CONTEXT_TOO_LONG");
}

TEST(TextLimits, AreNotBelowWhatCostsNothing) {
  const testing::TempFolder folder;
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       tokenizer::Tokenizer::Load(testing::WriteTinyModel(folder)));
  const TextLimits limits = MakeTextLimits(
      {.vocab_size = 10, .max_model_len = 8, .has_tokenizer = true}, tokenizer.get());
  EXPECT_OK(limits.CheckText(std::string(100000, ' '), "text"));
  EXPECT_OK(MakeTextLimits({.vocab_size = 10, .max_model_len = 8}, nullptr).CheckText("a", "text"));
}

}  // namespace
}  // namespace tandem::rollout
