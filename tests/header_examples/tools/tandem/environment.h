// What the usage examples in tools/tandem/environment leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_ENVIRONMENT_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_ENVIRONMENT_H_

#include <functional>
#include <string>

#include "common/rpc/child_process.h"

namespace tandem::environment::agent_program_example {
extern AgentTask task;
extern std::function<bool()> cancelled;
}  // namespace tandem::environment::agent_program_example

namespace tandem::environment::environment_example {
std::unique_ptr<Environment> MakeCalculator(bool in_chat);
}  // namespace tandem::environment::environment_example

namespace tandem::environment::environment_client_example {
extern std::string endpoint;
extern v1::PlayRequest request;
inline constexpr header_examples::AnyFunction Use;
}  // namespace tandem::environment::environment_client_example

namespace tandem::environment::output_tail_example {
extern rpc::ChildProcessOptions options;
}  // namespace tandem::environment::output_tail_example

namespace tandem::environment::turn_calls_example {
extern std::string text;
inline constexpr header_examples::AnyFunction Explain;
}  // namespace tandem::environment::turn_calls_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_ENVIRONMENT_H_
