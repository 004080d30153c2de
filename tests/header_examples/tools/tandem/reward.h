// What the usage examples in tools/tandem/reward leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_REWARD_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_REWARD_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/header_examples/names.h"
#include "tools/tandem/reward/judge.h"

namespace tandem::reward::judge_example {
extern config::v1::JudgeConfig config;
extern absl::Duration timeout;
extern std::vector<JudgedText> texts;
}  // namespace tandem::reward::judge_example

namespace tandem::reward::judge_cache_example {
extern std::string key, request;
extern std::string Ask(const std::string& request);
extern header_examples::AnyFunction Score;
}  // namespace tandem::reward::judge_cache_example

namespace tandem::reward::judge_call_example {
extern JudgeEndpoint endpoint;
extern std::string body;
extern std::function<bool()> interrupted;
extern header_examples::AnyFunction WaitAndRetry;
}  // namespace tandem::reward::judge_call_example

namespace tandem::reward::judge_template_example {
extern std::string key;
}  // namespace tandem::reward::judge_template_example

namespace tandem::reward::pattern_example {
extern std::string text;
}  // namespace tandem::reward::pattern_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_REWARD_H_
