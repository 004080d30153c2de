// The configuration of a judge.
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/http/url.h"
#include "common/io/file_util.h"
#include "common/io/read_file.h"
#include "common/status/status_macros.h"
#include "tools/tandem/reward/judge.h"

namespace tandem::reward {
namespace {

constexpr char kDefaultKeyVariable[] = "OPENAI_API_KEY";
constexpr char kChatCompletions[] = "/chat/completions";

// The grade that the default template asks for: the number after the last "Score".
constexpr char kDefaultPattern[] = R"((?is).*\bscore\b[^\w-]*(\d+(?:\.\d+)?))";
constexpr double kDefaultLargest = 10;

absl::StatusOr<std::string> ReadApiKey(const std::string& variable, const std::string& key) {
  const char* const value = std::getenv(variable.c_str());
  if (value != nullptr && *value != '\0') {
    for (const char* c = value; *c != '\0'; ++c) {
      if (*c > ' ' && *c < 0x7F) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": expected a key of printable characters in ", variable,
                       ", found white space or another character that a header cannot hold"));
    }
    return std::string(value);
  }
  if (variable == kDefaultKeyVariable) return std::string();  // many servers need none
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": expected the judge's key in the environment variable ", variable,
                   ", which is unset or empty"));
}

}  // namespace

absl::StatusOr<JudgeTemplate> ReadJudgeTemplate(const config::v1::JudgeConfig& config,
                                                const std::string& key) {
  const std::string section = key + ".judge";
  if (config.template_file().empty()) {
    return JudgeTemplate::Parse(config.template_(), section + ".template");
  }
  const std::string file_key = section + ".template_file";
  absl::StatusOr<std::string> text = io::ReadFile(config.template_file());
  RETURN_IF_ERROR(io::AtPlace(file_key, text.status()));
  if (text->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        file_key, ": expected a template, found the empty file ", config.template_file()));
  }
  return JudgeTemplate::Parse(*text, absl::StrCat(file_key, ", ", config.template_file()));
}

absl::StatusOr<JudgeOptions> MakeJudgeOptions(const config::v1::JudgeConfig& config,
                                              const std::string& key, absl::Duration timeout) {
  const std::string section = key + ".judge";
  JudgeOptions options;
  absl::StatusOr<http::Url> url = http::ParseUrl(config.url());
  RETURN_IF_ERROR(io::AtPlace(section + ".url", url.status()));
  options.endpoint.url = *std::move(url);
  // The whole address is a common way to say it.
  if (!absl::EndsWith(options.endpoint.url.path, kChatCompletions)) {
    options.endpoint.url.path += kChatCompletions;
  }
  ASSIGN_OR_RETURN(options.endpoint.api_key,
                   ReadApiKey(config.api_key_env(), section + ".api_key_env"));
  options.model = config.model();
  ASSIGN_OR_RETURN(options.text, ReadJudgeTemplate(config, key));
  const bool is_default = config.template_().empty() && config.template_file().empty();
  if (!config.pattern().empty() || is_default) {
    const std::string pattern_key = section + ".pattern";
    ASSIGN_OR_RETURN(options.pattern,
                     Pattern::Compile(config.pattern().empty() ? kDefaultPattern : config.pattern(),
                                      pattern_key));
    if (options.pattern->num_groups() == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          pattern_key, ": expected a group, which holds the score: \"Score: (\\d+)\""));
    }
  }
  if (is_default) options.largest_score = kDefaultLargest;
  options.scale = config.scale() != 0 ? config.scale() : is_default ? 1 / kDefaultLargest : 1;
  options.max_tokens = config.max_tokens();
  options.temperature = config.temperature();
  options.retries = config.retries();
  options.concurrency = static_cast<int>(config.concurrency());
  options.images = config.images();
  options.images_key = section + ".images";
  options.cache = config.cache();
  options.timeout = timeout;
  return options;
}

}  // namespace tandem::reward
