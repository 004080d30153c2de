// What the usage examples in common/images/processor leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_PROCESSOR_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_PROCESSOR_H_

namespace tandem::images::image_processor_example {
extern const std::string folder;
extern const Image image;
}  // namespace tandem::images::image_processor_example

namespace tandem::images::preprocessor_config_example {
extern const std::string folder;
}  // namespace tandem::images::preprocessor_config_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_PROCESSOR_H_
