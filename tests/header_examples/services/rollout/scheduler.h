// What the usage examples in services/rollout/scheduler leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_SCHEDULER_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_SCHEDULER_H_

namespace tandem::rollout::scheduler_example {
extern BlockManager blocks;
extern Sequence* sequence;
inline constexpr header_examples::AnyFunction RunAndSample;
}  // namespace tandem::rollout::scheduler_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_SCHEDULER_H_
