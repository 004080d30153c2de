// What the usage examples in common/model/images leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_IMAGES_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_IMAGES_H_

#include <string>
#include <vector>

#include "common/model/transformer.h"

namespace tandem::model::image_preparer_example {
extern ModelSpec spec;
extern std::string folder, file;
extern std::vector<int64_t> token_ids;
}  // namespace tandem::model::image_preparer_example

namespace tandem::model::pixel_cache_example {
extern ImagePreparer preparer;
extern std::string digest, file;
}  // namespace tandem::model::pixel_cache_example

namespace tandem::model::prompt_images_example {
extern Transformer model;
extern ParameterProvider& params;
extern PreparedImage image;
}  // namespace tandem::model::prompt_images_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_IMAGES_H_
