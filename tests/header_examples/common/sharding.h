// What the usage examples in common/sharding leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_SHARDING_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_SHARDING_H_

namespace tandem::sharding::gather_schedule_example {
extern int embedding, layer_0, layer_1, head;
inline constexpr header_examples::AnyFunction Free;
inline constexpr header_examples::AnyFunction Gather;
}  // namespace tandem::sharding::gather_schedule_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_SHARDING_H_
