// The images of the samples that the page shows.
//
//   DescribeImages(sample, {.placeholder = 151655});
//   // sample["images"][0]: {"sha256": "9f86...", "name": "/data/cat.png", "part": "prompt",
//   //                       "begin": 4, "end": 28}
#ifndef TANDEM_TOOLS_TANDEM_VIEW_SAMPLE_IMAGES_H_
#define TANDEM_TOOLS_TANDEM_VIEW_SAMPLE_IMAGES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/images/chat/placeholders.h"
#include "nlohmann/json.hpp"

namespace tandem::view {

// Replaces the images of a flat sample (flat_sample.h) by what the page needs of them: the digest; the
// path, or "data URL", as "name", null if an earlier line of the group has it; and the list, "prompt" or
// "response", and run of ids that stand for it, null if there is none. Without images there is no key.
// `placeholders`: those of the model; a placeholder of -1: unknown. Malformed images are left out.
void DescribeImages(nlohmann::json& sample, const images::PlaceholderIds& placeholders);

// The path or data URL that a row of rollouts/ names beside the digest, 64 hexadecimal digits; empty if
// it names none. `line`: the row, as text.
std::string FindImageSource(absl::string_view line, const std::string& digest);

struct ServedImage {
  std::string media_type;
  std::string bytes;
};

// Reads the image at `source`, a data URL or a path relative to `folder`. NOT_FOUND if the file is not
// there, or is not the one that the digest names; INVALID_ARGUMENT if it is no image that a model
// sees, such as an SVG. Errors name the path.
absl::StatusOr<ServedImage> ReadServedImage(const std::string& source, const std::string& folder,
                                            const std::string& digest);

}  // namespace tandem::view

#endif  // TANDEM_TOOLS_TANDEM_VIEW_SAMPLE_IMAGES_H_
