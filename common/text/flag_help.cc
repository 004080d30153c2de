#include "common/text/flag_help.h"

#include <memory>
#include <string>

#include "absl/strings/str_replace.h"

namespace tandem::text {
namespace {

class Formatter final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = CLI::Formatter::make_option_opts(option);
    // An empty list is the absence of a default.
    return option->get_default_str() == "[]" ? absl::StrReplaceAll(text, {{"=[]", ""}}) : text;
  }
};

}  // namespace

void ShowDefaults(CLI::App& app) {
  app.option_defaults()->always_capture_default();
  app.formatter(std::make_shared<Formatter>());
}

}  // namespace tandem::text
