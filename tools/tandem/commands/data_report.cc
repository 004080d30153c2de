#include "tools/tandem/commands/data_report.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/text/count.h"
#include "common/text/printable.h"

namespace tandem::commands {
namespace {

constexpr size_t kMaxShownBytes = 1500;
constexpr size_t kMaxShownFiles = 8;

// One line of a report. A long text loses its middle: both ends matter in a prompt.
std::string Line(absl::string_view label, const std::string& text) {
  const size_t half = kMaxShownBytes / 2;
  const std::string shown =
      text.size() <= kMaxShownBytes
          ? text
          : absl::StrCat(text.substr(0, half), " ... ", text.substr(text.size() - half));
  return absl::StrFormat("  %-8s %s\n", label, text::PrintableLine(shown));
}

std::string TextOf(const std::vector<uint32_t>& token_ids, const tokenizer::Tokenizer* tokenizer) {
  if (tokenizer != nullptr) {
    const std::vector<int32_t> ids(token_ids.begin(), token_ids.end());
    if (auto text = tokenizer->Decode(ids, /*skip_special_tokens=*/false); text.ok()) return *text;
  }
  return absl::StrCat("ids ", absl::StrJoin(token_ids, ","));
}

}  // namespace

std::string DescribeData(const driver::PromptSource& source,
                         const tokenizer::Tokenizer* tokenizer) {
  std::string out;
  for (size_t i = 0; i < source.files().size() && i < kMaxShownFiles; ++i) {
    const driver::DataFile& file = source.files()[i];
    absl::StrAppend(&out, "file     ", text::PrintableLine(file.path), ": ",
                    text::Count(file.num_rows, "row"), ", ", text::PrintableLine(file.form), "\n");
  }
  if (source.files().size() > kMaxShownFiles) {
    absl::StrAppend(&out, "         and ",
                    text::Count(source.files().size() - kMaxShownFiles, "more file"), "\n");
  }
  const driver::Prompt& first = source.prompts().front();
  absl::StrAppend(&out, "row      ", first.row + 1, ", as the model sees it\n");
  if (first.given.empty()) {
    absl::StrAppend(&out, Line("prompt", TextOf(first.token_ids, tokenizer)),
                    Line("answer", first.answer));
  }
  for (const driver::GivenSequence& sequence : first.given) {
    for (const driver::TokenRun& run : sequence) {
      absl::StrAppend(&out,
                      Line(run.is_trained ? "trained" : "given", TextOf(run.token_ids, tokenizer)));
    }
  }
  return out;
}

}  // namespace tandem::commands
