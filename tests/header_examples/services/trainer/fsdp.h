// What the usage examples in services/trainer/fsdp leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_FSDP_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_FSDP_H_

#include <vector>

#include "common/model/vision_tower.h"
#include "services/trainer/optim/adamw.h"

namespace tandem::trainer::offload_file_example {
extern int64_t numel;
}  // namespace tandem::trainer::offload_file_example

namespace tandem::trainer::sharded_model_example {
extern ShardedModelOptions options;
extern io::ModelFolder folder;
extern std::vector<PackedBatch> micro_batches;
extern ShardedModel::LossFunction loss;
extern AdamW& optimizer;
extern double lr;
}  // namespace tandem::trainer::sharded_model_example

namespace tandem::trainer::unit_gatherer_example {
extern UnitGatherer gatherer;
extern int embedding, layer_0, layer_1, head;
}  // namespace tandem::trainer::unit_gatherer_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_FSDP_H_
