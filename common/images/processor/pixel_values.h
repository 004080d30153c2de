// Turns bytes into the numbers that a model takes.
#ifndef TANDEM_COMMON_IMAGES_PROCESSOR_PIXEL_VALUES_H_
#define TANDEM_COMMON_IMAGES_PROCESSOR_PIXEL_VALUES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "common/images/image.h"
#include "common/images/processor/preprocessor_config.h"

namespace tandem::images {

// The float32 value of each byte, by color: what transformers computes of a whole image, bit for bit.
using ByteValues = std::array<std::array<float, 256>, 3>;
ByteValues MakeByteValues(const PreprocessorConfig& config);

// Appends an image as [3, height, width].
void AppendPlanes(const Image& image, const ByteValues& values, std::vector<float>* out);

// Appends an image as Qwen's patches, [rows, 3 * temporal_patch_size * patch_size * patch_size]. The
// patches that are merged follow one another; a row has color, frame (the one frame repeated), y, x.
// Sides are multiples of patch_size * merge_size.
void AppendPatches(const Image& image, const ByteValues& values, const PreprocessorConfig& config,
                   std::vector<float>* out);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_PROCESSOR_PIXEL_VALUES_H_
