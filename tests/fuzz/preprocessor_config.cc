// preprocessor_config.json, and what it makes of the sizes of images.
#include "common/images/processor/preprocessor_config.h"

#include "absl/strings/string_view.h"
#include "common/images/processor/image_processor.h"
#include "common/io/parse_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace images = tandem::images;
  const auto json = tandem::io::ParseJson<nlohmann::json>(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!json.ok() || !json->is_object()) return 0;
  const auto config = images::ParsePreprocessorConfig(*json, *json, "input");
  if (!config.ok()) return 0;
  const images::ImageProcessor processor(*config);
  for (const images::ImageSize image :
       {images::ImageSize{1, 1}, {1, 200}, {640, 480}, {65535, 1365}}) {
    const auto count = processor.NumPlaceholders(image);
    if (count.ok() && *count < 1) std::abort();
  }
  return 0;
}
