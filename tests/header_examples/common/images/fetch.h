// What the usage examples in common/images/fetch leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_FETCH_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_FETCH_H_

#include "common/images/fetch/image_fetcher.h"

namespace tandem::images::fetch_together_example {
extern const std::vector<std::string> urls;
extern const ImageFetcher fetcher;
extern std::vector<absl::StatusOr<std::string>> files;
}  // namespace tandem::images::fetch_together_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IMAGES_FETCH_H_
