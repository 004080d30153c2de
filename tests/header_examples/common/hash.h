// What the usage examples in common/hash leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_HASH_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_HASH_H_

#include <vector>

namespace tandem::hash::hasher_example {
extern std::vector<std::string> lines;
}  // namespace tandem::hash::hasher_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_HASH_H_
