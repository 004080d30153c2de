#include "services/rollout/images/request_images.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/images/image_digest.h"
#include "common/model/image_forms.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::rollout {

int64_t RequestImages::file_bytes() const {
  int64_t bytes = 0;
  for (const RequestImage& image : images) bytes += static_cast<int64_t>(image.file->size());
  return bytes;
}

std::vector<TokenDigest> RequestImages::TokenDigests() const {
  std::vector<TokenDigest> digests;
  for (const RequestImage& image : images) {
    TokenDigest& at = digests.emplace_back();
    at.token = image.first_token;
    // Half of it: 128 bits, as many as a block's hash has.
    std::memcpy(&at.digest.first, image.key.data(), sizeof(at.digest.first));
    std::memcpy(&at.digest.second, image.key.data() + sizeof(at.digest.first),
                sizeof(at.digest.second));
  }
  return digests;
}

absl::StatusOr<std::shared_ptr<const RequestImages>> ReadRequestImages(
    const model::VisionSpec& spec, model::PixelCache& pixels, std::vector<ImageFile> files,
    absl::Span<const int32_t> prompt_ids) {
  // Before anything is decoded: a picture of few bytes may have many pixels.
  const auto num_placeholders =
      std::count(prompt_ids.begin(), prompt_ids.end(), spec.image_token_id);
  if (static_cast<int64_t>(files.size()) > num_placeholders) {
    return rpc::InvalidField("images",
                             absl::StrCat("expected at most ", num_placeholders,
                                          " images, as many as token_ids have placeholders, id ",
                                          spec.image_token_id, ", found ", files.size()));
  }
  auto out = std::make_shared<RequestImages>();
  const std::vector<int64_t> ids(prompt_ids.begin(), prompt_ids.end());
  const std::vector<images::ImageForm> forms = model::FormsOf(spec, ids, files.size());
  std::vector<model::ImageGrid> grids;
  for (size_t i = 0; i < files.size(); ++i) {
    RequestImage& image = out->images.emplace_back();
    image.form = forms[i];
    image.key = model::ImageKey(images::ImageDigest(*files[i]), image.form);
    image.file = std::move(files[i]);
    const absl::StatusOr<std::shared_ptr<const model::PreparedImage>> prepared =
        pixels.Get(image.key, *image.file, absl::StrCat("images[", i, "]"),
                   model::PixelCache::Turn::kWait, image.form);
    if (!prepared.ok()) return prepared.status();
    grids.push_back((*prepared)->grid);
    image.num_rows = model::NumImageRows(spec, grids.back());
    image.num_patches = grids.back().num_patches();
  }
  ASSIGN_OR_RETURN(out->places, model::PlaceImages(spec, ids, grids));
  if (out->images.empty()) return nullptr;
  int64_t row = 0;
  for (RequestImage& image : out->images) {
    image.first_row = row;
    image.first_token = out->places.tokens[static_cast<size_t>(row)];
    row += image.num_rows;
    image.end_token = out->places.tokens[static_cast<size_t>(row - 1)] + 1;
  }
  return out;
}

}  // namespace tandem::rollout
