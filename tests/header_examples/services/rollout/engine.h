// What the usage examples in services/rollout/engine leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_ENGINE_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_ENGINE_H_

#include <vector>

namespace tandem::rollout::engine_example {
extern EngineOptions options;
extern model::Transformer model;
extern const tokenizer::Tokenizer* tokenizer;
extern GenerationRequest request;
extern GenerationCallbacks callbacks;
extern int64_t version;
extern absl::Time deadline;
}  // namespace tandem::rollout::engine_example

namespace tandem::rollout::sample_routing_example {
extern BlockManager blocks;
extern int64_t routed_values_per_token, first;
extern SampleState sample;
extern std::vector<uint16_t> experts;
}  // namespace tandem::rollout::sample_routing_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_ENGINE_H_
