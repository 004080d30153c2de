// What the usage examples in services/rollout/engine leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_ENGINE_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_ENGINE_H_

namespace tandem::rollout::engine_example {
extern EngineOptions options;
extern model::Transformer model;
extern const tokenizer::Tokenizer* tokenizer;
extern GenerationRequest request;
extern GenerationCallbacks callbacks;
extern int64_t version;
extern absl::Time deadline;
}  // namespace tandem::rollout::engine_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_ENGINE_H_
