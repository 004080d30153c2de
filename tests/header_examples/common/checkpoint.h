// What the usage examples in common/checkpoint leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_CHECKPOINT_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_CHECKPOINT_H_

#include <utility>
#include <vector>

namespace tandem::checkpoint::checkpoint_reader_example {
extern absl::Span<float> out;
}  // namespace tandem::checkpoint::checkpoint_reader_example

namespace tandem::checkpoint::shard_writer_example {
extern int rank, ranks;
extern std::vector<std::pair<Run, absl::Span<const float>>> runs;
}  // namespace tandem::checkpoint::shard_writer_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_CHECKPOINT_H_
