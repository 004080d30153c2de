#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config/checks/checks.h"

namespace tandem::config {
namespace {

void CheckTemplateVariables(const std::string& text, Checker* check) {
  if (text.empty()) return;
  const nlohmann::json variables = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!variables.is_object()) {
    check->Fail(
        "data.chat_template_kwargs",
        absl::StrCat(R"(expected a JSON object ({"enable_thinking": false}), found )", text));
  }
}

}  // namespace

void CheckData(const v1::DataConfig& data, Checker* check) {
  check->Integer("data.train_batch_size", data.train_batch_size(), 1);
  check->Integer("data.max_prompt_length", data.max_prompt_length(), 1);
  check->Integer("data.test_limit", data.test_limit(), 0);
  if (data.prompt_key().empty()) check->Fail("data.prompt_key", "expected a key, found \"\"");
  if (data.chosen_key().empty()) check->Fail("data.chosen_key", "expected a key, found \"\"");
  if (data.rejected_key().empty()) check->Fail("data.rejected_key", "expected a key, found \"\"");
  if (data.answer_key().empty()) check->Fail("data.answer_key", "expected a key, found \"\"");
  for (const double weight : data.train_weights()) {
    check->Number("data.train_weights", weight, weight > 0 && weight <= 1000, "in (0, 1000]");
  }
  if (!data.train_weights().empty() && data.train_weights_size() != data.train_files_size()) {
    check->Fail("data.train_weights",
                absl::StrFormat("expected one weight for each of the %d entries of "
                                "data.train_files, found %d",
                                data.train_files_size(), data.train_weights_size()));
  }
  CheckTemplateVariables(data.chat_template_kwargs(), check);
  if (!data.system_prompt().empty() && !data.chat_template()) {
    check->Fail("data.system_prompt", "needs data.chat_template, which is false");
  }
}

}  // namespace tandem::config
