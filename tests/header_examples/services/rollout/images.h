// What the usage examples in services/rollout/images leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_IMAGES_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_IMAGES_H_

#include "services/rollout/images/image_encoder.h"
#include "services/rollout/runner/model_runner.h"
#include "services/rollout/scheduler/scheduler.h"

namespace tandem::rollout::image_encoder_example {
extern Scheduler scheduler;
extern ImageEncoder encoder;
extern RequestImages images;
extern RunItem item;
extern int64_t first_token, end;
extern model::ParameterProvider& params;
void fail(const Sequence& sequence, absl::Status status);
}  // namespace tandem::rollout::image_encoder_example

namespace tandem::rollout::image_row_cache_example {
extern int64_t max_bytes, bytes;
extern std::string digest;
extern at::Tensor rows;
}  // namespace tandem::rollout::image_row_cache_example

namespace tandem::rollout::request_images_example {
extern model::ImagePreparer preparer;
extern model::ModelSpec spec;
extern std::vector<ImageFile> files;
extern std::vector<int32_t> prompt_ids;
}  // namespace tandem::rollout::request_images_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_IMAGES_H_
