// What the usage examples in tools/tandem/plan leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_PLAN_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_PLAN_H_

namespace tandem::plan::counted_tensor_example {
extern MemoryLedger ledger;
extern CountedTensor x;
inline constexpr header_examples::AnyFunction Use;
extern Size size;
extern int64_t bytes;
}  // namespace tandem::plan::counted_tensor_example

namespace tandem::plan::layer_memory_example {
extern MemoryLedger ledger;
extern model::ParameterTable table;
extern CountedBatch batch;
extern model::ModelSpec spec;
extern int64_t i;
extern Size x, gradient;
}  // namespace tandem::plan::layer_memory_example

namespace tandem::plan::layer_profile_example {
extern MemoryLedger ledger;
extern model::ParameterTable table;
extern CountedBatch batch;
extern model::ModelSpec spec;
extern sharding::Saves saves;
extern Size x;
}  // namespace tandem::plan::layer_profile_example

namespace tandem::plan::memory_ledger_example {
extern int64_t tokens, hidden;
}  // namespace tandem::plan::memory_ledger_example

namespace tandem::plan::rank_memory_example {
extern model::ModelSpec spec;
extern setup::RankSetup setup;
extern RankWorkload workload;
}  // namespace tandem::plan::rank_memory_example

namespace tandem::plan::run_plan_example {
extern PlanRequest request;
inline constexpr header_examples::AnyFunction Start;
}  // namespace tandem::plan::run_plan_example

namespace tandem::plan::tower_memory_example {
extern MemoryLedger ledger;
extern model::ParameterTable table;
extern CountedBatch batch;
extern model::VisionSpec vision;
extern int64_t num_rows, rows_per_prompt;
extern Size gradient;
}  // namespace tandem::plan::tower_memory_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_PLAN_H_
