// What the usage examples in common/plan leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_PLAN_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_PLAN_H_

namespace tandem::plan::memory_ledger_example {
extern int64_t tokens, hidden;
}  // namespace tandem::plan::memory_ledger_example

namespace tandem::plan::rank_memory_example {
extern model::ModelSpec spec;
extern RankSetup setup;
extern RankWorkload workload;
}  // namespace tandem::plan::rank_memory_example

namespace tandem::plan::run_plan_example {
extern PlanRequest request;
inline constexpr header_examples::AnyFunction Start;
}  // namespace tandem::plan::run_plan_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_PLAN_H_
