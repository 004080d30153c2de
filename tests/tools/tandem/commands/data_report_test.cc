#include "tools/tandem/commands/data_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace tandem::commands {
namespace {

using ::tandem::testing::TempFolder;
using ::tandem::testing::WriteTinyModel;
using ::testing::HasSubstr;

TEST(DataReport, NamesTheFormAndShowsWhatIsTrainedOn) {
  const TempFolder folder;
  ASSERT_OK_AND_ASSIGN(auto tokenizer, driver::LoadTokenizerIfAny(WriteTinyModel(folder)));
  const std::string data =
      folder.Write("data.jsonl", "{\"prompt\": \"1+2=\", \"completion\": \"3\"}\n");
  config::v1::DataConfig config;
  config.set_prompt_key("prompt");
  config.set_answer_key("answer");
  config.set_max_prompt_length(8);
  ASSERT_OK_AND_ASSIGN(
      const driver::PromptSource source,
      driver::PromptSource::Load({data}, config, tokenizer.get(), 0,
                                 {.given = driver::RowNeeds::Given::kCompletion, .end_ids = {0}}));

  const std::string report = DescribeData(source, tokenizer.get());

  EXPECT_THAT(report, HasSubstr(data + ": 1 row, TRL prompt and completion\n"));
  EXPECT_THAT(report, HasSubstr("  given    1+2=\n  trained  3<eos>\n"));
}

}  // namespace
}  // namespace tandem::commands
