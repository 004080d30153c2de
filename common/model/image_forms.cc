#include "common/model/image_forms.h"

#include <algorithm>

#include "common/images/chat/placeholders.h"

namespace tandem::model {

using images::ImageForm;

int64_t CountAmongOthers(const VisionSpec& spec) {
  return spec.has_canvas() ? spec.rows_per_tile() + 1 : 0;
}

std::vector<ImageForm> FormsOf(const VisionSpec& spec, absl::Span<const int64_t> token_ids,
                               size_t num_images) {
  const int64_t count = CountAmongOthers(spec);
  std::vector<ImageForm> forms(num_images, ImageForm::kAlone);
  if (count == 0 || num_images == 0) return forms;
  const images::PlaceholderIds placeholders{
      .placeholder = static_cast<int32_t>(spec.image_token_id), .count_among_others = count};
  const std::vector<uint32_t> ids(token_ids.begin(), token_ids.end());
  const std::vector<images::PlacedPlaceholders> found =
      images::FindPlaceholders(placeholders, ids, num_images);
  for (size_t i = 0; i < std::min(found.size(), num_images); ++i) {
    if (found[i].grid.count() == count) forms[i] = ImageForm::kAmongOthers;
  }
  return forms;
}

std::string ImageKey(const std::string& digest, ImageForm form) {
  if (form == ImageForm::kAlone || digest.empty()) return digest;
  // A digest that no file has, as far as anyone can tell.
  std::string key = digest;
  for (char& byte : key) byte = static_cast<char>(~byte);
  return key;
}

}  // namespace tandem::model
