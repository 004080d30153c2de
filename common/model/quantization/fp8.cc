#include "common/model/quantization/fp8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/io/release_pages.h"
#include "common/model/parameter.h"
#include "common/model/quantization/power_of_two.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

// Rows and columns of the blocks that share a scale.
struct BlockSize {
  int64_t rows = 0;
  int64_t columns = 0;
};

constexpr float E4M3Value(int bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  const float sign = bits & 0x80 ? -1.0F : 1.0F;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * static_cast<float>(mantissa) * PowerOfTwo(-9);
  return sign * static_cast<float>(8 + mantissa) * PowerOfTwo(exponent - 10);
}

constexpr std::array<float, 256> kE4M3 = [] {
  std::array<float, 256> values{};
  for (int bits = 0; bits < 256; ++bits) values[static_cast<size_t>(bits)] = E4M3Value(bits);
  return values;
}();

constexpr int64_t BlocksIn(int64_t size, int64_t block) { return (size + block - 1) / block; }

// The tensor as matrices one after another. A vector is one row, a scalar one element.
struct Matrices {
  explicit Matrices(const std::vector<int64_t>& shape)
      : columns(shape.empty() ? 1 : shape.back()),
        rows(shape.size() < 2 ? 1 : shape[shape.size() - 2]),
        count(NumElements(shape) / std::max<int64_t>(rows * columns, 1)) {}

  int64_t columns;
  int64_t rows;
  int64_t count;
};

// Scales of the types that checkpoints have, uint8 meaning float8_e8m0fnu; bytes may start at any
// address.
class Scales {
 public:
  Scales(io::TensorView tensor, std::string file)
      : tensor_(std::move(tensor)), file_(std::move(file)) {}

  absl::StatusOr<float> At(int64_t index) const {
    const float scale = Value(index);
    if (std::isfinite(scale) && scale >= 0) return scale;
    return absl::DataLossError(
        absl::StrCat(file_, ": tensor ", tensor_.name, ": element ", index, " is ", scale,
                     "; expected a finite scale of at least 0: copy or download the file again"));
  }
  void ReleasePages() const { io::ReleasePages(tensor_.bytes); }

 private:
  template <typename Bits>
  Bits BitsAt(int64_t index) const {
    Bits bits;
    std::memcpy(&bits, tensor_.bytes.data() + index * static_cast<int64_t>(sizeof(bits)),
                sizeof(bits));
    return bits;
  }

  float Value(int64_t index) const {
    if (io::SizeOf(tensor_.dtype) == 1) return kE8M0[BitsAt<uint8_t>(index)];
    const uint32_t bits = tensor_.dtype == io::DType::kBF16
                              ? static_cast<uint32_t>(BitsAt<uint16_t>(index)) << 16
                              : BitsAt<uint32_t>(index);
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

  io::TensorView tensor_;
  std::string file_;
};

class Fp8Tensor : public QuantizedTensor {
 public:
  Fp8Tensor(io::TensorView elements, Scales scales, BlockSize block)
      : elements_(std::move(elements)),
        scales_(std::move(scales)),
        matrices_(elements_.shape),
        block_(block),
        row_scales_(BlocksIn(matrices_.columns, block.columns)),
        matrix_scales_(BlocksIn(matrices_.rows, block.rows) * row_scales_) {}

  absl::Status Read(int64_t first, int64_t count, int64_t stride, float* out) const override {
    const auto* const elements = reinterpret_cast<const uint8_t*>(elements_.bytes.data());
    for (int64_t done = 0; done < count;) {
      const int64_t at = first + done * stride;
      const int64_t row = at / matrices_.columns;
      const int64_t column = at - row * matrices_.columns;
      const int64_t column_block = column / block_.columns;
      const int64_t end = std::min((column_block + 1) * block_.columns, matrices_.columns);
      const int64_t n = std::min(BlocksIn(end - column, stride), count - done);
      ASSIGN_OR_RETURN(const float scale,
                       scales_.At(row / matrices_.rows * matrix_scales_ +
                                  row % matrices_.rows / block_.rows * row_scales_ + column_block));
      for (int64_t i = 0; i < n; ++i) out[done + i] = kE4M3[elements[at + i * stride]] * scale;
      done += n;
    }
    return absl::OkStatus();
  }

  void ReleasePages() const override {
    io::ReleasePages(elements_.bytes);
    scales_.ReleasePages();
  }

 private:
  io::TensorView elements_;
  Scales scales_;
  Matrices matrices_;
  BlockSize block_;
  int64_t row_scales_;     // scales side by side
  int64_t matrix_scales_;  // of one matrix
};

class Fp8Quantization : public Quantization {
 public:
  explicit Fp8Quantization(std::optional<BlockSize> block) : block_(block) {}

  absl::string_view method() const override { return "fp8"; }

  std::vector<StoredPart> PartsOf(const io::ModelFolder& folder, const std::string& name,
                                  const std::vector<int64_t>& shape) const override {
    const absl::StatusOr<io::TensorView> elements = folder.Find(name);
    if (!elements.ok() || elements->dtype != io::DType::kF8E4M3) return {};
    return {{name, shape}, ScalesOf(folder, name, shape)};
  }

  absl::StatusOr<std::shared_ptr<const QuantizedTensor>> Open(
      const io::ModelFolder& folder, const std::string& name,
      const std::vector<int64_t>& shape) const override {
    ASSIGN_OR_RETURN(io::TensorView elements,
                     FindPart(folder, {name, shape}, {io::DType::kF8E4M3}));
    const StoredPart part = ScalesOf(folder, name, shape);
    ASSIGN_OR_RETURN(io::TensorView scales, FindPart(folder, part,
                                                     {io::DType::kF32, io::DType::kBF16,
                                                      io::DType::kF8E8M0, io::DType::kU8}));
    return std::make_shared<const Fp8Tensor>(
        std::move(elements), Scales(std::move(scales), folder.FileOf(part.name)), BlockOf(shape));
  }

  bool Ignores(absl::string_view name) const override {
    // Of activations (transformers, vLLM) and of the KV cache.
    for (const char* suffix : {".activation_scale", ".input_scale", ".k_scale", ".v_scale"}) {
      if (absl::EndsWith(name, suffix)) return true;
    }
    return false;
  }

 private:
  // Only matrices have blocks.
  bool InBlocks(const std::vector<int64_t>& shape) const {
    return block_.has_value() && shape.size() >= 2;
  }

  BlockSize BlockOf(const std::vector<int64_t>& shape) const {
    if (InBlocks(shape)) return *block_;
    const Matrices matrices(shape);
    return {matrices.rows, matrices.columns};
  }

  StoredPart ScalesOf(const io::ModelFolder& folder, const std::string& name,
                      const std::vector<int64_t>& shape) const {
    StoredPart part{absl::StrCat(name, "_scale_inv"), shape};
    if (const std::string other = absl::StrCat(name, "_scale");
        !folder.Contains(part.name) && folder.Contains(other)) {
      part.name = other;
    }
    if (InBlocks(shape)) {
      int64_t* const matrix = &part.shape[shape.size() - 2];
      matrix[0] = BlocksIn(matrix[0], block_->rows);
      matrix[1] = BlocksIn(matrix[1], block_->columns);
      return part;
    }
    // One for each matrix: [], [1] and [1, 1] are the same.
    part.shape.resize(shape.size() - std::min<size_t>(shape.size(), 2));
    const absl::StatusOr<io::TensorView> found = folder.Find(part.name);
    if (found.ok() && NumElements(found->shape) == Matrices(shape).count) part.shape = found->shape;
    return part;
  }

  std::optional<BlockSize> block_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Quantization>> ReadFp8Quantization(
    const ConfigReader& settings) {
  constexpr const char* kKey = "weight_block_size";
  if (!settings.Has(kKey)) return std::make_shared<const Fp8Quantization>(std::nullopt);
  const nlohmann::json& block = settings.At(kKey);
  const auto is_size = [](const nlohmann::json& size) {
    return size.is_number_integer() && size >= 1 && size <= kMaxWidth;
  };
  if (!block.is_array() || block.size() != 2 || !is_size(block[0]) || !is_size(block[1])) {
    return settings.Invalid(kKey, "the numbers of rows and columns of a block: [128, 128]");
  }
  return std::make_shared<const Fp8Quantization>(
      BlockSize{block[0].get<int64_t>(), block[1].get<int64_t>()});
}

}  // namespace tandem::model
