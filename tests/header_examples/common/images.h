// What the usage examples in common/images leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_H_

namespace tandem::images::decode_example {
extern const std::string bytes;
}  // namespace tandem::images::decode_example

namespace tandem::images::image_digest_example {
extern const std::string file;
}  // namespace tandem::images::image_digest_example

namespace tandem::images::image_source_example {
extern const std::string folder;
}  // namespace tandem::images::image_source_example

namespace tandem::images::resize_example {
extern const Image image;
}  // namespace tandem::images::resize_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_H_
