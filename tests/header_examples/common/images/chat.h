// What the usage examples in common/images/chat leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_CHAT_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_CHAT_H_

namespace tandem::images::chat_images_example {
extern const nlohmann::ordered_json messages;
extern const std::vector<int32_t> ids;
extern const PlaceholderIds placeholders;
extern const std::vector<PlaceholderGrid> grids;
}  // namespace tandem::images::chat_images_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_CHAT_H_
