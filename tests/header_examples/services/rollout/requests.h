// What the usage examples in services/rollout/requests leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_REQUESTS_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_REQUESTS_H_

#include <string>

namespace tandem::rollout::byte_budget_example {
extern ByteBudget budget;
extern std::string body;
absl::Status check_client();
inline constexpr header_examples::AnyFunction Parse;
}  // namespace tandem::rollout::byte_budget_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_REQUESTS_H_
