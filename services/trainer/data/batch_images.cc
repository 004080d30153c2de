#include "services/trainer/data/batch_images.h"

#include <c10/util/Exception.h>

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/images/image_digest.h"
#include "common/model/image_forms.h"
#include "common/model/images/prompt_images.h"

namespace tandem::trainer {

int64_t BatchImages::Add(std::string file) {
  const auto [at, is_new] =
      index_of_.try_emplace(images::ImageDigest(file), static_cast<int64_t>(images_.size()));
  if (is_new) {
    images_.push_back({std::make_shared<const std::string>(std::move(file)), at->first, at->first,
                       images::ImageForm::kAlone, std::nullopt});
  }
  return at->second;
}

int64_t BatchImages::InForm(int64_t image, images::ImageForm form) {
  const Image of = images_.at(static_cast<size_t>(image));
  std::string key = model::ImageKey(of.digest, form);
  const auto [at, is_new] = index_of_.try_emplace(key, static_cast<int64_t>(images_.size()));
  if (is_new) images_.push_back({of.file, of.digest, std::move(key), form, std::nullopt});
  return at->second;
}

std::optional<int64_t> BatchImages::Find(absl::string_view digest) const {
  const auto found = index_of_.find(digest);
  if (found == index_of_.end()) return std::nullopt;
  return found->second;
}

std::shared_ptr<const model::PreparedImage> BatchImages::Prepare(int64_t image) {
  Image& of = images_.at(static_cast<size_t>(image));
  absl::StatusOr<std::shared_ptr<const model::PreparedImage>> pixels =
      pixels_.Get(of.key, *of.file, absl::StrCat("image ", image, " of the batch"),
                  model::PixelCache::Turn::kTake, of.form);
  TORCH_CHECK(pixels.ok(), pixels.status().message());
  of.grid = (*pixels)->grid;
  return *std::move(pixels);
}

const model::ImageGrid& BatchImages::GridOf(int64_t image) {
  std::optional<model::ImageGrid>& grid = images_.at(static_cast<size_t>(image)).grid;
  if (!grid.has_value()) Prepare(image);
  return *grid;
}

model::ImagePatches BatchImages::PatchesOf(absl::Span<const int64_t> images) {
  std::vector<std::shared_ptr<const model::PreparedImage>> held;
  std::vector<const model::PreparedImage*> prepared;
  for (const int64_t image : images) {
    held.push_back(Prepare(image));
    prepared.push_back(held.back().get());
  }
  return model::PatchesOf(prepared);
}

}  // namespace tandem::trainer
