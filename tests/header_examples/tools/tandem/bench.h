// What the usage examples in tools/tandem/bench leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_BENCH_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_BENCH_H_

#include <string>

#include "tools/tandem/bench/bench.h"

namespace tandem::bench::random_pictures_example {
extern std::string folder;
extern model::ModelSpec spec;
extern TorchRandint randint;
}  // namespace tandem::bench::random_pictures_example

namespace tandem::bench::serving_load_example {
extern ServingWork work;
extern int64_t vocab_size;
}  // namespace tandem::bench::serving_load_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_BENCH_H_
