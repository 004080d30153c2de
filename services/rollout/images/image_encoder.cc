#include "services/rollout/images/image_encoder.h"

#include <ATen/ops/cat.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>

#include "absl/strings/str_cat.h"
#include "common/model/images/prompt_images.h"
#include "common/model/vision_tower.h"
#include "common/status/exceptions.h"
#include "common/status/status_macros.h"
#include "common/telemetry/trace.h"

namespace tandem::rollout {

void ImageEncoder::BeginStep() {
  rows_.BeginStep();
  wanted_.clear();
}

int64_t ImageEncoder::NumReady(const Sequence& sequence, const RequestImages& images) {
  for (const RequestImage& image : images.images) {
    if (image.end() <= sequence.num_computed || rows_.Contains(image.digest)) continue;
    const bool is_wanted = std::any_of(wanted_.begin(), wanted_.end(), [&](const Wanted& wanted) {
      return wanted.image->digest == image.digest;
    });
    if (!is_wanted) wanted_.push_back({&sequence, &image});
    return image.first_token;
  }
  return sequence.num_tokens();
}

at::Tensor ImageEncoder::RowsOf(const RequestImages& images, int64_t first, int64_t end) {
  const c10::InferenceMode inference;
  std::vector<at::Tensor> parts;
  for (const RequestImage& image : images.images) {
    const int64_t from = std::max(first, image.first_token);
    const int64_t to = std::min(end, image.end());
    if (from >= to) continue;
    const at::Tensor* const rows = rows_.Use(image.digest);
    TORCH_CHECK(rows != nullptr, "an image was planned before it was encoded");
    parts.push_back(rows->narrow(0, from - image.first_token, to - from));
  }
  if (parts.empty()) return {};
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

bool ImageEncoder::EncodeWanted(const model::ParameterProvider& params,
                                absl::FunctionRef<void(const Sequence&, absl::Status)> fail) {
  const model::ModelSpec& spec = model_.spec();
  int64_t num_patches = 0;
  bool any = false;
  for (const Wanted& wanted : wanted_) {
    const RequestImage& image = *wanted.image;
    const int64_t patches = image.num_rows * spec.vision->patches_per_row();
    if (any && num_patches + patches > options_.max_patches_per_step) break;
    const int64_t bytes =
        image.num_rows * spec.image_row_size() *
        static_cast<int64_t>(params.Get(model_.table().embedding()).element_size());
    if (!rows_.HasRoomFor(bytes)) break;
    any = true;
    absl::StatusOr<at::Tensor> rows = Encode(params, image);
    if (rows.ok()) {
      rows_.Put(image.digest, *std::move(rows));
      num_patches += patches;
      ++num_encoded_;
    } else {
      fail(*wanted.sequence, rows.status());
    }
  }
  wanted_.clear();
  return any;
}

absl::StatusOr<at::Tensor> ImageEncoder::Encode(const model::ParameterProvider& params,
                                                const RequestImage& image) const {
  const telemetry::ScopedSpan span("encode image", {{"rows", image.num_rows}});
  ASSIGN_OR_RETURN(const auto prepared,
                   pixels_.Get(image.digest, *image.file, "image", PixelCache::Turn::kTake));
  try {
    const c10::InferenceMode inference;
    return model::EncodeImages(model_, params, model::PatchesOf({prepared.get()}));
  } catch (const std::exception& error) {
    const absl::Status thrown = StatusOf(error);
    return absl::Status(thrown.code(), absl::StrCat("the vision tower failed on an image of ",
                                                    image.num_rows, " rows: ", thrown.message()));
  }
}

}  // namespace tandem::rollout
