// ImageLoad: what a vision tower computes of a pass's images, by the most rows that a prompt's have.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_IMAGE_LOAD_H_
#define TANDEM_TOOLS_TANDEM_PLAN_IMAGE_LOAD_H_

#include <cstdint>

#include "common/model/model_spec.h"

namespace tandem::plan {

struct ImageLoad {
  int64_t patches = 0;
  int64_t rows = 0;
  // Of a tower with a canvas: rows between others, and newlines.
  int64_t between = 0;
  int64_t newlines = 0;
};

// Images of `rows` rows. Of a tower with a canvas `rows_per_prompt` of them are an image by itself that fills
// its canvas, that with the most tiles which such an image may have; other images have fewer tiles, but for
// narrow ones, which leave most of a canvas empty.
ImageLoad LoadOf(const model::VisionSpec& vision, int64_t rows, int64_t rows_per_prompt);

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_IMAGE_LOAD_H_
