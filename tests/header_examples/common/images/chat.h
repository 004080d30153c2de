// What the usage examples in common/images/chat leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_CHAT_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_CHAT_H_

#include <memory>

#include "common/model/images/image_preparer.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::images::chat_images_example {
extern const nlohmann::ordered_json messages;
extern const std::vector<int32_t> ids;
extern const PlaceholderIds placeholders;
extern const std::vector<PlaceholderGrid> grids;
}  // namespace tandem::images::chat_images_example

namespace tandem::images::find_placeholders_example {
extern const int32_t image_token_id;
extern const model::ImagePreparer preparer;
extern const std::unique_ptr<tokenizer::Tokenizer> tokenizer;
}  // namespace tandem::images::find_placeholders_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_CHAT_H_
