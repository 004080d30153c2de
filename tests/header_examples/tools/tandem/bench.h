// What the usage examples in tools/tandem/bench leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_BENCH_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_BENCH_H_

namespace tandem::bench::serving_load_example {
extern ServingWork work;
extern int64_t vocab_size;
}  // namespace tandem::bench::serving_load_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_BENCH_H_
