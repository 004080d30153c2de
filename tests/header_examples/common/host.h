// What the usage examples in common/host leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_HOST_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_HOST_H_

#include <fcntl.h>

#include <string>

namespace tandem::host::gpus_example {
extern int local_rank;
void Use(int gpu);
}  // namespace tandem::host::gpus_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_HOST_H_
