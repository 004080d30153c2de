#include "services/rollout/images/image_encoder.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/model/images/prompt_images.h"
#include "common/model/vision_tower.h"
#include "common/status/exceptions.h"
#include "common/telemetry/trace.h"

namespace tandem::rollout {
namespace {

// Patches of one pass of the tower for each thread: those of an image of 224 x 224. More rows would only
// leave the caches: on a core of an AMD EPYC with AVX-512 a tower of 12 layers of width 384 takes 36 ms
// of an image alone, 38 ms among 4 and 39 ms among 16, in bfloat16.
constexpr int64_t kPatchesPerThread = 256;

}  // namespace

void ImageEncoder::BeginStep() {
  rows_.BeginStep();
  wanted_.clear();
  wanted_patches_ = 0;
}

int64_t ImageEncoder::NumReady(const Sequence& sequence, const RequestImages& images) {
  int64_t num_ready = sequence.num_tokens();
  for (const RequestImage& image : images.images) {
    if (image.end_token <= sequence.num_computed || rows_.Contains(image.key)) continue;
    num_ready = std::min(num_ready, image.first_token);
    // More than the step's share would not be encoded, and the list stays short.
    if (wanted_patches_ >= options_.max_patches_per_step) break;
    const bool is_wanted = std::any_of(wanted_.begin(), wanted_.end(), [&](const Wanted& wanted) {
      return wanted.image->key == image.key;
    });
    if (is_wanted) continue;
    wanted_.push_back({&sequence, &image});
    wanted_patches_ += image.num_patches;
  }
  return num_ready;
}

at::Tensor ImageEncoder::RowsOf(const RequestImages& images, int64_t first, int64_t end) {
  const c10::InferenceMode inference;
  std::vector<at::Tensor> parts;
  const absl::Span<const int64_t> tokens = images.places.TokensIn(first, end);
  const int64_t first_row = tokens.data() - images.places.tokens.data();
  const int64_t end_row = first_row + static_cast<int64_t>(tokens.size());
  for (const RequestImage& image : images.images) {
    const int64_t from = std::max(first_row, image.first_row);
    const int64_t to = std::min(end_row, image.first_row + image.num_rows);
    if (from >= to) continue;
    const at::Tensor* const rows = rows_.Use(image.key, /*is_new_run=*/from == image.first_row);
    TORCH_CHECK(rows != nullptr, "an image was planned before it was encoded");
    parts.push_back(rows->narrow(0, from - image.first_row, to - from));
  }
  if (parts.empty()) return {};
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

std::vector<ImageEncoder::Wanted> ImageEncoder::TakeShare(int64_t element_bytes) {
  const int64_t row_bytes = model_.spec().image_row_size() * element_bytes;
  int64_t num_patches = 0;
  int64_t num_bytes = 0;
  size_t count = 0;
  for (const Wanted& wanted : wanted_) {
    const int64_t patches = wanted.image->num_patches;
    const int64_t bytes = wanted.image->num_rows * row_bytes;
    if (count > 0 && num_patches + patches > options_.max_patches_per_step) break;
    if (!rows_.HasRoomFor(bytes, num_bytes)) break;
    num_patches += patches;
    num_bytes += bytes;
    ++count;
  }
  stats_.num_waiting = static_cast<int64_t>(wanted_.size() - count);
  wanted_.resize(count);
  return std::exchange(wanted_, {});
}

bool ImageEncoder::EncodeWanted(const model::ParameterProvider& params, Fail fail) {
  const auto element_bytes =
      static_cast<int64_t>(params.Get(model_.table().embedding()).element_size());
  const std::vector<Wanted> share = TakeShare(element_bytes);
  if (share.empty()) return false;
  const absl::Time start = absl::Now();
  std::vector<Prepared> images;
  for (const Wanted& wanted : share) {
    auto pixels = pixels_.Get(wanted.image->key, *wanted.image->file, "image",
                              model::PixelCache::Turn::kTake, wanted.image->form);
    if (pixels.ok()) {
      images.push_back({wanted, *std::move(pixels)});
    } else {
      fail(*wanted.sequence, pixels.status());
    }
  }
  const int64_t patches_per_pass = options_.max_patches_per_pass > 0
                                       ? options_.max_patches_per_pass
                                       : kPatchesPerThread * at::get_num_threads();
  for (size_t first = 0, end = 0; first < images.size(); first = end) {
    int64_t num_patches = 0;
    do {
      num_patches += images[end].wanted.image->num_patches;
      ++end;
    } while (end < images.size() &&
             num_patches + images[end].wanted.image->num_patches <= patches_per_pass);
    Encode(params, absl::MakeSpan(images).subspan(first, end - first), fail);
  }
  stats_.seconds += absl::ToDoubleSeconds(absl::Now() - start);
  return true;
}

void ImageEncoder::Encode(const model::ParameterProvider& params, absl::Span<const Prepared> images,
                          Fail fail) {
  if (images.empty()) return;
  std::vector<const model::PreparedImage*> pixels;
  int64_t num_rows = 0;
  for (const Prepared& image : images) {
    pixels.push_back(image.image.get());
    num_rows += image.wanted.image->num_rows;
  }
  const telemetry::ScopedSpan span("encode images",
                                   {{"images", images.size()}, {"rows", num_rows}});
  const c10::InferenceMode inference;
  using Rows = std::vector<at::Tensor>;  // of each image
  absl::StatusOr<Rows> encoded = Catch([&]() -> absl::StatusOr<Rows> {
    const at::Tensor all = model::EncodeImages(model_, params, model::PatchesOf(pixels));
    Rows rows;
    int64_t first = 0;
    for (const Prepared& prepared : images) {
      const int64_t count = prepared.wanted.image->num_rows;
      const at::Tensor part = all.narrow(0, first, count);
      // A view would keep the rows of all images until the last of them is given up.
      rows.push_back(images.size() == 1 ? part : part.clone());
      first += count;
    }
    return rows;
  });
  if (options_.await_device != nullptr) {
    // Also after an error: what is queued reads weights, which may be written when this returns.
    const absl::Status done = Catch([&] {
      options_.await_device();
      return absl::OkStatus();
    });
    if (encoded.ok() && !done.ok()) encoded = done;
  }
  if (!encoded.ok() && images.size() > 1) {
    for (const Prepared& image : images) Encode(params, {&image, 1}, fail);
    return;
  }
  if (!encoded.ok()) {
    fail(*images.front().wanted.sequence,
         absl::Status(encoded.status().code(),
                      absl::StrCat("the vision tower failed on an image of ", num_rows,
                                   " rows: ", encoded.status().message())));
    return;
  }
  for (size_t i = 0; i < images.size(); ++i) {
    const RequestImage& image = *images[i].wanted.image;
    rows_.Put(image.key, std::move((*encoded)[i]));
    ++stats_.num_images;
    stats_.num_patches += image.num_patches;
  }
}

ImageEncoderStats ImageEncoder::stats() const {
  ImageEncoderStats stats = stats_;
  stats.num_row_queries = rows_.num_queries();
  stats.num_row_hits = rows_.num_hits();
  stats.num_rows_evicted = rows_.num_evicted();
  stats.row_bytes = rows_.num_bytes();
  return stats;
}

}  // namespace tandem::rollout
