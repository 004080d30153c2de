// What the usage examples in services/trainer/data leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_DATA_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_DATA_H_

#include <string>
#include <vector>

namespace tandem::trainer::batch_images_example {
extern model::PixelCache pixels;
extern const model::ModelSpec spec;
extern std::string file;
}  // namespace tandem::trainer::batch_images_example

namespace tandem::trainer::image_packer_example {
extern TrainingBatch batch;
extern std::vector<const Sequence*> packed;
extern PackedBatch packed_batch;
}  // namespace tandem::trainer::image_packer_example

namespace tandem::trainer::received_images_example {
extern const PixelsOrError pixels;
extern const model::ModelSpec spec;
extern common::v1::Image image;
extern common::v1::Sample sample;
}  // namespace tandem::trainer::received_images_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_TRAINER_DATA_H_
