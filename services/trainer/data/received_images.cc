#include "services/trainer/data/received_images.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/images/image_digest.h"
#include "common/model/image_forms.h"
#include "common/model/image_places.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

constexpr size_t kDigestBytes = 32;

absl::StatusOr<model::ImageGrid> GridOf(const common::v1::Image& image, const std::string& digest,
                                        const std::string& place, const PixelsOrError& pixels,
                                        const model::ModelSpec& spec, images::ImageForm form) {
  if (!spec.vision.has_value()) {
    return rpc::InvalidField(place, "expected none, because the model has no vision tower");
  }
  RETURN_IF_ERROR(pixels.status()) << place;
  const auto prepared = (*pixels)->Get(model::ImageKey(digest, form), image.data(), "the file",
                                       model::PixelCache::Turn::kWait, form);
  if (prepared.ok()) return (*prepared)->grid;
  return rpc::InvalidField(place, prepared.status().message());
}

bool HasForms(const model::ModelSpec& spec) {
  return spec.vision.has_value() && model::CountAmongOthers(*spec.vision) > 0;
}

// In which forms the ids show so many images.
std::vector<images::ImageForm> Forms(const google::protobuf::RepeatedField<uint32_t>& ids,
                                     int num_images, const model::ModelSpec& spec) {
  const auto count = static_cast<size_t>(num_images);
  if (!HasForms(spec)) return std::vector(count, images::ImageForm::kAlone);
  return model::FormsOf(*spec.vision, std::vector<int64_t>(ids.begin(), ids.end()), count);
}

// Whether the images fit the placeholders of `ids`.
absl::Status CheckPlaces(const google::protobuf::RepeatedField<uint32_t>& ids,
                         absl::Span<const model::ImageGrid> grids, const std::string& place,
                         const model::ModelSpec& spec) {
  if (!spec.vision.has_value()) return absl::OkStatus();
  const std::vector<int64_t> tokens(ids.begin(), ids.end());
  const absl::Status placed = model::PlaceImages(*spec.vision, tokens, grids).status();
  if (placed.ok()) return placed;
  return rpc::InvalidField(absl::StrCat(place, ".token_ids"), placed.message());
}

}  // namespace

absl::Status ReceivedImages::Add(common::v1::Image image) {
  const std::string place = absl::StrCat("images[", images_.size(), "]");
  num_bytes_ += static_cast<int64_t>(image.data().size());
  if (static_cast<int64_t>(images_.size()) == kMaxImages || num_bytes_ > kMaxBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(place, ": a step takes at most ", kMaxImages, " images and ", kMaxBytes,
                     " bytes of them; lower data.train_batch_size, or take smaller files"));
  }
  const std::string digest = images::ImageDigest(image.data());
  // One that may have several forms is prepared in those in which samples show it.
  model::ImageGrid grid;
  if (!HasForms(spec_)) {
    ASSIGN_OR_RETURN(grid, GridOf(image, digest, place, pixels_, spec_, images::ImageForm::kAlone));
  }
  const auto [at, is_new] = known_.try_emplace(digest, Known{images_.size(), grid});
  if (!is_new) {
    return rpc::InvalidField(place, absl::StrCat("expected each image once; it is the file of "
                                                 "images[",
                                                 at->second.index, "]"));
  }
  images_.push_back(std::move(image));
  return absl::OkStatus();
}

absl::Status ReceivedImages::Check(const common::v1::Sample& sample, absl::string_view place) {
  for (int s = 0; s < sample.segments_size(); ++s) {
    const common::v1::Segment& segment = sample.segments(s);
    const bool is_sampled = segment.kind() == common::v1::SEGMENT_KIND_SAMPLED;
    // Neither images nor placeholders that would lack theirs.
    if (segment.image_digests().empty() && (is_sampled || !spec_.vision.has_value())) continue;
    const std::string at = absl::StrCat(place, ".segments[", s, "]");
    if (is_sampled) {
      return rpc::InvalidField(absl::StrCat(at, ".image_digests"),
                               "expected none, because the segment was sampled");
    }
    std::vector<model::ImageGrid> grids;
    const std::vector<images::ImageForm> forms =
        Forms(segment.token_ids(), segment.image_digests_size(), spec_);
    for (int i = 0; i < segment.image_digests_size(); ++i) {
      const std::string& digest = segment.image_digests(i);
      const std::string of_digest = absl::StrCat(at, ".image_digests[", i, "]");
      if (digest.size() != kDigestBytes) {
        return rpc::InvalidField(
            of_digest, absl::StrCat("expected a SHA-256 digest of ", kDigestBytes, " bytes, found ",
                                    digest.size()));
      }
      const auto known = known_.find(digest);
      if (known == known_.end()) {
        return rpc::InvalidField(of_digest,
                                 absl::StrCat("expected the digest of one of the ", images_.size(),
                                              " images that came before the sample, found ",
                                              absl::BytesToHexString(digest)));
      }
      known->second.is_shown = true;
      model::ImageGrid& grid = grids.emplace_back(known->second.grid);
      if (!HasForms(spec_)) continue;
      const size_t index = known->second.index;
      ASSIGN_OR_RETURN(grid, GridOf(images_[index], digest, absl::StrCat("images[", index, "]"),
                                    pixels_, spec_, forms[static_cast<size_t>(i)]));
    }
    RETURN_IF_ERROR(CheckPlaces(segment.token_ids(), grids, at, spec_));
  }
  return absl::OkStatus();
}

absl::Status ReceivedImages::CheckAllShown() const {
  const auto first =
      std::min_element(known_.begin(), known_.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second.is_shown, a.second.index) <
               std::pair(b.second.is_shown, b.second.index);
      });
  if (first == known_.end() || first->second.is_shown) return absl::OkStatus();
  return rpc::InvalidField(
      absl::StrCat("images[", first->second.index, "]"),
      absl::StrCat("no sample names its digest, ", absl::BytesToHexString(first->first)));
}

absl::Status CheckImages(const v1::ComputeLogProbsRequest::Sequence& sequence,
                         absl::string_view place, const PixelsOrError& pixels,
                         const model::ModelSpec& spec) {
  std::vector<model::ImageGrid> grids;
  const std::vector<images::ImageForm> forms =
      Forms(sequence.token_ids(), sequence.images_size(), spec);
  for (int i = 0; i < sequence.images_size(); ++i) {
    const common::v1::Image& image = sequence.images(i);
    ASSIGN_OR_RETURN(grids.emplace_back(), GridOf(image, images::ImageDigest(image.data()),
                                                  absl::StrCat(place, ".images[", i, "]"), pixels,
                                                  spec, forms[static_cast<size_t>(i)]));
  }
  return CheckPlaces(sequence.token_ids(), grids, std::string(place), spec);
}

}  // namespace tandem::trainer
