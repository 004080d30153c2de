#include "tools/tandem/view/sample_images.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/images/decode.h"
#include "common/images/image_digest.h"
#include "common/images/image_source.h"
#include "common/io/parse_json.h"
#include "common/status/status_macros.h"

namespace tandem::view {
namespace {

using nlohmann::json;

// The value at `key`, or null.
json ValueAt(const json& object, const char* key) {
  if (!object.is_object()) return json();
  const auto found = object.find(key);
  return found == object.end() ? json() : *found;
}

struct Run {
  const char* part;
  int64_t begin;
  int64_t end;
};

// Appends the runs of placeholders among the ids at `key`, those of an image's lines as one.
void AddRuns(const json& sample, const char* key, const char* part,
             const images::PlaceholderIds& placeholders, size_t num_images,
             std::vector<Run>& runs) {
  constexpr uint32_t kNoId = std::numeric_limits<uint32_t>::max();
  const json ids = ValueAt(sample, key);
  if (!ids.is_array()) return;
  std::vector<uint32_t> tokens;
  for (const json& id : ids) tokens.push_back(id.is_number_integer() ? id.get<uint32_t>() : kNoId);
  for (const images::PlacedPlaceholders& image :
       images::FindPlaceholders(placeholders, tokens, num_images)) {
    runs.push_back({part, image.begin, image.end});
  }
}

// What the page says of where an image is. A data URL may have megabytes.
json NameOf(const json& source) {
  if (!source.is_string()) return nullptr;
  const std::string& text = source.get_ref<const std::string&>();
  return absl::StartsWithIgnoreCase(text, "data:") ? json("data URL") : source;
}

std::string SourceAmong(const json& images, const std::string& digest) {
  if (!images.is_array()) return "";
  for (const json& image : images) {
    const json path = ValueAt(image, "path");
    if (ValueAt(image, "sha256") == digest && path.is_string()) return path.get<std::string>();
  }
  return "";
}

}  // namespace

void DescribeImages(json& sample, const images::PlaceholderIds& placeholders) {
  const json images = ValueAt(sample, "images");
  sample.erase("images");
  if (!images.is_array()) return;
  std::vector<Run> runs;
  if (placeholders.placeholder >= 0) {
    AddRuns(sample, "prompt_ids", "prompt", placeholders, images.size(), runs);
    AddRuns(sample, "response_ids", "response", placeholders, images.size(), runs);
  }
  json described = json::array();
  for (size_t i = 0; i < images.size(); ++i) {
    const json digest = ValueAt(images[i], "sha256");
    if (!digest.is_string()) continue;
    json entry = {{"sha256", digest},
                  {"name", NameOf(ValueAt(images[i], "path"))},
                  {"part", nullptr},
                  {"begin", nullptr},
                  {"end", nullptr}};
    if (i < runs.size()) {
      entry["part"] = runs[i].part;
      entry["begin"] = runs[i].begin;
      entry["end"] = runs[i].end;
    }
    described.push_back(std::move(entry));
  }
  if (!described.empty()) sample["images"] = std::move(described);
}

std::string FindImageSource(absl::string_view line, const std::string& digest) {
  if (!absl::StrContains(line, digest)) return "";  // before the work of parsing
  const json row = io::ParseJson<json>(line).value_or(nullptr);
  std::string source = SourceAmong(ValueAt(row, "images"), digest);
  const json segments = ValueAt(row, "segments");
  for (size_t i = 0; source.empty() && segments.is_array() && i < segments.size(); ++i) {
    source = SourceAmong(ValueAt(segments[i], "images"), digest);
  }
  return source;
}

absl::StatusOr<ServedImage> ReadServedImage(const std::string& source, const std::string& folder,
                                            const std::string& digest) {
  const images::ImageLimits limits;
  ASSIGN_OR_RETURN(images::ImageBytes read, images::ReadImageSource(source, folder, limits));
  if (absl::BytesToHexString(images::ImageDigest(read.bytes)) != digest) {
    return absl::NotFoundError(
        absl::StrCat(read.place, ": the file changed since the run read it"));
  }
  // The type is what the content says, never the name: a browser gets pictures only.
  ASSIGN_OR_RETURN(images::ImageInfo info, images::ReadImageInfo(read.bytes, read.place, limits));
  return ServedImage{std::move(info.media_type), std::move(read.bytes)};
}

}  // namespace tandem::view
