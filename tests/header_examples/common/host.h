// What the usage examples in common/host leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_HOST_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_HOST_H_

#include <fcntl.h>

#include <string>
#include <vector>

namespace tandem::host::gpus_example {
extern int local_rank;
void Use(int gpu);
}  // namespace tandem::host::gpus_example

namespace tandem::host::run_on_threads_example {
struct Call {
  void Run();
};
extern std::vector<Call> calls;
}  // namespace tandem::host::run_on_threads_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_HOST_H_
