// What the usage examples in services/trainer/checkpoint leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_CHECKPOINT_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_CHECKPOINT_H_

#include <vector>

namespace tandem::trainer::load_shard_example {
extern std::vector<CheckpointedModel> models;
}  // namespace tandem::trainer::load_shard_example

namespace tandem::trainer::snapshot_writer_example {
extern SnapshotWriter writer;
extern std::vector<CheckpointedModel> models;
}  // namespace tandem::trainer::snapshot_writer_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_CHECKPOINT_H_
