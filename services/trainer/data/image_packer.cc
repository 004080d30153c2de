#include "services/trainer/data/image_packer.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "common/model/image_places.h"

namespace tandem::trainer {
namespace {

// Stands for a token of text; no vocabulary has it.
constexpr int64_t kText = -1;

}  // namespace

int64_t ImagePacker::FirstRowOf(int64_t image) {
  const auto [at, is_new] = first_row_of_.try_emplace(image, num_rows_);
  if (is_new) {
    indices_.push_back(image);
    num_rows_ += model::NumImageRows(images_.spec(), images_.GridOf(image));
  }
  return at->second;
}

void ImagePacker::Add(const Sequence& sequence, int64_t num_tokens) {
  std::vector<model::ImageGrid> grids;
  for (const int64_t image : sequence.images) grids.push_back(images_.GridOf(image));
  // The whole sequence, because its last token may be within an image.
  std::vector<int64_t> ids(sequence.token_ids.size(), kText);
  for (const int64_t token : sequence.image_tokens) {
    ids[static_cast<size_t>(token)] = images_.spec().image_token_id;
  }
  const absl::StatusOr<model::ImagePlaces> places = model::PlaceImages(images_.spec(), ids, grids);
  TORCH_CHECK(places.ok(), places.status().message());

  const auto begin = static_cast<int64_t>(rows_.size());
  for (size_t axis = 0; axis < positions_.size(); ++axis) {
    const std::vector<int64_t>& from = places->positions[axis];
    positions_[axis].insert(positions_[axis].end(), from.begin(), from.begin() + num_tokens);
  }
  rows_.resize(static_cast<size_t>(begin + num_tokens), -1);
  size_t placeholder = 0;
  for (size_t i = 0; i < sequence.images.size(); ++i) {
    const int64_t count = model::NumImageRows(images_.spec(), grids[i]);
    if (places->tokens[placeholder] >= num_tokens) break;  // nothing is read of it or of later ones
    const int64_t first = FirstRowOf(sequence.images[i]);
    for (int64_t row = 0; row < count; ++row, ++placeholder) {
      const int64_t token = places->tokens[placeholder];
      if (token < num_tokens) rows_[static_cast<size_t>(begin + token)] = first + row;
    }
  }
}

void ImagePacker::MoveTo(const std::shared_ptr<BatchImages>& images, PackedBatch& packed) && {
  const auto num_tokens = static_cast<int64_t>(rows_.size());
  packed.positions = at::empty({3, num_tokens}, at::kLong);
  auto* to = packed.positions.mutable_data_ptr<int64_t>();
  for (const std::vector<int64_t>& axis : positions_) to = std::copy(axis.begin(), axis.end(), to);
  packed.image_rows = at::empty({num_tokens}, at::kLong);
  std::copy(rows_.begin(), rows_.end(), packed.image_rows.mutable_data_ptr<int64_t>());
  packed.image_indices = std::move(indices_);
  packed.images = images;
}

}  // namespace tandem::trainer
