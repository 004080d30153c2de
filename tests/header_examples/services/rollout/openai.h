// What the usage examples in services/rollout/openai leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_OPENAI_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_OPENAI_H_

#include "nlohmann/json.hpp"

namespace tandem::rollout::openai::generation_calls_example {
extern Engine& engine;
extern RolloutMetrics* metrics;
extern GenerationRequest request;
inline constexpr header_examples::AnyFunction Send;
}  // namespace tandem::rollout::openai::generation_calls_example

namespace tandem::rollout::openai::request_fields_example {
extern nlohmann::ordered_json body;
extern GenerationRequest generation;
}  // namespace tandem::rollout::openai::request_fields_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_OPENAI_H_
